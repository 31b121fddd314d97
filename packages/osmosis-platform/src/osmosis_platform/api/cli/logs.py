"""Pages of a log as the command line reads them (platform-api.md 5.2): datasets here, runs and benchmarks later."""

from __future__ import annotations

from typing import Annotated, Any

import anyio.to_thread
from fastapi import Query
from pydantic import BaseModel

from osmosis_platform.clock import wire_time
from osmosis_platform.events.log import Direction, read_page
from osmosis_platform.services import Services

MAX_LINES = 200

type LineLimit = Annotated[int, Query(ge=1, le=MAX_LINES, description="Lines of one page.")]
type LineDirection = Annotated[Direction, Query(description="Where to go on from the cursor.")]
type Cursor = Annotated[str | None, Query(max_length=200, description="`next_cursor` of the page before.")]


class LogEntry(BaseModel):
    """One line."""

    timestamp: str | None
    level: str
    step: str
    message: str
    details: dict[str, Any] | None


class LogEntries(BaseModel):
    """One page, oldest line first."""

    logs: list[LogEntry]
    next_cursor: str | None


async def log_page(
    services: Services, workspace_id: str, stream_id: str, *, cursor: str | None, limit: int, direction: Direction
) -> LogEntries:
    """A page of the log of a stream; empty for a stream that nobody has written to.

    Raises:
        InvalidRequestError: The cursor is not one of ours.
    """

    def read() -> LogEntries:
        found = read_page(services, workspace_id, stream_id, cursor=cursor, limit=limit, direction=direction)
        entries = [
            LogEntry(
                timestamp=wire_time(line.at),
                level=line.level,
                step=line.step,
                message=line.message,
                details=dict(line.details) if line.details else None,
            )
            for line in found.lines
        ]
        return LogEntries(logs=entries, next_cursor=found.next_cursor)

    return await anyio.to_thread.run_sync(read)
