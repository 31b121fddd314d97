"""Events of a stream as they happen (SSE), and its log in pages."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Annotated, Any, Literal

import anyio.to_thread
from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from osmosis_platform.api.scope import ServicesDep, WorkspaceScope, allowed_here
from osmosis_platform.api.segments import Segment
from osmosis_platform.clock import wire_time
from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.streams import Event, StreamRepository
from osmosis_platform.domain.permissions import Action
from osmosis_platform.errors import InvalidRequestError, MissingError, OsmosisError
from osmosis_platform.events.log import read_page
from osmosis_platform.services import Services

router = APIRouter(prefix="/api/v1/workspaces/{workspace}/streams/{stream_id}", tags=["events"])

HEARTBEAT_S = 15.0
"""How often a quiet stream says that it is alive, and how long a reader may go on whose leave has ended."""
_BATCH = 200
_MAX_LINES = 200


class LogEntry(BaseModel):
    """One line of a log."""

    seq: int
    timestamp: str
    level: str
    step: str
    message: str
    details: dict[str, Any] | None


class LogEntries(BaseModel):
    """A page of a log, oldest line first."""

    logs: list[LogEntry]
    next_cursor: str | None


@router.get("/logs")
async def logs(
    stream_id: Segment,
    scope: Annotated[WorkspaceScope, allowed_here(Action.EVENTS_READ)],
    services: ServicesDep,
    limit: Annotated[int, Query(ge=1, le=_MAX_LINES)] = 50,
    direction: Literal["older", "newer"] = "older",
    cursor: Annotated[str | None, Query(max_length=200)] = None,
) -> LogEntries:
    """Lines of a stream: the newest page without a cursor."""
    found = await anyio.to_thread.run_sync(
        lambda: read_page(services, scope.workspace_id, stream_id, cursor=cursor, limit=limit, direction=direction)
    )
    entries = [
        LogEntry(
            seq=line.seq,
            timestamp=wire_time(line.at) or "",
            level=line.level,
            step=line.step,
            message=line.message,
            details=None if line.details is None else dict(line.details),
        )
        for line in found.lines
    ]
    return LogEntries(logs=entries, next_cursor=found.next_cursor)


_MAY_FOLLOW = allowed_here(Action.EVENTS_READ)


@router.get("/events", response_class=StreamingResponse, responses={200: {"content": {"text/event-stream": {}}}})
async def follow(
    request: Request,
    stream_id: Segment,
    scope: Annotated[WorkspaceScope, _MAY_FOLLOW],
    services: ServicesDep,
    after: Annotated[int, Query(ge=0, le=1 << 53, description="Only events with larger numbers.")] = 0,
    last_event_id: Annotated[str | None, Header(description="What a reconnecting browser saw last; wins.")] = None,
) -> StreamingResponse:
    """Events from a number on, then as they happen. A reader that is slow or cut off resumes by `Last-Event-ID`."""
    start = after
    if last_event_id is not None:
        if not last_event_id.isascii() or not last_event_id.isdigit() or len(last_event_id) > 16:
            raise InvalidRequestError("Last-Event-ID must be the id of an event.", field="last-event-id")
        start = int(last_event_id)
    stream = await services.database.reading(lambda work: StreamRepository(work).find(scope.workspace_id, stream_id))
    if stream is None:
        raise MissingError(f"Nothing has happened to {stream_id[:100]!r} here yet.")
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

    async def check() -> None:
        await _MAY_FOLLOW.dependency(request, scope.workspace_id)

    body = _events(services, scope.workspace_id, stream_id, start, check)
    return StreamingResponse(body, media_type="text/event-stream", headers=headers)


async def _events(
    services: Services, workspace_id: str, stream_id: str, after: int, check: Callable[[], Awaitable[None]]
) -> AsyncGenerator[str]:
    """Reads what is new whenever the stream grew; nothing waits in memory for a slow reader but one batch.

    `check` raises once the reader's token, session or membership has ended: then the stream ends too.
    """
    checked_at = time.monotonic()

    def read(work: UnitOfWork) -> list[Event]:
        return StreamRepository(work).events_after(workspace_id, stream_id, after, _BATCH)

    async with services.hub.follow(services.database, stream_id) as bell:
        yield ": following\n\n"
        while not services.hub.is_over:
            bell.clear()
            try:
                if time.monotonic() - checked_at >= HEARTBEAT_S:
                    await check()
                    checked_at = time.monotonic()
                found = await services.database.reading(read)
            except OsmosisError:
                return  # the reader reconnects and goes on by the last id
            for event in found:
                after = event.seq
                data = json.dumps({"at": wire_time(event.at), **event.payload}, ensure_ascii=False)
                yield f"id: {event.seq}\nevent: {event.kind}\ndata: {data}\n\n"
            if len(found) == _BATCH:
                continue
            try:
                await asyncio.wait_for(bell.wait(), HEARTBEAT_S)
            except TimeoutError:
                yield ": alive\n\n"
