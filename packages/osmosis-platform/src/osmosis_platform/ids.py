"""Identifiers: a short kind prefix and a UUIDv7 in Crockford base32, so ids sort by time and never look like names."""

from __future__ import annotations

import re
import secrets
import threading
import time

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_ID = re.compile(r"[a-z]{2,4}_[0-9abcdefghjkmnpqrstvwxyz]{26}")

_lock = threading.Lock()
_last_tick = 0


def new_id(kind: str) -> str:
    """A new id such as `ds_01jd8m2x7c9q...`: 26 base32 digits of a UUIDv7, URL-safe.

    The 12 bits after the milliseconds are their fraction (RFC 9562, 6.2, method 3), and no id of a process sorts before
    an earlier one of it: lists are ordered by id.

    Args:
        kind: Two to four lower-case letters naming the table, for example `ds`.
    """
    global _last_tick
    with _lock:
        _last_tick = tick = max(time.time_ns() * 4096 // 1_000_000, _last_tick + 1)
    value = ((tick >> 12) & ((1 << 48) - 1)) << 80
    value |= 0x7 << 76 | (tick & 0xFFF) << 64 | 0b10 << 62 | secrets.randbits(62)
    digits = "".join(_ALPHABET[(value >> shift) & 31] for shift in range(125, -1, -5))
    return f"{kind}_{digits}"


def looks_like_id(text: str) -> bool:
    """Whether a path segment is shaped as one of our ids; such texts are refused as names."""
    return _ID.fullmatch(text) is not None
