"""The training engine alone, without HTTP: what a pass, a step and a publication cost, and GRPO on the multiply task.

    .venv/bin/python benchmarks/training/engine.py [--engine numpy|torch] [--steps 60] [--lr 5e-4] [--seed 0]

Figures are process CPU seconds. The loop here is the barest one that learns; the product's is `osmosis train run`.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import resource
import time
from dataclasses import dataclass, field
from pathlib import Path

import osmosis_trainer
from osmosis_trainer.chat.template import ChatTemplate, normalise
from osmosis_trainer.chat.tokens import TextTokenizer
from osmosis_trainer.datum import Datum
from osmosis_trainer.engine.arrays import np
from osmosis_trainer.engine.protocol import AdamConfig, PolicyEngine
from osmosis_trainer.engine.sampler import SampleRequest
from osmosis_trainer.engine.sampling import SamplingParams, noise_key
from osmosis_trainer.engines import ENGINES, open_engine
from osmosis_trainer.losses import LossConfig

NANO = Path(osmosis_trainer.__file__).parent / "nano"
LOSS = LossConfig("ppo")
TOOL = {
    "type": "function",
    "function": {
        "name": "multiply",
        "description": "Multiply two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    },
}
SYSTEM = "You are a calculator. Use the multiply tool, then answer on one line as #### followed by the number."
tokenizer = TextTokenizer(NANO / "tokenizer.json")
template = ChatTemplate((NANO / "chat_template.jinja").read_text())
END = tokenizer.token_id("<|im_end|>")


@dataclass
class Rollout:
    """One dialogue in tokens."""

    a: int
    b: int
    name: str
    question: str = "What is {a} * {b}?"
    ids: list[int] = field(default_factory=list)
    trained: list[bool] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    reward: float = 0.0

    def context(self, ids: list[int]) -> None:
        self.ids += ids
        self.trained += [False] * len(ids)
        self.logprobs += [0.0] * len(ids)

    async def turn(self, engine: PolicyEngine, version: str, temperature: float, number: int) -> str:
        request = SampleRequest(
            session=self.name,
            version=version,
            prompt=self.ids,
            max_tokens=64,
            stop_ids=frozenset({END}),
            params=SamplingParams(temperature),
            noise_key=noise_key(self.name, number),
        )
        ids: list[int] = []
        async for piece in engine.sample(request):
            ids += piece.ids
            self.logprobs += piece.logprobs
        self.ids = [*self.ids, *ids]
        self.trained += [True] * len(ids)
        stream = tokenizer.stream()
        return stream.push([i for i in ids if i != END]) + stream.end()

    async def play(self, engine: PolicyEngine, version: str, temperature: float = 1.0) -> None:
        asked = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": self.question.format(a=self.a, b=self.b)},
        ]
        self.context(tokenizer.encode(template.render(normalise(asked), [TOOL], add_generation_prompt=True)))
        text = await self.turn(engine, version, temperature, 0)
        call = re.search(r'"arguments": \{"a": (\d+), "b": (\d+)\}', text)
        if call and self.ids[-1] == END:
            told = [{"role": "tool", "content": str(int(call[1]) * int(call[2]))}]
            whole = template.render(
                [*normalise(asked), {"role": "assistant", "content": "x"}, *told], [TOOL], add_generation_prompt=True
            )
            head = template.render([*normalise(asked), {"role": "assistant", "content": "x"}], [TOOL])
            self.context(tokenizer.encode("\n" + whole[len(head) :] if head.endswith("\n") else whole[len(head) :]))
            text = await self.turn(engine, version, temperature, 1)
        answer = re.search(r"####\s*(-?\d+)", text)
        self.reward = float(answer is not None and int(answer[1]) == self.a * self.b)
        engine.forget(self.name)

    def datum(self, advantage: float) -> Datum:
        return Datum(self.ids, self.trained, [advantage] * len(self.ids), self.logprobs, rollout=self.name)


@dataclass
class Learning:
    """What one update did."""

    groups: int
    metrics: dict[str, float] = field(default_factory=dict)
    grad_norm: float = 0.0


async def learn(engine: PolicyEngine, adapter: str, groups: list[list[Rollout]], lr: float) -> Learning:
    """One GRPO update; groups without a spread of rewards are left out."""
    datums, spread = [], 0
    for group in groups:
        rewards = np.array([r.reward for r in group])
        if rewards.std() > 0:
            spread += 1
            advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
            datums += [r.datum(float(a)) for r, a in zip(group, advantages, strict=True)]
    if not datums:
        return Learning(0)
    metrics = (await engine.forward_backward(adapter, datums, LOSS)).metrics
    return Learning(spread, metrics, (await engine.optim_step(adapter, AdamConfig(lr=lr))).grad_norm)


async def evaluate(engine: PolicyEngine, version: str, temperature: float) -> float:
    rng = random.Random(10_000)
    rollouts = [Rollout(rng.randint(2, 99), rng.randint(2, 99), f"{version}-{temperature}-{i}") for i in range(128)]
    await asyncio.gather(*(r.play(engine, version, temperature) for r in rollouts))
    return sum(r.reward for r in rollouts) / len(rollouts)


async def batch_cost(engine: PolicyEngine) -> None:
    rng = np.random.default_rng(0)
    size = engine.capabilities.vocab_size
    for words, shared in (("nothing shared", 0), ("groups of 8 share 60", 60)):
        datums = []
        for _ in range(8):
            prompt = rng.integers(0, size, shared).tolist()
            for _ in range(8):
                tokens = prompt + rng.integers(0, size, 110 - shared).tolist()
                trained = [t >= 66 for t in range(110)]
                datums.append(Datum(tokens, trained, [1.0] * 110, [-6.0] * 110))
        times = []
        for _ in range(5):
            start = time.process_time()
            await engine.forward_backward("bench", datums, LOSS)
            times.append(time.process_time() - start)
        best = min(times)
        print(f"forward_backward 64 x 110 tokens, {words}: {best:.3f} cpu-s, {7040 / best:,.0f} tokens/cpu-s")
    for words, work in (
        ("optim_step (with fold)", lambda: engine.optim_step("bench", AdamConfig(lr=1e-4))),
        ("publish", lambda: engine.publish("bench")),
    ):
        times = []
        for _ in range(5):
            start = time.process_time()
            await work()
            times.append(time.process_time() - start)
        print(f"{words}: {min(times) * 1e3:.2f} ms cpu")


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--engine", choices=ENGINES, default="numpy")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    engine = open_engine(options.engine, NANO, base="nano")
    print(engine.capabilities)
    await engine.create_adapter("bench", seed=options.seed)
    await batch_cost(engine)
    await engine.create_adapter("run", seed=options.seed)
    version = await engine.publish("run")
    print(
        f"before: sampled {await evaluate(engine, version, 1.0):.3f}, greedy {await evaluate(engine, version, 0.0):.3f}"
    )
    rng = random.Random(options.seed)
    began, cpu = time.time(), time.process_time()
    gap = rolled = learnt = 0.0
    for step in range(1, options.steps + 1):
        at = time.process_time()
        groups = []
        for g in range(8):
            a, b = rng.randint(2, 99), rng.randint(2, 99)
            groups.append([Rollout(a, b, f"{options.seed}-{step}-{g}-{i}") for i in range(8)])
        await asyncio.gather(*(r.play(engine, version) for group in groups for r in group))
        middle = time.process_time()
        learning = await learn(engine, "run", groups, options.lr)
        metrics, norm, spread = learning.metrics, learning.grad_norm, learning.groups
        if spread:
            gap = max(gap, metrics["logprob_gap_max"])
            await engine.retire(version)
            version = await engine.publish("run")
        rolled, learnt = rolled + middle - at, learnt + time.process_time() - middle
        if step <= 3 or step % 5 == 0:
            reward = np.mean([r.reward for group in groups for r in group])
            print(
                f"step {step}: reward {reward:.3f}, {spread}/8 groups, rollouts {middle - at:.2f} cpu-s, "
                f"learning {time.process_time() - middle:.2f} cpu-s, gap {metrics.get('logprob_gap_max', 0):.1e}, "
                f"entropy {metrics.get('entropy', 0):.3f}, norm {norm:.2f}"
            )
    print(
        f"{options.steps} steps: {time.time() - began:.1f} s wall, {time.process_time() - cpu:.1f} cpu-s "
        f"(rollouts {rolled:.1f}, learning {learnt:.1f}), largest log-probability gap {gap:.1e}"
    )
    print(
        f"after: sampled {await evaluate(engine, version, 1.0):.3f}, greedy {await evaluate(engine, version, 0.0):.3f}"
    )
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
    await engine.aclose()


if __name__ == "__main__":
    asyncio.run(main())
