"""Object URLs of the files backend: what each is good for, signed. `<base>/_blob/v1/<claims>.<hmac>`."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Literal

from osmosis_platform.clock import Clock
from osmosis_platform.errors import ForbiddenError

PREFIX = "/_blob/v1/"
_CONTEXT = b"osmosis blob url v1\n"
_MAX_TEXT = 4096


@dataclass(frozen=True, slots=True)
class Claims:
    """What one URL allows.

    Attributes:
        method: GET (HEAD included) or PUT.
        key: Of the object.
        expires_at: Seconds since 1970.
        size_bytes: Exact length of the body of a PUT.
        content_type: That a PUT must name, if it must.
        upload_id: Of a PUT.
        part: Of a PUT, from 1.
        file_name: How a GET calls what it downloads.
        id: Makes each URL another one.
    """

    method: Literal["GET", "PUT"]
    key: str
    expires_at: int
    size_bytes: int | None = None
    content_type: str | None = None
    upload_id: str | None = None
    part: int | None = None
    file_name: str | None = None
    id: str = ""


class UrlSigner:
    """Makes and reads signed claims.

    Args:
        key: Gives 32 bytes or more, when first needed.
        clock: The time of day.
    """

    def __init__(self, key: Callable[[], bytes], clock: Clock) -> None:
        self._make_key = key
        self._clock = clock

    @cached_property
    def _key(self) -> bytes:
        return self._make_key()

    def now(self) -> datetime:
        """The time of day that expiry is judged by."""
        return self._clock()

    def sign(self, claims: Claims) -> str:
        """The path segment behind `PREFIX`."""
        values = {name: getattr(claims, name) for name in Claims.__slots__}
        values["id"] = secrets.token_urlsafe(9)
        facts = {name: value for name, value in values.items() if value is not None}
        text = _encode(json.dumps(facts, separators=(",", ":"), ensure_ascii=False).encode())
        return f"{text}.{self._mac(text)}"

    def read(self, signed: str) -> Claims:
        """The claims of a URL that we made and that still counts.

        Raises:
            ForbiddenError: `BLOB_URL_INVALID`: not ours, or altered; `BLOB_URL_EXPIRED`: too old.
        """
        text, _, mac = signed.partition(".")
        if len(signed) > _MAX_TEXT or not hmac.compare_digest(mac.encode("utf-8", "replace"), self._mac(text).encode()):
            message = "This object URL is not one of this platform, or it was altered. Ask for a new one."
            raise ForbiddenError(message, code="BLOB_URL_INVALID")
        try:
            claims = Claims(**json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))))
        except (ValueError, TypeError, binascii.Error) as error:  # signed by another version
            raise ForbiddenError(
                "This object URL is not understood. Ask for a new one.", code="BLOB_URL_INVALID"
            ) from error
        if self._clock().timestamp() >= claims.expires_at:
            raise ForbiddenError("This object URL has expired. Ask for a new one.", code="BLOB_URL_EXPIRED")
        return claims

    def _mac(self, text: str) -> str:
        digest = hmac.digest(self._key, _CONTEXT + text.encode("utf-8", "replace"), hashlib.sha256)
        return _encode(digest)


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
