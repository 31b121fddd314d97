"""One answer put together from its deltas: tidy pieces for the wire as they come, the whole message at the end.

Pure. It mends what providers leave out (indexes and ids of tool calls, the role, arguments that are objects) and joins
what they split; faces decide how the pieces look on the wire.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from osmosis_ai.gateway.policy import ChatDelta, PolicyError, TokenSpan, Usage

REASONING_FIELDS = ("reasoning_content", "thinking_blocks", "reasoning_details")
"""The fields that carry a model's thinking; agents' frameworks often drop them from the history."""

_FINISH_WORDS = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
    "max_tokens": "length",
    "model_length": "length",
    "function_call": "tool_calls",
    "tool_use": "tool_calls",
    "tool_call": "tool_calls",
    "safety": "content_filter",
}


class Assembly:
    """An answer in the making.

    Attributes:
        finish_reason: stop, length, tool_calls or content_filter, once `finish` was called.
        usage: Token counts, when the policy reported them.
        cost_usd: The provider's own price of the call, when it said one.
        tokens: Exact tokens, from an engine only.
    """

    def __init__(self) -> None:
        self.finish_reason: str | None = None
        self.usage: Usage | None = None
        self.cost_usd: float | None = None
        self.tokens: TokenSpan | None = None
        self._seen = False
        self._role_sent = False
        self._texts: dict[str, list[str]] = {}
        self._lists: dict[str, list[Any]] = {}
        self._other: dict[str, Any] = {}
        self._calls: list[dict[str, Any]] = []
        self._arguments: list[list[str]] = []
        self._by_index: dict[int, int] = {}

    def add(self, piece: ChatDelta) -> dict[str, Any]:
        """Take one piece; give what of it goes to the caller: a chat `delta`, empty when it says nothing new."""
        self._seen = True
        if piece.finish_reason is not None:
            self.finish_reason = piece.finish_reason
        if piece.usage is not None:
            self.usage = piece.usage
        if piece.cost_usd is not None:
            self.cost_usd = piece.cost_usd
        if piece.tokens is not None:
            self.tokens = piece.tokens
        wire: dict[str, Any] = {}
        for name, value in piece.delta.items():
            if value is None or name == "role":
                continue
            if name == "reasoning":
                if piece.delta.get("reasoning_content") is not None:
                    continue
                name = "reasoning_content"
            if name == "tool_calls":
                if value:
                    wire[name] = [self._tool_call(fragment) for fragment in value]
            elif isinstance(value, str):
                if value:
                    self._texts.setdefault(name, []).append(value)
                    wire[name] = value
            elif isinstance(value, list):
                if value:
                    self._lists.setdefault(name, []).extend(value)
                    wire[name] = value
            else:
                self._other[name] = value
                wire[name] = value
        if wire and not self._role_sent:
            self._role_sent = True
            wire = {"role": "assistant", **wire}
        return wire

    def finish(self) -> None:
        """Close the answer: settle the finish reason.

        Raises:
            PolicyError: Kind protocol, when no piece came at all.
        """
        if not self._seen:
            raise PolicyError("the model's answer has no choices", kind="protocol")
        reason = _FINISH_WORDS.get(str(self.finish_reason or "").lower())
        if reason is None or (reason == "stop" and self._calls):
            reason = "tool_calls" if self._calls else "stop"
        self.finish_reason = reason

    @property
    def role_sent(self) -> bool:
        """Whether a piece with the role went out."""
        return self._role_sent

    def message(self) -> dict[str, Any]:
        """The whole assistant message; content is a string, empty when the model gave none."""
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._texts.get("content", ()))}
        for name, parts in self._texts.items():
            if name != "content":
                message[name] = "".join(parts)
        for name, items in self._lists.items():
            message[name] = _joined(name, items)
        message.update(self._other)
        if self._calls:
            message["tool_calls"] = [
                {**call, "function": {**call["function"], "arguments": "".join(arguments)}}
                for call, arguments in zip(self._calls, self._arguments, strict=True)
            ]
        return message

    def _tool_call(self, fragment: Mapping[str, Any]) -> dict[str, Any]:
        function = fragment.get("function") or {}
        arguments = function.get("arguments")
        if arguments is None:
            arguments = ""
        elif not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        position = self._position(fragment, function)
        if position < len(self._calls):
            self._arguments[position].append(arguments)
            known = self._calls[position]
            if function.get("name") and not known["function"]["name"]:
                known["function"]["name"] = function["name"]
                return {"index": position, "function": {"name": function["name"], "arguments": arguments}}
            return {"index": position, "function": {"arguments": arguments}}
        call = {
            "id": fragment.get("id") or f"call_{secrets.token_hex(12)}",
            "type": fragment.get("type") or "function",
            "function": {"name": function.get("name") or ""},
        }
        extra = {k: v for k, v in fragment.items() if k not in ("index", "id", "type", "function") and v is not None}
        call.update(extra)
        self._calls.append(call)
        self._arguments.append([arguments])
        return {"index": position, **call, "function": {**call["function"], "arguments": arguments}}

    def _position(self, fragment: Mapping[str, Any], function: Mapping[str, Any]) -> int:
        """Which call a fragment belongs to: by its index, else by its id, else the last one unless it opens a new."""
        fresh = len(self._calls)
        index, call_id = fragment.get("index"), fragment.get("id")
        if isinstance(index, int):
            position = self._by_index.get(index)
            if position is None or (call_id and call_id != self._calls[position]["id"] and function.get("name")):
                # a new index, or a provider that numbers every call 0
                self._by_index[index] = position = fresh
            return position
        if call_id:
            for position, call in enumerate(self._calls):
                if call["id"] == call_id:
                    return position
            return fresh
        return fresh if function.get("name") or not self._calls else fresh - 1


def _joined(name: str, items: Sequence[Any]) -> list[Any]:
    """List fields streamed in fragments, joined: thinking blocks up to their signature, details of one index."""
    joined: list[Any] = []
    for item in items:
        last = joined[-1] if joined else None
        if isinstance(item, Mapping) and isinstance(last, dict) and _continues(name, last, item):
            for key, value in item.items():
                if key in ("text", "thinking", "summary", "data") and isinstance(value, str):
                    last[key] = (last.get(key) or "") + value
                elif value is not None:
                    last[key] = value
        else:
            joined.append(dict(item) if isinstance(item, Mapping) else item)
    return joined


def _continues(name: str, last: Mapping[str, Any], item: Mapping[str, Any]) -> bool:
    if last.get("type") != item.get("type") or last.get("signature"):
        return False
    if name == "thinking_blocks":
        return item.get("type") == "thinking"
    return name == "reasoning_details" and item.get("index") is not None and last.get("index") == item.get("index")
