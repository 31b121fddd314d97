"""The one place where errors become answers: `{error, message, code, field?, issues?, request_id?, ...}`."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from osmosis_ai.errors import ConflictError, NotFoundError, OsmosisError, ValidationError
from starlette.exceptions import HTTPException

from osmosis_platform.errors import ServiceError

log = structlog.get_logger(__name__)

_BY_STATUS = {
    400: "VALIDATION",
    401: "TOKEN_INVALID",
    403: "FORBIDDEN",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    413: "TOO_LARGE",
}
_UNSERVED = {
    "/api/cli/eval-runs": "evaluation runs",
    "/api/cli/training-runs": "training runs",
    "/api/cli/benchmark": "benchmarks",
    "/api/cli/models": "models",
}
_ISSUES_SHOWN = 20


def error_response(
    status: int,
    code: str,
    message: str,
    *,
    field: str | None = None,
    issues: list[Any] | None = None,
    details: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    request_id: str | None = None,
) -> JSONResponse:
    """The error envelope (platform-api.md 3.1). `details` never overrides the envelope's own keys."""
    body: dict[str, Any] = dict(details or {})
    body |= {"error": message, "message": message, "code": code}
    if field:
        body["field"] = field
    if issues:
        body["issues"] = issues
    if request_id:
        body["request_id"] = request_id
    return JSONResponse(body, status, headers=dict(headers or {}))


def install(app: FastAPI) -> None:
    """Registers the handlers, so that no route makes an error body of its own."""
    app.add_exception_handler(ServiceError, _service_error)
    app.add_exception_handler(OsmosisError, _osmosis_error)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(OSError, _os_error)
    app.add_exception_handler(UnicodeEncodeError, _no_text)
    app.add_exception_handler(Exception, _fault_of_ours)


def shown_path(path: str) -> str:
    """The path as a log may hold it: an object URL is a credential."""
    return f"{path[:9]}***" if path.startswith("/_blob/v1/") else path


def _request_id(request: Request) -> str | None:
    return getattr(request.state, "request_id", None)


async def _service_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ServiceError)
    return error_response(
        error.status,
        error.error_code,
        error.message,
        field=error.field,
        issues=error.issues,
        details=error.details,
        headers=error.headers,
        request_id=_request_id(request) if error.status >= 500 else None,
    )


async def _osmosis_error(request: Request, error: Exception) -> JSONResponse:
    """Errors of the rooms we share with the client, for example a dataset's rules."""
    assert isinstance(error, OsmosisError)
    for kind, status in ((ValidationError, 400), (NotFoundError, 404), (ConflictError, 409)):
        if isinstance(error, kind):
            return error_response(status, error.error_code, error.message, details=error.details)
    return await _fault_of_ours(request, error)


async def _malformed(_request: Request, error: Exception) -> JSONResponse:
    """400, never 422: the client maps 422 to a fault of the platform (platform-api.md 20.3)."""
    assert isinstance(error, RequestValidationError)
    issues = []
    for finding in error.errors()[:_ISSUES_SHOWN]:
        place = [str(part) for part in finding["loc"]]
        key = ".".join(place[1:]) or place[0]
        issues.append({"key": key, "message": str(finding["msg"]).removeprefix("Value error, ")})
    first = issues[0] if issues else {"key": "body", "message": "malformed"}
    message = f"The request is malformed: {first['key']}: {first['message']}."
    return error_response(400, "VALIDATION", message, field=first["key"], issues=issues)


async def _http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    path = request.url.path
    code = _BY_STATUS.get(error.status_code, "HTTP_ERROR")
    message = str(error.detail)
    if error.status_code == 404 and (family := _unserved(path)):
        message = f"This platform does not serve {family} yet. `osmosis eval run` and `train run` work on your machine."
        return error_response(404, message=message, code="NOT_SERVED")
    if error.status_code == 404:
        message = f"There is no {request.method} {shown_path(path)} on this platform."
    elif error.status_code == 405:
        message = f"{shown_path(path)} does not take {request.method}."
    return error_response(error.status_code, code, message, headers=error.headers)


def _unserved(path: str) -> str | None:
    """The family of a client's command that asks for what no route serves, or None."""
    return next((words for prefix, words in _UNSERVED.items() if path.startswith(prefix)), None)


async def _no_text(_request: Request, _error: Exception) -> JSONResponse:
    """Only requests hold such texts: JSON can spell half a surrogate pair, and nothing can encode it."""
    message = "The request holds half a surrogate pair, which is no text. Remove it."
    return error_response(400, "UNSTORABLE_VALUE", message)


async def _os_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, OSError)
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        message = "The platform's disk is full; nothing was changed. An administrator must free some space."
        return error_response(507, "STORAGE_FULL", message, request_id=_request_id(request))
    return await _fault_of_ours(request, error)


async def _fault_of_ours(request: Request, error: Exception) -> JSONResponse:
    log.error("request failed", path=shown_path(request.url.path), method=request.method, exc_info=error)
    message = "The platform failed to answer; its log names the cause under this request id."
    return error_response(500, "INTERNAL", message, request_id=_request_id(request))
