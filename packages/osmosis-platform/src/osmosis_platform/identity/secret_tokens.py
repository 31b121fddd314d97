"""How secret texts look: `osm_<kind>[_<id>]_<random base62>_<crc>`; only their SHA-256 is ever stored.

The kind tells people and secret scanners what they found, the checksum tells a typing error without a look into the
database, and an id, where there is one, finds the row.
"""

from __future__ import annotations

import re
import secrets
import zlib
from dataclasses import dataclass
from hashlib import sha256

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_RANDOM_DIGITS = 43  # 62**43 > 2**256
_CRC_DIGITS = 6  # 62**6 > 2**32
_SECRET = re.compile(
    rf"osm_([a-z]{{3}})_(?:([0-9a-hjkmnp-tv-z]{{26}})_)?([0-9A-Za-z]{{{_RANDOM_DIGITS}}})_([0-9A-Za-z]{{{_CRC_DIGITS}}})"
)


@dataclass(frozen=True, slots=True)
class SecretName:
    """What a well-formed secret text says of itself: its kind, and the 26 digits of its row's id, if it has one."""

    kind: str
    row: str | None


def new_secret(kind: str, row: str | None = None) -> str:
    """A new secret text with 256 random bits.

    Args:
        kind: Three letters that say what it is for: `pat`, `dev`, `run`, `inv`, `set`.
        row: The 26 digits of an id, for secrets that are found by it.
    """
    random = _base62(int.from_bytes(secrets.token_bytes(32)), _RANDOM_DIGITS)
    body = "_".join(part for part in ("osm", kind, row, random) if part is not None)
    return f"{body}_{_checksum(body)}"


def parse_secret(text: str) -> SecretName | None:
    """What a text says of itself; None when it is no secret of ours, mistyped or cut."""
    found = _SECRET.fullmatch(text)
    if found is None or found[4] != _checksum(text[: -_CRC_DIGITS - 1]):
        return None
    return SecretName(found[1], found[2])


def digest(text: str) -> str:
    """What is stored of a secret: its SHA-256 in hex. The text has 256 random bits, so salt and slowness add nothing."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _checksum(body: str) -> str:
    return _base62(zlib.crc32(body.encode()), _CRC_DIGITS)


def _base62(value: int, digits: int) -> str:
    text = ""
    for _ in range(digits):
        value, digit = divmod(value, 62)
        text = _ALPHABET[digit] + text
    return text
