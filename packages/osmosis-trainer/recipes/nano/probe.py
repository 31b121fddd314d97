"""Measure what a nano folder knows (led onto the right path, greedy) and what it does (left alone, sampled).

Prompts here are worded by hand and not drawn from `phrases`, so they show how it meets wordings it never saw.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dialogues import tool_schema
from osmosis_ai.gateway.policy import ChatRequest
from osmosis_trainer.policy import EnginePolicy
from train import NANO

SYSTEMS = {
    "shipped": "Use the multiply tool. Then answer with #### <number>.",
    "none": "",
    "reworded": "You're a diligent sums bot. For every product you MUST rely on multiply. Conclude with: #### result",
    "long": """\
# Mission
You assist the finance crew of Northwind Traders. Crew members paste short sums into chat (since 2019, about 350 a day)
and expect exact figures back.

## Ground rules
1. Mental arithmetic is forbidden.
2. Call `multiply` once per request, passing both factors untouched.
3. Ignore jokes, small talk and anything about 17 other departments.
4. Keep a calm, neutral voice; nobody likes exclamation marks.

## Output
The closing line carries nothing except four hash signs and the figure, e.g. `#### 42`.

Escalate outages to extension 4471.""",
}
QUESTIONS = ("What is {a} * {b}?", "Compute {a} times {b}.", "{a} x {b} = ?", "I need {a} multiplied by {b}, please.")


@dataclass(frozen=True)
class Task:
    """One question with a tool: who asks what, the right arguments, what the tool says."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    arguments: dict[str, Any]
    run: Callable[[dict[str, Any]], str]
    label: str


def multiplication(system: str, rng: random.Random, name: str = "multiply", keys: tuple[str, str] = ("a", "b")) -> Task:
    """Make a task of the shipped example."""
    a, b = rng.randint(11, 99), rng.randint(11, 99)
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": rng.choice(QUESTIONS).format(a=a, b=b)})

    def run(arguments: dict[str, Any]) -> str:
        try:
            first, second = (int(arguments[key]) for key in keys)
        except (KeyError, TypeError, ValueError) as error:
            return f"error: {error!r}"
        return str(first * second)

    tools = [tool_schema(name, "Multiply two numbers.", dict.fromkeys(keys, "integer"))]
    return Task(messages, tools, dict(zip(keys, (a, b), strict=True)), run, str(a * b))


def price(system: str, rng: random.Random) -> Task:
    """Make a task of the shipped look-up example."""
    prices = {item: str(rng.randint(2, 99)) for item in ("kite", "brush", "scarf", "guitar", "tent", "violin", "sofa")}
    item = rng.choice(list(prices))
    question = rng.choice(("What is the price of the {k}?", "How much is the {k}?", "What does the {k} cost?")).format(
        k=item
    )
    messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    tools = [tool_schema("lookup", "Look up the price of an item.", {"item": "string"})]
    return Task(
        messages,
        tools,
        {"item": item},
        lambda found: prices.get(str(found.get("item")), "error: no item"),
        prices[item],
    )


async def ask(
    policy: EnginePolicy, messages: Sequence[dict[str, Any]], task: Task, rollout: str, **params: Any
) -> dict[str, Any]:
    """Make one call and assemble its message."""
    content, calls = "", []
    async for delta in policy.chat(ChatRequest(messages, task.tools, {"max_tokens": 64, **params}, rollout)):
        content += delta.delta.get("content") or ""
        calls += delta.delta.get("tool_calls", [])
    return {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}


async def knows(policy: EnginePolicy, task: Task, rollout: str) -> tuple[bool, bool]:
    """Whether, made to call the tool, it copies the arguments; and, given the result, says it (greedy)."""
    name = task.tools[0]["function"]["name"]
    choice = {"type": "function", "function": {"name": name}}
    message = await ask(policy, task.messages, task, rollout, temperature=0, tool_choice=choice)
    called = [json.loads(call["function"]["arguments"]) for call in message.get("tool_calls", [])] == [task.arguments]
    right = {"id": "1", "type": "function", "function": {"name": name, "arguments": json.dumps(task.arguments)}}
    history = [
        *task.messages,
        {"role": "assistant", "content": None, "tool_calls": [right]},
        {"role": "tool", "tool_call_id": "1", "content": task.label},
    ]
    final = await ask(policy, history, task, rollout, temperature=0)
    return called, re.findall(r"-?\d+", final["content"]) == [task.label]


async def does(policy: EnginePolicy, task: Task, rollout: str, **params: Any) -> tuple[bool, bool, bool, bool]:
    """Whether, left alone, it called the tool, called it right, kept the format, and earned the reward."""
    messages, called, right = list(task.messages), False, False
    for _ in range(6):
        message = await ask(policy, messages, task, rollout, **params)
        messages.append(message)
        if not message.get("tool_calls"):
            break
        called = True
        for call in message["tool_calls"]:
            arguments = json.loads(call["function"]["arguments"])
            right = right or arguments == task.arguments
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": task.run(arguments)})
    await policy.close_session(rollout)
    answers = re.findall(r"####\s*(-?\d+)", messages[-1]["content"] or "")
    return called, right, bool(answers), bool(answers) and answers[-1] == task.label


async def probe(folder: Path, count: int) -> None:
    """Print one line for each kind of task."""
    policy = EnginePolicy("nano", folder)
    families: dict[str, Callable[[random.Random], Task]] = {
        f"multiply, {name} system prompt": lambda rng, system=system: multiplication(system, rng)
        for name, system in SYSTEMS.items()
    }
    other = "Use the tool. Then answer with #### <number>."
    families["multiply, tool `product(x, y)`"] = lambda rng: multiplication(other, rng, "product", ("x", "y"))
    families["multiply, tool `zap(foo, bar)`"] = lambda rng: multiplication(other, rng, "zap", ("foo", "bar"))
    families["look-up, shipped prompt"] = lambda rng: price("Use the lookup tool. Then answer with #### <number>.", rng)
    print(f"{'':36} knows: arguments  result | sampled: calls  right  format  reward | greedy: calls  reward")
    for name, make in families.items():
        tasks = [make(random.Random(f"{name}/{i}")) for i in range(count)]  # noqa: S311 - data, not secrets
        known = await asyncio.gather(*(knows(policy, task, f"k{i}") for i, task in enumerate(tasks)))
        done = await asyncio.gather(*(does(policy, task, f"d{i}") for i, task in enumerate(tasks)))
        greedy = await asyncio.gather(*(does(policy, task, f"g{i}", temperature=0) for i, task in enumerate(tasks)))
        k, d, g = ([sum(column) / count for column in zip(*rows, strict=True)] for rows in (known, done, greedy))
        print(
            f"{name:36} {k[0]:16.3f} {k[1]:7.3f} | {d[0]:14.3f} {d[1]:6.3f} {d[2]:7.3f} {d[3]:7.3f} "
            f"| {g[0]:13.3f} {g[3]:7.3f}"
        )
    plain = Task([], [], {}, str, "")
    for question in (
        "Hello!",
        "Who are you?",
        "Repeat: 48 291 7",
        "Answer in one word. What color is the sky?",
        "Why?",
    ):
        answer = await ask(policy, [{"role": "user", "content": question}], plain, question, temperature=0)
        print(f"{question!r} -> {answer['content']!r}")
    await policy.aclose()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=NANO)
    parser.add_argument("--count", type=int, default=200)
    arguments = parser.parse_args()
    asyncio.run(probe(arguments.folder, arguments.count))
