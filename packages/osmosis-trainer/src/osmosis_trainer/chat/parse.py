r"""The model's text to OpenAI deltas: content as it comes, tool calls once they are whole.

The form is `<tool_call>\n{"name": ..., "arguments": {...}}\n</tool_call>`, several in a row for parallel calls. What
cannot be read as a call stays content, word for word, and is counted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

OPEN, CLOSE = "<tool_call>", "</tool_call>"

type Delta = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """A tool call the model made; `arguments` is JSON text."""

    name: str
    arguments: str


class AnswerParser:
    """Reads an answer that comes in pieces.

    Args:
        call_id: Gives the id of the n-th call.
        calls_allowed: False reads everything as content: the caller offered no tools.
    """

    def __init__(self, call_id: Callable[[int], str], *, calls_allowed: bool = True) -> None:
        self._call_id = call_id
        self._calls_allowed = calls_allowed
        self._pending = ""
        self._inside = False
        self._content: list[str] = []
        self.calls: list[ParsedCall] = []
        self.unparsed = 0

    @property
    def content(self) -> str:
        """All text given as content so far."""
        return "".join(self._content)

    def push(self, text: str) -> list[Delta]:
        """Read more text; gives the deltas that are certain now."""
        if not self._calls_allowed:
            deltas: list[Delta] = []
            self._say(text, deltas)
            return deltas
        self._pending += text
        return self._read(final=False)

    def end(self) -> list[Delta]:
        """Read what is left; a call without its end becomes content."""
        return self._read(final=True)

    def _read(self, *, final: bool) -> list[Delta]:
        deltas: list[Delta] = []
        while True:
            if not self._inside:
                before, tag, after = self._pending.partition(OPEN)
                if tag:
                    self._say(before, deltas)
                    self._pending, self._inside = after, True
                    continue
                keep = 0 if final else _partial_tag(self._pending)
                self._say(self._pending[: len(self._pending) - keep], deltas)
                self._pending = self._pending[len(self._pending) - keep :]
                return deltas
            body, tag, after = self._pending.partition(CLOSE)
            if not tag and not final:
                return deltas
            self._pending, self._inside = after, False
            call = parse_call(body) if tag else None
            if call is None:
                self.unparsed += 1
                self._say(OPEN + body + tag, deltas)
            else:
                deltas.append(self._called(call))

    def _say(self, text: str, deltas: list[Delta]) -> None:
        if text:
            self._content.append(text)
            deltas.append({"content": text})

    def _called(self, call: ParsedCall) -> Delta:
        index = len(self.calls)
        self.calls.append(call)
        function = {"name": call.name, "arguments": call.arguments}
        return {"tool_calls": [{"index": index, "id": self._call_id(index), "type": "function", "function": function}]}


def parse_call(body: str) -> ParsedCall | None:
    """Read the JSON between the tags; None when it is no call."""
    try:
        call = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(call, dict) or not isinstance(call.get("name"), str) or not call["name"]:
        return None
    arguments = call.get("arguments", {})
    if not isinstance(arguments, dict):
        return None
    return ParsedCall(call["name"], json.dumps(arguments, ensure_ascii=False))


def _partial_tag(text: str) -> int:
    """Give the length of the text's end that may be the start of an opening tag."""
    for length in range(min(len(OPEN) - 1, len(text)), 0, -1):
        if OPEN.startswith(text[-length:]):
            return length
    return 0


class StopTexts:
    """Ends an answer before the first of some texts, which may come split over pieces.

    Args:
        stops: The texts; none of them empty.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._held_back = max(map(len, stops), default=1) - 1
        self._pending = ""
        self.found = False

    def push(self, text: str) -> str:
        """Give the text that certainly comes before any stop; nothing once one was found."""
        self._pending += text
        places = [place for stop in self._stops if (place := self._pending.find(stop)) >= 0]
        if places:
            self.found = True
            return self._pending[: min(places)]
        safe = max(0, len(self._pending) - self._held_back)
        given, self._pending = self._pending[:safe], self._pending[safe:]
        return given

    def end(self) -> str:
        """Give what was held back."""
        return "" if self.found else self._pending
