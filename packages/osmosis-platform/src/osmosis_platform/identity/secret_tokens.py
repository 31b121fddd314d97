"""The texts of tokens: `osm_<kind>_<random base62>_<crc>`; only their SHA-256 is ever stored."""

from __future__ import annotations

import hashlib
import re
import secrets
import zlib

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_RANDOM_DIGITS = 43  # 256 bits
_TOKEN = re.compile(rf"osm_([a-z]{{3}})_([0-9A-Za-z]{{{_RANDOM_DIGITS}}})_([0-9A-Za-z]{{6}})")


def new_secret(kind: str) -> str:
    """A new token text.

    Args:
        kind: Three letters that say what it is for: `pat`, `dev`, `run`, `ses`, `inv`, `set`.
    """
    body = f"osm_{kind}_{''.join(secrets.choice(_ALPHABET) for _ in range(_RANDOM_DIGITS))}"
    return f"{body}_{_checksum(body)}"


def is_well_formed(text: str) -> bool:
    """Whether a text can be a token at all: a mistyped or cut one is refused without a look into the database."""
    found = _TOKEN.fullmatch(text)
    return found is not None and _checksum(text[: -len(found[3]) - 1]) == found[3]


def digest(text: str) -> str:
    """What is stored of a token: its SHA-256. The text has 256 random bits, so no salt is needed."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _checksum(body: str) -> str:
    value, digits = zlib.crc32(body.encode()), ""
    for _ in range(6):
        value, digit = divmod(value, 62)
        digits = _ALPHABET[digit] + digits
    return digits
