"""Version negotiation with the command line (platform-api.md 1.6): only what an administrator meant, by the settings."""

from __future__ import annotations

from dataclasses import dataclass

from packaging.version import InvalidVersion, Version
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from osmosis_platform.settings import Settings

_PREFIX = "/api/cli/"
_REMEDY = "Update with `osmosis upgrade`, or `uv tool upgrade osmosis-ai`."


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a client's version means to this platform: a status word of the wire, and a text for its user."""

    status: str
    message: str


def judge(settings: Settings, client: str | None) -> Verdict | None:
    """What to tell a client of a version; None when there is nothing to say, as for versions that are none."""
    rules = (
        (settings.minimum_client, "unsupported", "is not supported by this platform, which needs"),
        (settings.deprecated_client, "deprecated", "will soon not be supported by this platform, which then needs"),
        (settings.recommended_client, "upgrade_available", "works; this platform recommends"),
    )
    if client is None or not any(least for least, _, _ in rules):
        return None
    try:
        version = Version(client)
    except InvalidVersion:
        return None
    for least, status, what in rules:
        if least is not None and version < Version(least):
            return Verdict(status, f"osmosis-ai {version} {what} {least} or newer. {_REMEDY}")
    return None


class VersionNegotiation:
    """ASGI middleware: 426 for clients below the minimum, two headers for those that should move on."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Frames one request."""
        if scope["type"] != "http" or not scope["path"].startswith(_PREFIX):
            await self.app(scope, receive, send)
            return
        verdict = judge(self.settings, Headers(scope=scope).get("x-osmosis-cli-version"))
        if verdict is None:
            await self.app(scope, receive, send)
            return
        if verdict.status == "unsupported":
            body = {"status": verdict.status, "message": verdict.message, "error": verdict.message}
            await JSONResponse({**body, "code": "UPGRADE_REQUIRED"}, 426)(scope, receive, send)
            return

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] < 400:
                headers = MutableHeaders(scope=message)
                headers["X-Osmosis-Version-Status"] = verdict.status
                headers["X-Osmosis-Version-Message"] = verdict.message
            await send(message)

        await self.app(scope, receive, answer)
