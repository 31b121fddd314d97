"""Takes a model's thinking apart from its answer: `<think>` ... `</think>` at the answer's beginning.

Only for models whose template writes these tags; for all others they are text like any other. What follows is
`chat.parse`'s.
"""

from __future__ import annotations

from dataclasses import dataclass

OPEN, CLOSE = "<think>", "</think>"


@dataclass(frozen=True, slots=True)
class Part:
    """Some text of an answer."""

    text: str
    thinking: bool


class Thinking:
    """Reads an answer that comes in pieces.

    Args:
        expected: Whether the model thinks; without it everything is answer.
        begun: Whether the prompt ends inside the opening tag already.
    """

    def __init__(self, *, expected: bool, begun: bool = False) -> None:
        self._pending = ""
        self._state = "inside" if expected and begun else "before" if expected else "after"
        self._strip = self._state == "inside"

    @property
    def unfinished(self) -> bool:
        """Whether the answer stopped while it thought."""
        return self._state == "inside"

    def push(self, text: str) -> list[Part]:
        """Read more text; gives what is certain now."""
        self._pending += text
        return self._read(final=False)

    def end(self) -> list[Part]:
        """Read what is left; thinking without its end stays thinking."""
        return self._read(final=True)

    def _read(self, *, final: bool) -> list[Part]:
        parts: list[Part] = []
        if self._state == "before":
            start = self._pending.lstrip()
            if start.startswith(OPEN):
                self._pending, self._state, self._strip = start[len(OPEN) :], "inside", True
            elif final or not OPEN.startswith(start):
                self._state = "after"
        if self._state == "inside":
            if self._strip:
                self._pending = self._pending.lstrip("\n")
                self._strip = not self._pending
            thought, tag, after = self._pending.partition(CLOSE)
            if tag:
                self._state, self._pending = "after", after
            else:
                keep = 0 if final else _held_back(thought)
                thought, self._pending = thought[: len(thought) - keep], thought[len(thought) - keep :]
            if thought:
                parts.append(Part(thought, True))
        if self._state == "after" and self._pending:
            parts.append(Part(self._pending, False))
            self._pending = ""
        return parts


def _held_back(text: str) -> int:
    """The length of the text's end that may be the start of the closing tag."""
    for length in range(min(len(CLOSE) - 1, len(text)), 0, -1):
        if CLOSE.startswith(text[-length:]):
            return length
    return 0
