"""Strict JSON text of user files: what `json` lets through (NaN, 1e400, lone surrogates, NUL, duplicate keys) is named.

Whether a named oddity is an error or a warning is the caller's business.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_suspicious = re.compile(r"\\u(?:[dD][89a-fA-F]|0000)")
_half_pair = re.compile(r"[\ud800-\udfff]")


class JsonTextError(ValueError):
    """The text is no JSON value that can be stored and sent. `cut_off` tells a text that only ends too early."""

    def __init__(self, message: str = "", *, cut_off: bool = False) -> None:
        super().__init__(message)
        self.cut_off = cut_off


@dataclass(frozen=True, slots=True)
class JsonText:
    """A parsed text: the value, and the object keys that occur twice in one object (the last one won)."""

    value: Any
    duplicate_keys: tuple[str, ...] = ()


def parse_json_text(text: str) -> JsonText:
    """Parse one JSON value.

    Raises:
        JsonTextError: Not JSON, a number no double can hold, or text that UTF-8 or a database cannot store.
    """
    duplicates: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(items)
        if len(result) != len(items):
            seen: set[str] = set()
            for key, _ in items:
                if key in seen and key not in duplicates:
                    duplicates.append(key)
                seen.add(key)
        return result

    try:
        value = json.loads(text, object_pairs_hook=pairs, parse_constant=_refuse_constant, parse_float=_finite_float)
    except json.JSONDecodeError as error:
        cut_off = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string")
        raise JsonTextError(f"{error.msg.removesuffix(' at')} at column {error.pos + 1}", cut_off=cut_off) from None
    except RecursionError:
        raise JsonTextError("it is nested too deeply") from None
    except JsonTextError:
        raise
    except ValueError:  # Python refuses to read integers of thousands of digits
        raise JsonTextError("it holds an integer with more than 4300 digits; write it as text") from None
    if "\\u" in text and _suspicious.search(text) and (problem := next(text_problems(value), None)):
        raise JsonTextError(problem)
    return JsonText(value, tuple(duplicates))


def walk(value: Any) -> Iterator[tuple[str, Any]]:
    """Every value inside a JSON value with its path (`$.a[0].b`), the value itself first, without recursion."""
    stack: list[tuple[str, Any]] = [("$", value)]
    while stack:
        path, current = stack.pop()
        yield path, current
        if isinstance(current, dict):
            stack.extend((f"{path}.{key}", inner) for key, inner in reversed(current.items()))
        elif isinstance(current, (list, tuple)):
            stack.extend((f"{path}[{index}]", current[index]) for index in range(len(current) - 1, -1, -1))


def text_problems(value: Any) -> Iterator[str]:
    """Name the strings and keys in a JSON value that cannot be stored: NUL characters and half surrogate pairs."""
    for path, current in walk(value):
        texts = current if isinstance(current, dict) else (current,)
        for text in texts:
            if isinstance(text, str) and (problem := text_problem(text)):
                yield f"the text at {printable(path)} {problem}"


def text_problem(text: str) -> str | None:
    """Say why a text cannot be stored as UTF-8 in a file or database, or None."""
    if "\0" in text:
        return "holds a NUL character (\\u0000); remove it"
    if text.isascii():
        return None
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return f"holds half a surrogate pair (\\u{ord(text[error.start]):04x}); write the whole character"
    return None


def printable(text: str) -> str:
    """The text with everything UTF-8 cannot hold written as an escape."""
    return text.encode("utf-8", "backslashreplace").decode()


def encode_json(text: str) -> bytes:
    """JSON text as UTF-8; half surrogate pairs in its strings become readable text (a backslash, u, the number)."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return _half_pair.sub(lambda match: f"\\\\u{ord(match[0]):04x}", text).encode()


def _refuse_constant(token: str) -> None:
    raise JsonTextError(f"{token} is not JSON; leave the value out or write null")


def _finite_float(token: str) -> float:
    number = float(token)
    if math.isinf(number):
        raise JsonTextError(f"the number {token[:40]} is past the range of a double; write it as text")
    return number
