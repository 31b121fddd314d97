"""Object URLs of the files backend: bodies in and out, never held in memory. What a URL allows is signed (blobs.claims)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from email.utils import format_datetime
from typing import Any
from urllib.parse import quote

import anyio.to_thread
from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from starlette.requests import ClientDisconnect

from osmosis_platform.api.scope import open_to_all
from osmosis_platform.blobs.claims import PREFIX, Claims
from osmosis_platform.blobs.files import FileStore
from osmosis_platform.blobs.staging import PartWriter
from osmosis_platform.blobs.store import OCTETS, UploadedPart, no_object
from osmosis_platform.errors import InvalidRequestError, MissingError, ServiceError
from osmosis_platform.services import Services

router = APIRouter(
    include_in_schema=False,
    dependencies=[open_to_all("the URL is the credential: signed, for one object and one method, and short-lived")],
)

BATCH_BYTES = 4 << 20
_BATCH_CHUNKS = 1024  # however small a client sends them
_AHEAD = 2  # batches that wait for the disk while the next one arrives
_READ_BYTES = 1 << 20


@router.put(PREFIX + "{signed}", status_code=200)
async def put(request: Request, signed: str) -> Response:
    """Takes the body of an upload or of one of its parts; the answer's ETag is its SHA-256."""
    store = await _store(request)
    claims = store.signer.read(signed)
    _check_method(claims, "PUT")
    _check_headers(request, claims)
    part = await _receive(request, store, claims)
    return Response(status_code=200, headers={"ETag": f'"{part.etag}"'})


@router.api_route(PREFIX + "{signed}", methods=["GET", "HEAD"])
async def get(request: Request, signed: str) -> Response:
    """Sends an object, or the range that was asked for."""
    store = await _store(request)
    claims = store.signer.read(signed)
    _check_method(claims, "GET")
    info = await anyio.to_thread.run_sync(store.head, claims.key)
    if info is None:
        raise no_object(claims.key)
    etag = f'"{info.etag}"'
    headers = {
        "ETag": etag,
        "Last-Modified": format_datetime(info.modified_at, usegmt=True),
        "Accept-Ranges": "bytes",
        "Content-Disposition": disposition(claims.file_name or "download"),
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }
    wanted = request.headers.get("if-none-match")
    if wanted is not None and (wanted.strip() == "*" or etag in [one.strip() for one in wanted.split(",")]):
        return Response(status_code=304, headers=headers)
    start, end, status = 0, info.size_bytes, 200
    condition = request.headers.get("if-range")
    if condition is None or condition.strip() == etag:
        found = byte_range(request.headers.get("range"), info.size_bytes)
        if found is not None:
            start, end = found
            status = 206
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{info.size_bytes}"
    headers["Content-Length"] = str(end - start)
    if request.method == "HEAD":
        return Response(status_code=status, headers=headers, media_type=OCTETS)
    chunks = await anyio.to_thread.run_sync(store.open, claims.key, start, end)

    async def body() -> AsyncGenerator[bytes]:
        while chunk := await anyio.to_thread.run_sync(next, chunks, b""):
            yield chunk

    return StreamingResponse(body(), status, headers, media_type=OCTETS)


def byte_range(header: str | None, size_bytes: int) -> tuple[int, int] | None:
    """The single range of a Range header as (start, end), end exclusive; None for the whole object.

    Raises:
        InvalidRequestError: `RANGE_UNSATISFIABLE`: it begins behind the end (answered 416).
    """
    unit, _, text = (header or "").replace(" ", "").partition("=")
    first, dash, last = text.partition("-")
    if unit.lower() != "bytes" or not dash or not (first + last).isascii() or not (first + last).isdigit():
        return None  # several ranges, or something else: RFC 9110 lets us send everything
    if len(first) > 18 or len(last) > 18 or (first and last and int(last) < int(first)):
        return None
    start = int(first) if first else max(0, size_bytes - int(last))
    end = min(size_bytes, int(last) + 1) if first and last else size_bytes
    if start >= size_bytes:
        raise _RangeError(size_bytes)
    return start, end


