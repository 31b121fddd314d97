"""The thinking of tool-call turns, remembered for one rollout and given back when the client dropped it.

Reasoning models want their thinking back together with the tool calls it led to; most agent frameworks do not keep it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from osmosis_ai.gateway.assembly import REASONING_FIELDS


class ReasoningMemory:
    """What the assistant's tool-call turns of one rollout thought, found again by their calls alone."""

    def __init__(self) -> None:
        self._turns: dict[tuple[Any, ...], dict[str, Any]] = {}

    def remember(self, message: Mapping[str, Any]) -> None:
        """Keep the reasoning fields of an answer that calls tools."""
        reasoning = {name: message[name] for name in REASONING_FIELDS if message.get(name)}
        if reasoning and message.get("tool_calls"):
            self._turns[_key(message["tool_calls"])] = reasoning

    def restore(self, messages: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """The history with reasoning put back where a tool-call turn came without any; the input is not changed."""
        if not self._turns:
            return messages
        restored: list[Mapping[str, Any]] | None = None
        for number, message in enumerate(messages):
            calls = message.get("tool_calls")
            if not calls or message.get("role") != "assistant" or any(message.get(f) for f in REASONING_FIELDS):
                continue
            if (reasoning := self._turns.get(_key(calls))) is not None:
                if restored is None:
                    restored = list(messages)
                restored[number] = {**message, **reasoning}
        return messages if restored is None else restored


def _key(calls: Sequence[Mapping[str, Any]]) -> tuple[Any, ...]:
    """Tool calls by id, name and what the arguments say; frameworks parse and rewrite the arguments' text."""
    return tuple((c.get("id"), (c.get("function") or {}).get("name"), _arguments(c)) for c in calls)


def _arguments(call: Mapping[str, Any]) -> str:
    text = (call.get("function") or {}).get("arguments")
    try:
        value = json.loads(text) if isinstance(text, str) and text else (text or {})
        return json.dumps(value, sort_keys=True)
    except (ValueError, TypeError, RecursionError):
        return str(text)
