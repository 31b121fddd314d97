"""The bearer gate in front of every route of the rollout server."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

type Scope = MutableMapping[str, Any]
type Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
type Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
type ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]

_BODY = b'{"detail":"unauthorized"}'


class BearerGate:
    """ASGI middleware: without `Authorization: Bearer <key>` every request is answered 401.

    Args:
        app: What lies behind the gate.
        api_key: The key; it is compared in constant time.
    """

    def __init__(self, app: ASGIApp, *, api_key: str) -> None:
        self._app = app
        self._expected = f"Bearer {api_key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the lifespan and authorised requests through."""
        if scope["type"] == "lifespan" or self._admits(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            headers = [
                (b"content-type", b"application/json"),
                (b"content-length", str(len(_BODY)).encode()),
                (b"www-authenticate", b"Bearer"),
            ]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": _BODY})
        else:
            await send({"type": "websocket.close", "code": 1008})

    def _admits(self, scope: Scope) -> bool:
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        return hmac.compare_digest(given, self._expected)