def disposition(file_name: str) -> str:
    """A Content-Disposition that always saves, under a name of any script (RFC 6266)."""
    plain = "".join(one if one.isascii() and one.isprintable() and one not in '"\\/%;' else "_" for one in file_name)
    extended = quote(file_name, safe="")
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{extended}"


class _RangeError(InvalidRequestError):
    """The range begins behind the end of the object."""

    status = 416
    code = "RANGE_UNSATISFIABLE"

    def __init__(self, size_bytes: int) -> None:
        message = f"The object has {size_bytes} bytes; the range begins behind its end."
        super().__init__(message, headers={"Content-Range": f"bytes */{size_bytes}"})


class _MethodError(ServiceError):
    """The URL was signed for another method."""

    status = 405
    code = "METHOD_NOT_ALLOWED"


async def _store(request: Request) -> FileStore:
    services: Services = request.app.state.services
    store = services.blobs
    if not isinstance(store, FileStore):
        raise MissingError("This platform keeps its objects in S3; ask for a new URL.", code="BLOB_URL_INVALID")
    return store


def _check_method(claims: Claims, method: str) -> None:
    if claims.method != method:
        message = f"This object URL is for {claims.method} only."
        raise _MethodError(message, headers={"Allow": "GET, HEAD" if claims.method == "GET" else "PUT"})


def _check_headers(request: Request, claims: Claims) -> None:
    """Refuses a body that cannot be the right one before a byte of it is read.

    Raises:
        InvalidRequestError: `BLOB_SIZE` or `BLOB_CONTENT_TYPE`.
    """
    declared = request.headers.get("content-length")
    if declared is not None and declared != str(claims.size_bytes):
        message = f"This URL takes exactly {claims.size_bytes} bytes, Content-Length says {declared[:20]}."
        raise InvalidRequestError(message, code="BLOB_SIZE", headers={"Connection": "close"})
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if claims.content_type is not None and given != claims.content_type:
        message = f"This URL takes Content-Type: {claims.content_type}. Send the upload_headers as they were given."
        raise InvalidRequestError(message, code="BLOB_CONTENT_TYPE", headers={"Connection": "close"})


async def _receive(request: Request, store: FileStore, claims: Claims) -> UploadedPart:
    """Streams the body to the disk: 4 MiB batches to one thread that hashes and writes them, at most three in memory.

    A batch is the chunks as they came: to copy them together would cost as much as to hash them.

    A client that goes away leaves the part struck out; what it had sent counts for nothing.
    """
    executor = ThreadPoolExecutor(1, thread_name_prefix="upload")
    context = store.part(claims)
    waiting: deque[Future[Any]] = deque()
    loop = asyncio.get_running_loop()

    def run[**P, T](call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> asyncio.Future[T]:
        return loop.run_in_executor(executor, lambda: call(*arguments, **named))

    entered = False
    failure: BaseException | None = None
    try:
        writer: PartWriter = await run(context.__enter__)
        entered = True
        batch: list[bytes] = []
        size_bytes = 0
        async for chunk in _body(request):
            batch.append(chunk)
            size_bytes += len(chunk)
            if size_bytes >= BATCH_BYTES or len(batch) >= _BATCH_CHUNKS:
                if len(waiting) >= _AHEAD:
                    await asyncio.wrap_future(waiting.popleft())
                waiting.append(executor.submit(writer.write, batch))
                batch, size_bytes = [], 0
        if batch:
            waiting.append(executor.submit(writer.write, batch))
        while waiting:
            await asyncio.wrap_future(waiting.popleft())
        part = await run(writer.finish)
        # Before the answer: a client completes the upload as soon as it has the last one.
        entered = False
        await run(context.__exit__, None, None, None)
        return part
    except BaseException as error:
        failure = error
        raise
    finally:
        # Behind what was submitted, in the same thread: nothing writes to a part that is not ours any more.
        if entered:
            executor.submit(context.__exit__, type(failure) if failure else None, failure, None)
        executor.shutdown(wait=False)


async def _body(request: Request) -> AsyncGenerator[bytes]:
    """The chunks of the body as the server received them.

    Raises:
        ClientDisconnect: The client went away before the end.
    """
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        if chunk := message.get("body", b""):
            yield chunk
        if not message.get("more_body", False):
            return
