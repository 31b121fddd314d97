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
    if secrets:
        text = Redactor(secret for secret in secrets if len(secret) >= SHORTEST_SECRET).text(text)
    return _URL_WITH_QUERY.sub(lambda url: f"{url[1]}?{MARK}" if _SIGNED.search(url[0]) else url[0], text)


def redact_value(value: Any, secrets: Collection[str] = ()) -> Any:
    """A JSON value without secrets, in its keys too; whatever stands under a key that names a secret is cut out."""
    if isinstance(value, str):
        return redact_text(value, secrets)
    if isinstance(value, dict):
        return {
            redact_text(str(key), secrets): MARK
            if str(key).lower() in _SECRET_KEYS and value[key] is not None
            else redact_value(value[key], secrets)
            for key in value
        }
    if isinstance(value, list | tuple):
        return [redact_value(item, secrets) for item in value]
    return value


def redact_error[Error: OsmosisError](error: Error, secrets: Collection[str]) -> Error:
    """The same error without secrets in its message and details."""
    error.message = redact_text(error.message, secrets)
    error.args = (error.message,)
    error.details = redact_value(error.details, secrets)
    return error
