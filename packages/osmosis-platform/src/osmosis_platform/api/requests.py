"""What frames every request: an id, the limit of its body, the log line, and the headers that every answer carries."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import structlog
from fastapi import HTTPException
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from osmosis_platform.api.envelope import error_response, shown_path
from osmosis_platform.ids import new_id
from osmosis_platform.settings import Settings

log = structlog.get_logger(__name__)

# Bodies that are streamed and limited by their own routes.
STREAMED = ("/_blob/", "/git/")


type Note = Callable[[Scope, int, float], None]
"""Told of each request when it is over: its scope, the status, the seconds."""


class _BodyTooLargeError(HTTPException):
    """Of HTTP's kind, which frameworks let through while they read a body; others become a 400."""

    def __init__(self, limit: int) -> None:
        super().__init__(413, f"The body is over the limit of {limit} bytes.")


class RequestFrame:
    """ASGI middleware around everything."""

    def __init__(self, app: ASGIApp, settings: Settings, note: Note) -> None:
        self.app = app
        self._note = note
        self.limit = settings.max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Frames one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = new_id("rq")
        scope.setdefault("state", {})["request_id"] = request_id
        started = time.perf_counter()
        status = 500

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"] = request_id
                headers.setdefault("X-Content-Type-Options", "nosniff")
                headers.setdefault("Referrer-Policy", "no-referrer")
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        streamed = scope["path"].startswith(STREAMED)
        try:
            if not streamed and self._declared(scope) > self.limit:
                raise _BodyTooLargeError(self.limit)
            await self.app(scope, receive if streamed else self._limited(receive), answer)
        except _BodyTooLargeError as error:
            await error_response(413, "TOO_LARGE", error.detail)(scope, receive, answer)
        finally:
            took_s = time.perf_counter() - started
            facts: dict[str, Any] = {"method": scope["method"], "path": shown_path(scope["path"]), "status": status}
            log.info("request", **facts, ms=round(took_s * 1000, 1), request_id=request_id)
            self._note(scope, status, took_s)

    @staticmethod
    def _declared(scope: Scope) -> int:
        text = Headers(scope=scope).get("content-length", "0")
        return int(text) if text.isascii() and text.isdigit() else 0

    def _limited(self, receive: Receive) -> Receive:
        seen = 0

        async def take() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self.limit:
                raise _BodyTooLargeError(self.limit)
            return message

        return take
