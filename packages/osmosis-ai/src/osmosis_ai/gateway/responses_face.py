"""How an answer looks on the Responses route: one object, or its events. Pure; `responses_input` reads the calls."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from typing import Any

from osmosis_ai.gateway.assembly import Assembly
from osmosis_ai.gateway.chat_face import DONE, PING, compact_json, error_body
from osmosis_ai.gateway.policy import PolicyError, Usage

_ECHOED = ("instructions", "temperature", "top_p", "max_output_tokens", "metadata", "text", "reasoning", "truncation")


def _usage_json(usage: Usage | None) -> dict[str, Any] | None:
    if usage is None:
        return None
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_prompt_tokens or 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0},
        "total_tokens": usage.total_tokens,
    }


class ResponsesFace:
    """One reply of the Responses route.

    Args:
        model: Echoed in the reply.
        body: The request; its settings are echoed too.
    """

    def __init__(self, model: str, body: Mapping[str, Any]) -> None:
        self._items: list[dict[str, Any]] = []
        self._texts: dict[int, list[str]] = {}
        self._calls: dict[int, int] = {}
        self._speaking: int | None = None
        self._sequence = 0
        self._base: dict[str, Any] = {
            "id": f"resp_{secrets.token_hex(16)}",
            "object": "response",
            "created_at": int(time.time()),
            "model": model,
            "error": None,
            "incomplete_details": None,
            "parallel_tool_calls": body.get("parallel_tool_calls", True),
            "tool_choice": body.get("tool_choice") or "auto",
            "tools": body.get("tools") or [],
            "store": False,
            **{name: body.get(name) for name in _ECHOED},
        }

    def whole(self, assembly: Assembly) -> bytes:
        """The JSON reply."""
        message = assembly.message()
        calls = message.pop("tool_calls", [])
        self.piece({k: v for k, v in message.items() if v})
        self.piece({"tool_calls": [{"index": i, **call} for i, call in enumerate(calls)]})
        self._close_all()
        return compact_json(self._finished(assembly))

    def opening(self) -> bytes:
        """What a stream starts with."""
        response = {**self._base, "status": "in_progress", "output": [], "usage": None}
        return (
            PING
            + self._event("response.created", response=response)
            + self._event("response.in_progress", response=response)
        )

    def piece(self, delta: dict[str, Any]) -> bytes:
        """The events of one chat delta."""
        events = b""
        if delta.get("reasoning_content"):
            events += self._reasoning(delta["reasoning_content"])
        if delta.get("content"):
            events += self._text(delta["content"])
        if delta.get("refusal"):
            events += self._text(delta["refusal"])
        for fragment in delta.get("tool_calls") or ():
            events += self._call(fragment)
        return events

    def closing(self, assembly: Assembly) -> bytes:
        """The end of a stream: open items done, then the whole response."""
        events = self._close_all()
        response = self._finished(assembly)
        kind = "response.completed" if response["status"] == "completed" else "response.incomplete"
        return events + self._event(kind, response=response) + DONE

    def failure(self, error: PolicyError) -> bytes:
        """The end of a stream that failed."""
        body = error_body(error)
        event = {"type": "error", "message": body["error"]["message"], "code": body["error"]["code"], "param": None}
        event |= {"sequence_number": self._sequence, **body}
        return b"event: error\ndata: " + compact_json(event) + b"\n\n" + DONE

    def _finished(self, assembly: Assembly) -> dict[str, Any]:
        cause = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(assembly.finish_reason or "")
        return {
            **self._base,
            "status": "incomplete" if cause else "completed",
            "incomplete_details": {"reason": cause} if cause else None,
            "output": self._items,
            "usage": _usage_json(assembly.usage),
        }

    # -- items and their events

    def _reasoning(self, text: str) -> bytes:
        events = b""
        position = self._speaking
        if position is None or self._items[position]["type"] != "reasoning":
            events = self._close_speaking()
            item = {"type": "reasoning", "id": f"rs_{secrets.token_hex(12)}", "summary": []}
            position, event = self._added(item)
            part = {"type": "summary_text", "text": ""}
            events += event + self._on("response.reasoning_summary_part.added", position, summary_index=0, part=part)
        self._texts[position].append(text)
        return events + self._on("response.reasoning_summary_text.delta", position, summary_index=0, delta=text)

    def _text(self, text: str) -> bytes:
        events = b""
        position = self._speaking
        if position is None or self._items[position]["type"] != "message":
            events = self._close_speaking()
            item: dict[str, Any] = {"type": "message", "id": f"msg_{secrets.token_hex(12)}", "role": "assistant"}
            position, event = self._added(item | {"status": "in_progress", "content": []})
            part = {"type": "output_text", "text": "", "annotations": []}
            events += event + self._on("response.content_part.added", position, content_index=0, part=part)
        self._texts[position].append(text)
        return events + self._on("response.output_text.delta", position, content_index=0, delta=text, logprobs=[])

    def _call(self, fragment: Mapping[str, Any]) -> bytes:
        function = fragment.get("function") or {}
        index = fragment["index"]
        events = b""
        if index not in self._calls:
            events = self._close_speaking()
            item = {
                "type": "function_call",
                "id": f"fc_{secrets.token_hex(12)}",
                "call_id": fragment.get("id"),
                "name": function.get("name"),
                "arguments": "",
                "status": "in_progress",
            }
            self._calls[index], event = self._added(item)
            self._speaking = None
            events += event
        position = self._calls[index]
        arguments = function.get("arguments")
        if arguments:
            self._texts[position].append(arguments)
            events += self._on("response.function_call_arguments.delta", position, delta=arguments)
        return events

    def _added(self, item: dict[str, Any]) -> tuple[int, bytes]:
        position = len(self._items)
        event = self._event("response.output_item.added", output_index=position, item=item)
        self._items.append(item)
        self._texts[position] = []
        self._speaking = position
        return position, event

    def _close_speaking(self) -> bytes:
        position, self._speaking = self._speaking, None
        return b"" if position is None else self._done(position)

    def _close_all(self) -> bytes:
        return self._close_speaking() + b"".join(self._done(position) for position in self._calls.values())

    def _done(self, position: int) -> bytes:
        item = self._items[position]
        text = "".join(self._texts.pop(position))
        events = b""
        if item["type"] == "message":
            part = {"type": "output_text", "text": text, "annotations": []}
            item |= {"status": "completed", "content": [part]}
            events += self._on("response.output_text.done", position, content_index=0, text=text, logprobs=[])
            events += self._on("response.content_part.done", position, content_index=0, part=part)
        elif item["type"] == "reasoning":
            part = {"type": "summary_text", "text": text}
            item["summary"] = [part]
            events += self._on("response.reasoning_summary_text.done", position, summary_index=0, text=text)
            events += self._on("response.reasoning_summary_part.done", position, summary_index=0, part=part)
        else:
            item |= {"arguments": text, "status": "completed"}
            name = item["name"]
            events += self._on("response.function_call_arguments.done", position, name=name, arguments=text)
        return events + self._event("response.output_item.done", output_index=position, item=item)

    def _on(self, kind: str, position: int, **fields: Any) -> bytes:
        return self._event(kind, item_id=self._items[position]["id"], output_index=position, **fields)

    def _event(self, kind: str, **fields: Any) -> bytes:
        event = {"type": kind, "sequence_number": self._sequence, **fields}
        self._sequence += 1
        return b"event: " + kind.encode() + b"\ndata: " + compact_json(event) + b"\n\n"
