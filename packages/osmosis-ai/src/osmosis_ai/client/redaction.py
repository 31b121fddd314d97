"""Cuts secrets out of what the platform said: presigned URLs, tokens, and the values that the user supplied.

Owns: what counts as secret in a reply. How a value is found in a text is `osmosis_ai.redaction`'s.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from osmosis_ai.errors import OsmosisError
from osmosis_ai.redaction import MARK, Redactor

SHORTEST_SECRET = 4
"""Shorter values stay: cutting them out of ordinary words would show where they stood, and so what they are."""
_SECRET_KEYS = frozenset({"value", "secret", "secret_value", "token", "access_token"})
_URL_WITH_QUERY = re.compile(r"(https?://[^\s\"'<>?#]+)[?#][^\s\"'<>]*")
_SIGNED = re.compile(r"(?i)(?:sig(?:nature)?|token|expires|credential|x-amz-[a-z-]+|x-goog-[a-z-]+)=")


def redact_text(text: str, secrets: Collection[str] = ()) -> str:
    """Text without the secrets, in any of their forms, and without the queries of signed URLs."""
    return _text(text, _redactor_of(secrets))


def redact_value(value: Any, secrets: Collection[str] = ()) -> Any:
    """A JSON value without secrets, in its keys too; whatever stands under a key that names a secret is cut out."""
    return _value(value, _redactor_of(secrets))


def redact_error[Error: OsmosisError](error: Error, secrets: Collection[str]) -> Error:
    """The same error without secrets in its message and details."""
    redactor = _redactor_of(secrets)
    error.message = _text(error.message, redactor)
    error.args = (error.message,)
    error.details = _value(error.details, redactor)
    return error


def _redactor_of(secrets: Collection[str]) -> Redactor:
    return Redactor(secret for secret in secrets if len(secret) >= SHORTEST_SECRET)


def _text(text: str, redactor: Redactor) -> str:
    text = redactor.text(text)
    return _URL_WITH_QUERY.sub(lambda url: f"{url[1]}?{MARK}" if _SIGNED.search(url[0]) else url[0], text)


def _value(value: Any, redactor: Redactor) -> Any:
    if isinstance(value, str):
        return _text(value, redactor)
    if isinstance(value, dict):
        return {
            _text(str(key), redactor): MARK
            if str(key).lower() in _SECRET_KEYS and value[key] is not None
            else _value(value[key], redactor)
            for key in value
        }
    if isinstance(value, list | tuple):
        return [_value(item, redactor) for item in value]
    return value
