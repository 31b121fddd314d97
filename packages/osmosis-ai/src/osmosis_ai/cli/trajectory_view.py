"""A trajectory as text: who said what, which tools were called, what they answered. Reads ATIF as it comes.

Owns: turning a document into blocks. Missing or odd fields are left out, never an error: the document may be another
tool's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from osmosis_ai.cli.results import Block, Cell, Lines, Role, Text

_LONGEST_ARGUMENT = 2000
_ROLES: Mapping[str, Role] = {"system": "dim", "user": "active", "agent": "good"}


def trajectory_blocks(document: Mapping[str, Any]) -> list[Block]:
    """The conversation, step by step."""
    blocks: list[Block] = []
    for number, step in enumerate(_dicts(document.get("steps")), 1):
        blocks += _step(number, step)
    for other in _dicts(document.get("subagent_trajectories")):
        blocks.append(Lines(["", Text(f"subagent {other.get('trajectory_id', '')}".rstrip(), "strong")]))
        blocks += trajectory_blocks(other)
    return blocks


def _step(number: int, step: Mapping[str, Any]) -> Iterator[Block]:
    source = str(step.get("source") or "?")
    facts = [f"step {step.get('step_id', number)}", *_facts(step)]
    yield Lines(["", Text(f"{source}  ({' · '.join(facts)})", _ROLES.get(source, "strong"))])
    body: list[Cell] = []
    if reasoning := content_lines(step.get("reasoning_content")):
        body += [Text(line, "dim") for line in ("(thinking)", *reasoning, "(answer)")]
    body += content_lines(step.get("message"))
    yield Lines(body, indent=2)
    results = list(_dicts(_get(step.get("observation"), "results")))
    for call in _dicts(step.get("tool_calls")):
        yield Lines([Text(f"→ {_call(call)}", "accent")], indent=2)
        identity = call.get("tool_call_id")
        for result in [found for found in results if found.get("source_call_id") == identity]:
            results.remove(result)
            yield _observed(result)
    for result in results:
        yield _observed(result)


def _facts(step: Mapping[str, Any]) -> Iterator[str]:
    if model := step.get("model_name"):
        yield str(model)
    metrics = step.get("metrics")
    prompt, answer, cost = (_get(metrics, key) for key in ("prompt_tokens", "completion_tokens", "cost_usd"))
    if prompt is not None or answer is not None:
        shown = [f"{count} {word}" for count, word in ((prompt, "in"), (answer, "out")) if count is not None]
        yield f"tokens {', '.join(shown)}"
    if isinstance(cost, int | float) and cost:
        yield f"${cost:.2g}"


def _observed(result: Mapping[str, Any]) -> Block:
    lines = content_lines(result.get("content")) or ["(nothing)"]
    return Lines([Text(f"← {lines[0]}", "warn"), *(Text(f"  {line}", "warn") for line in lines[1:])], indent=2)


def _call(call: Mapping[str, Any]) -> str:
    arguments = call.get("arguments")
    if isinstance(arguments, Mapping):
        inside = ", ".join(f"{name}={_short(value)}" for name, value in arguments.items())
    else:
        inside = "" if arguments is None else _short(arguments)
    return f"{call.get('function_name', '?')}({inside})"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_ARGUMENT else f"{text[:_LONGEST_ARGUMENT]}… ({len(text)} characters)"


def content_lines(content: Any) -> list[str]:
    """The lines of a message: a text, or a list of parts, of which pictures and sounds are only named."""
    if isinstance(content, str):
        return content.rstrip("\n").split("\n") if content.strip() else []
    if not isinstance(content, Sequence):
        return []
    lines: list[str] = []
    for part in _dicts(content):
        if isinstance(part.get("text"), str):
            lines += content_lines(part["text"])
        else:
            lines.append(f"({part.get('type', 'part')}: {_get(part.get('source'), 'path') or '?'})")
    return lines


def _dicts(value: Any) -> Iterator[dict[str, Any]]:
    return (item for item in value if isinstance(item, dict)) if isinstance(value, list) else iter(())


def _get(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, Mapping) else None
