"""Errors as pages, for browsers: the same words as the JSON envelope, which api.envelope made. API paths stay JSON."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response

from osmosis_platform.api.pages.rendering import go_to, page
from osmosis_platform.api.pages.visitors import SignInNeededError, sign_in_address

_MACHINES = ("/api/", "/git/", "/_blob/", "/metrics", "/health")
_HEADINGS = {
    400: "That did not fit",
    401: "Please sign in",
    403: "Not allowed",
    404: "Nothing here",
    405: "Not this way",
    413: "Too large",
    429: "Slower, please",
    500: "Our fault",
    503: "Not now",
    507: "The disk is full",
}


def is_for_people(request: Request) -> bool:
    """Whether a browser asked for a page."""
    path = request.url.path
    return not path.startswith(_MACHINES) and "text/html" in request.headers.get("accept", "")


def install(app: FastAPI) -> None:
    """Puts pages around the envelope's handlers; called after envelope.install."""
    for kind, handler in list(app.exception_handlers.items()):
        app.exception_handlers[kind] = _for_people(handler)  # type: ignore[arg-type]


def _for_people(handler: Callable[..., Any]) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def answer(request: Request, error: Exception) -> Response:
        if isinstance(error, SignInNeededError) and is_for_people(request):
            return go_to(sign_in_address(request))
        response: Response = await handler(request, error)
        if not is_for_people(request) or not response.headers.get("content-type", "").startswith("application/json"):
            return response
        body = json.loads(bytes(response.body))
        heading = _HEADINGS.get(response.status_code, "That did not work")
        shown = page(
            request,
            "error",
            status=response.status_code,
            heading=heading,
            message=body["message"].replace("There is no GET ", "There is no page "),
            request_id=body.get("request_id"),
        )
        for name in ("retry-after", "allow"):
            if name in response.headers:
                shown.headers[name] = response.headers[name]
        return shown

    return answer
