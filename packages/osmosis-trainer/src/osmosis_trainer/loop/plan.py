"""What a training will take, before it starts: rollouts, tokens and time.

From the speed of the last training of this engine and model here; where there was none, from a moment's sampling.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from osmosis_ai.errors import OsmosisError
from osmosis_ai.evaluation.atomic import json_bytes, write_atomic

from osmosis_trainer.engine.protocol import Capabilities, PolicyEngine
from osmosis_trainer.engine.sampler import SampleRequest
from osmosis_trainer.loop.config import TrainingConfig
from osmosis_trainer.loop.lines import read_lines
from osmosis_trainer.loop.order import DataOrder

_SPEEDS = ".speeds.json"
# Steps at the end of a training whose speed is recorded.
_RECORDED = 20
# Where no training was before: tokens of a rollout, and what its agent, grader and calls cost beside them.
_GUESSED_TOKENS = 64
_HTTP_S = 0.015
# A model with fewer parameters draws 32 answers in a moment.
_SMALL = 20_000_000


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """What a training will take.

    Attributes:
        rows: Rows trained on.
        validation_rows: Rows held out.
        rows_per_step: Of a full step.
        steps: Of the whole training.
        done: Steps trained before.
        rollouts: Still to be carried out, validation included, refills not.
        refill_rollouts: At most so many more.
        tokens: Expected to be drawn; None where nothing is known yet.
        seconds: Expected; None where nothing is known yet.
        assumed: Whether they are guessed from a moment's sampling, for want of an earlier training here.
        cost_usd: Of the model's calls: the engine runs here.
    """

    rows: int
    validation_rows: int
    rows_per_step: int
    steps: int
    done: int
    rollouts: int
    refill_rollouts: int
    tokens: int | None
    seconds: float | None
    assumed: bool = False
    cost_usd: float = 0.0


def make_plan(
    config: TrainingConfig,
    order: DataOrder,
    held_out: Sequence[int],
    *,
    steps: int,
    done: int,
    root: Path,
    engine: PolicyEngine,
) -> TrainingPlan:
    """Plan what is left of a training."""
    left = range(done, steps)
    rows = sum(len(order.step_rows(step)) for step in left)
    training = rows * config.n_samples_per_prompt
    passes = 0
    if held_out and left:
        due = {0} if done == 0 else set()
        due |= {step + 1 for step in left if config.eval_interval and (step + 1) % config.eval_interval == 0}
        passes = len(due | {steps})
    rollouts = training + passes * len(held_out) * config.validation_samples
    recorded = _speeds(root).get(_key(engine.capabilities))
    speed = recorded or _measured(engine, config)
    tokens = seconds = None
    if speed is not None:
        tokens = int(rollouts * min(speed["tokens_per_rollout"], config.max_response_length))
        seconds = rollouts * speed["seconds_per_rollout"]
    return TrainingPlan(
        rows=len(order.rows),
        validation_rows=len(held_out),
        rows_per_step=order.size,
        steps=steps,
        done=done,
        rollouts=rollouts,
        refill_rollouts=int(config.refill_limit * rows) * config.n_samples_per_prompt,
        tokens=tokens,
        seconds=seconds,
        assumed=recorded is None and speed is not None,
    )


def record_speed(root: Path, engine: Capabilities, run_dir: Path) -> None:
    """Remember how fast a training's last steps were, for the next plan; losing it does not matter."""
    lines = [line for line in read_lines(run_dir / "metrics.jsonl") if line.get("kind") == "training"][-_RECORDED:]
    samples = sum(line.get("samples", 0.0) for line in lines)
    if not samples:
        return
    speeds = _speeds(root)
    speeds[_key(engine)] = {
        "tokens_per_rollout": sum(line.get("response_length", 0.0) * line["samples"] for line in lines) / samples,
        "seconds_per_rollout": sum(line.get("step_s", 0.0) for line in lines) / samples,
    }
    try:
        write_atomic(root / _SPEEDS, json_bytes(speeds), durable=False)
    except OsmosisError:
        return


def _key(engine: Capabilities) -> str:
    return f"{engine.engine} {engine.device} {engine.base}"


def _measured(engine: PolicyEngine, config: TrainingConfig) -> dict[str, float] | None:
    """Sample for a moment and guess the rest: a rollout of so many tokens, trained for half as long as it is drawn."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        return None  # nobody can wait here
    length = min(_GUESSED_TOKENS, config.max_response_length)
    count = 32 if engine.capabilities.parameters < _SMALL else 2

    async def answer(number: int) -> None:
        request = SampleRequest(
            session=f"speed {number}",
            version=engine.capabilities.base,
            prompt=[number % engine.capabilities.vocab_size] * 8,
            max_tokens=min(16, engine.capabilities.context - 8),
            stop_ids=frozenset(),
            noise_key=number,
        )
        async for _ in engine.sample(request):
            pass
        engine.forget(request.session)

    async def moment() -> float:
        began = time.monotonic()
        await asyncio.gather(*(answer(number) for number in range(count)))
        return time.monotonic() - began

    seconds = asyncio.run(moment()) / (count * 16) * length
    return {"tokens_per_rollout": float(length), "seconds_per_rollout": 1.5 * seconds + _HTTP_S}


def _speeds(root: Path) -> dict[str, dict[str, float]]:
    try:
        found = json.loads((root / _SPEEDS).read_bytes())
        return {name: {key: float(value) for key, value in speed.items()} for name, speed in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
