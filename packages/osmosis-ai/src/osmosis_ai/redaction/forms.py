"""How a secret value may look in text: as it is, escaped by JSON or Python, percent-encoded, inside of base64."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote, quote_plus

MIN_ENCODED_CHARS = 8
"""Shorter values are looked for as they are and as JSON escapes them: their other forms occur by chance."""

# What encoders leave as it is: everything reserved, a path, JavaScript's encodeURIComponent and encodeURI.
_KEPT_BY_QUOTERS = ("", "/", "!'()*~", ";,/?:@&=+$-_.!~*'()#")
# Digits of base64 before the first that depends on the value alone, by how many bytes precede it in its group of three.
_MIXED_DIGITS = (0, 2, 3)


def forms_of(value: str) -> frozenset[str]:
    """Every text that stands for a value, also for one that is part of a longer encoded text.

    A value of several lines is also looked for line by line, since logs are; and without the space around it, since
    whoever reads it from a file strips it.

    Args:
        value: The secret; any text.

    Returns:
        Texts to look for. None is empty.
    """
    parts = {value}
    parts.update(part for part in map(str.strip, (value, *value.splitlines())) if len(part) >= MIN_ENCODED_CHARS)
    found: set[str] = set()
    for part in filter(None, parts):
        found |= {part, *_escaped(part)}
        if len(part) >= MIN_ENCODED_CHARS:
            found |= {*_percent_encoded(part), *_base64(part)}
    return frozenset(found)


def _escaped(value: str) -> set[str]:
    """As a JSON text, a JSON text within one, and Python's repr spell it."""
    once = {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    once |= {text.replace("/", "\\/") for text in once}  # as JavaScript and PHP may
    return once | {json.dumps(text)[1:-1] for text in once} | {repr(value)[1:-1]}


def _percent_encoded(value: str) -> set[str]:
    data = _bytes(value)
    upper = {quote(data, safe=kept) for kept in _KEPT_BY_QUOTERS} | {quote_plus(data)}
    return upper | {_lower_escapes(text) for text in upper}


def _lower_escapes(text: str) -> str:
    head, *escapes = text.split("%")
    return "%".join([head, *(escape[:2].lower() + escape[2:] for escape in escapes)])


def _base64(value: str) -> set[str]:
    """The digits that the value alone decides, for each of the three places where it can stand in a longer text."""
    data = _bytes(value)
    found: set[str] = set()
    for before, mixed in enumerate(_MIXED_DIGITS):
        digits = base64.b64encode(bytes(before) + data).decode("ascii")
        whole = digits[mixed : (before + len(data)) * 8 // 6]
        found |= {whole, whole.replace("+", "-").replace("/", "_"), quote(whole, safe="")}
    return found


def _bytes(value: str) -> bytes:
    try:
        return value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return value.encode("utf-8", "surrogatepass")
