"""Finding secrets in texts and JSON values and putting a mark in their place.

A substring search for each form, the texts of a batch joined: with 31 secrets in 127 forms on lines of 120 characters it
takes 2 us a line; one compiled expression took 34 us as alternatives and 11 us as a trie, a Rust Aho-Corasick 1.1 us, which
would be a compiled dependency of the SDK. benchmarks/redaction.py repeats the measurement.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from osmosis_ai.consts import ROLLOUT_KEY_PREFIX
from osmosis_ai.redaction.forms import MIN_ENCODED_CHARS, forms_of

if TYPE_CHECKING:
    from osmosis_ai.redaction.stream import RedactingStream

MARK = "[REDACTED]"
_KEY = re.compile(re.escape(ROLLOUT_KEY_PREFIX) + "[0-9a-f]{64}")
_UNFINISHED_KEY = re.compile(re.escape(ROLLOUT_KEY_PREFIX) + r"[0-9a-f]{0,63}\Z")
_KEY_CHARS = len(ROLLOUT_KEY_PREFIX) + 64
_BETWEEN = "\0"  # of joined texts: no form holds one

type Span = tuple[int, int]


class Redactor:
    """Puts `[REDACTED]` in the place of every occurrence of the given values, in any of their forms.

    Values of any length are found as they are, those of 8 characters and more also encoded (see `forms`). The keys of
    rollouts are found by their shape: a run opens one for every attempt. Threads may share a redactor.

    Args:
        values: The secrets; empty ones are ignored.
        mark: What stands in their place.
    """

    def __init__(self, values: Iterable[str] = (), *, mark: str = MARK) -> None:
        self._mark = mark
        self._values: frozenset[str] = frozenset()
        self._forms: tuple[str, ...] = ()
        self._over_lines: tuple[str, ...] = ()
        self.add(*values)

    def add(self, *values: str) -> None:
        """Looks for these values too, from now on; empty ones are ignored."""
        fresh = {value for value in values if value} - self._values
        if not fresh:
            return
        self._values |= fresh
        found = {*self._forms}.union(*map(forms_of, fresh))
        self._over_lines = tuple(form for form in found if "\n" in form)
        self._forms = tuple(sorted(found, key=lambda form: (-len(form), form)))

    def with_values(self, *values: str) -> Redactor:
        """Another redactor that looks for these values too."""
        other = Redactor(mark=self._mark)
        other._values, other._forms, other._over_lines = self._values, self._forms, self._over_lines
        other.add(*values)
        return other

    def text(self, text: str) -> str:
        """The text without the values."""
        return self._cut(text, self._present(text))

    def texts(self, texts: Sequence[str]) -> list[str]:
        """Texts without the values: one search for all of them, so that a hundred clean lines cost little."""
        present = self._present(_BETWEEN.join(texts))
        return [self._cut(text, present) for text in texts] if present else list(texts)

    def value(self, value: Any) -> Any:
        """A JSON value without the values, in its keys too; a number that is one becomes the mark."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.value(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        if isinstance(value, int | float) and not isinstance(value, bool):
            spelled = str(value)
            return self._mark if len(spelled) >= MIN_ENCODED_CHARS and self._present(spelled) else value
        return value

    def stream(self) -> RedactingStream:
        """A redactor of one text that comes in pieces."""
        from osmosis_ai.redaction.stream import RedactingStream

        return RedactingStream(self)

    def settled(self, text: str, *, over: bool = False) -> tuple[str, str]:
        """The beginning of a text that goes on: what of it can be given on, redacted, and the rest as it is.

        Args:
            text: What is there so far.
            over: Nothing follows, so there is no rest.
        """
        present = self._present(text)
        end = len(text) if over else self._unfinished_from(text)
        if not present:
            return text[:end], text[end:]
        if end < len(text):
            for start, after in _merged(_occurrences(text, present)):
                if start < end < after:
                    end = start  # it overlaps with what may be another one
        return self._cut(text[:end], present), text[end:]

    def _unfinished_from(self, text: str) -> int:
        """From where on the end of a text may be the beginning of a value; the text's length for nowhere."""
        first = len(text)
        if not text:
            return first
        unfinished = _UNFINISHED_KEY.search(text, max(0, first - _KEY_CHARS))
        if unfinished is not None:
            first = unfinished.start()
        # Most pieces end with a line: then only a form that goes over lines can have begun.
        forms = self._over_lines if text[-1] == "\n" else (*self._forms, ROLLOUT_KEY_PREFIX)
        for form in forms:
            at = max(0, len(text) - len(form) + 1)
            while (at := text.find(form[0], at, first)) >= 0:
                if form[len(text) - at - 1] == text[-1] and form.startswith(text[at:]):
                    first = at
                    break
                at += 1
        return first

    def _present(self, text: str) -> list[str]:
        """The forms that are in the text, and the prefix of rollouts' keys if that is."""
        found = [form for form in self._forms if form in text]
        if ROLLOUT_KEY_PREFIX in text:
            found.append(ROLLOUT_KEY_PREFIX)
        return found

    def _cut(self, text: str, present: Sequence[str]) -> str:
        if not present:
            return text
        parts, end = [], 0
        for start, after in _merged(_occurrences(text, present)):
            parts += [text[end:start], self._mark]
            end = after
        return "".join([*parts, text[end:]])


def _occurrences(text: str, present: Iterable[str]) -> list[Span]:
    found: list[Span] = []
    for form in present:
        if form == ROLLOUT_KEY_PREFIX:
            found += (match.span() for match in _KEY.finditer(text))
            continue
        at = text.find(form)
        while at >= 0:
            found.append((at, at + len(form)))
            at = text.find(form, at + len(form))
    return found


def _merged(spans: Iterable[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
