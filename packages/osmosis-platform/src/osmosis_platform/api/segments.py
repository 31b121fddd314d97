"""Path segments that hold an encoded slash: `Qwen%2FQwen3-8B` is one segment, though servers decode it into two.

The middleware keeps such slashes as a private character while routing; `Segment` gives the text back to the route.
"""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import unquote_to_bytes

from pydantic import AfterValidator
from starlette.types import ASGIApp, Receive, Scope, Send

_SLASH = "\ue02f"
_ENCODED = re.compile(rb"%2f", re.IGNORECASE)

type Segment = Annotated[str, AfterValidator(lambda text: text.replace(_SLASH, "/"))]


class KeepEncodedSlashes:
    """ASGI middleware that routes on the raw path (platform-api.md 20.1)."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Rewrites the path of requests that hold an encoded slash."""
        raw: bytes = scope.get("raw_path") or b""
        if scope["type"] == "http" and _ENCODED.search(raw):
            kept = _ENCODED.sub(_SLASH.encode(), raw.split(b"?", 1)[0])
            scope = {**scope, "path": unquote_to_bytes(kept).decode("utf-8", "replace")}
        await self.app(scope, receive, send)
