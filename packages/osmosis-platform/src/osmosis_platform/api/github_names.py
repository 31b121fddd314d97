"""Git requests that name github.com: clients under `osmosis-platform client-env` know our repositories by that host.

Only the published client needs it: it takes no origin of another host. Its Git sends them to us as to a proxy, but we
fetch nothing anywhere: the request is the one for `/git/<owner>/<repo>` of this platform.
"""

from __future__ import annotations

import re

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

_GIT = re.compile(r"/[^/]+/[^/]+/(info/refs|git-upload-pack|git-receive-pack)")


class GithubNames:
    """ASGI middleware that puts such requests under `/git`."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Rewrites the path of Git requests whose host is github.com."""
        if scope["type"] == "http" and _GIT.fullmatch(scope["path"]):
            host = Headers(scope=scope).get("host", "").partition(":")[0]
            if host.lower() == "github.com":
                raw = b"/git" + (scope.get("raw_path") or scope["path"].encode())
                scope = {**scope, "path": f"/git{scope['path']}", "raw_path": raw}
        await self.app(scope, receive, send)
