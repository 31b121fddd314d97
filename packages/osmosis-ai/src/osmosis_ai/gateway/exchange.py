"""One HTTP exchange on ASGI: reading a bounded body, writing the reply, noticing that the caller hung up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from osmosis_ai.gateway.policy import PolicyError

type Scope = MutableMapping[str, Any]
type Message = MutableMapping[str, Any]
type Receive = Callable[[], Awaitable[Message]]
type Send = Callable[[Message], Awaitable[None]]

JSON_HEADERS = [(b"content-type", b"application/json")]
STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
# the gateway has retried already: this keeps the openai client from doing it again
_NO_RETRY = [(b"x-should-retry", b"false")]


class HungUpError(Exception):
    """The caller went away before its request was whole."""


class Wire:
    """The reply side of one HTTP exchange, and how long it has been silent."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._clock = asyncio.get_running_loop().time
        self._spoke_at = self._clock()
        self.started = False

    @property
    def silent_s(self) -> float:
        """Seconds since something was written."""
        return self._clock() - self._spoke_at

    async def start(self, headers: list[tuple[bytes, bytes]], status: int = 200) -> None:
        """Commit to a status and headers."""
        self.started = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def body(self, data: bytes, *, last: bool = False) -> None:
        """Write a part of the body, or the last one."""
        self._spoke_at = self._clock()
        await self._send({"type": "http.response.body", "body": data, "more_body": not last})

    async def reply(self, status: int, data: bytes) -> None:
        """Write a whole JSON reply."""
        length = (b"content-length", str(len(data)).encode())
        await self.start([*JSON_HEADERS, length, *_NO_RETRY] if status >= 400 else [*JSON_HEADERS, length], status)
        await self.body(data, last=True)


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The request body.

    Raises:
        PolicyError: With status 413, as soon as the body is known to be too large.
        HungUpError: The caller went away.
    """
    parts: list[bytes] = []
    size = 0
    declared = next((int(v) for n, v in scope["headers"] if n == b"content-length" and v.isdigit()), 0)
    more = declared <= limit
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise HungUpError
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            break
        parts.append(part)
        more = message.get("more_body", False)
    if max(size, declared) > limit:
        raise PolicyError(
            f"the request body is larger than {limit} bytes",
            kind="bad_request",
            status=413,
            type="invalid_request_error",
            provider_code="request_too_large",
        )
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def hang_up(receive: Receive) -> None:
    """Returns when the caller hangs up."""
    while (await receive())["type"] != "http.disconnect":
        pass
