"""Moving log lines that are no longer hot into compressed objects: object first, then the row, then the lines go."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import structlog

from osmosis_platform import crashpoints
from osmosis_platform.db.repositories.streams import Segment, Stream, StreamIndex, StreamRepository

if TYPE_CHECKING:
    from osmosis_platform.services import Services

log = structlog.get_logger(__name__)

SEGMENT_LINES = 5_000
CLOSED_LINES = 100
"""What is left of a closed stream is sealed from so many lines on: a few rows are cheaper than an object."""


def seal_streams(services: Services, *, lines: int = SEGMENT_LINES, closed_lines: int = CLOSED_LINES) -> int:
    """Seals what every stream with a long tail, or without a writer, has to seal.

    A kill between the object and its row leaves lines where they were, and an object that the next sealing replaces.

    Returns:
        How many segments were made.
    """
    with services.database.read() as work:
        due = StreamIndex(work).with_tails(lines, closed_lines)
    count = 0
    for stream in due:
        while _seal_next(services, stream, lines, closed_lines):
            count += 1
            with services.database.read() as work:
                found = StreamRepository(work).find(stream.workspace_id, stream.id)
            if found is None:
                break
            stream = found
    return count


def _seal_next(services: Services, stream: Stream, wanted: int, closed_lines: int) -> bool:
    import zstandard

    first = stream.sealed_through + 1
    last = min(stream.last_line_seq, first + wanted - 1)
    least = wanted if stream.closed_at is None else closed_lines
    if last - first + 1 < least:
        return False
    with services.database.read() as work:
        lines = StreamRepository(work).lines_between(stream.workspace_id, stream.id, first, last)
    if not lines:
        return False
    last = lines[-1].seq
    rows = (
        json.dumps(
            {
                "seq": line.seq,
                "at": line.at.isoformat(),
                "level": line.level,
                "step": line.step,
                "message": line.message,
                "details": line.details,
            },
            ensure_ascii=False,
        )
        for line in lines
    )
    packed = zstandard.ZstdCompressor(level=6).compress("\n".join(rows).encode())
    same_start = f"{stream.workspace_id}/logs/{stream.id}/{first:012d}-"
    key = f"{same_start}{last:012d}.ndjson.zst"
    services.blobs.put(key, [packed])
    crashpoints.reach("logs.after-blob")
    with services.database.write() as work:
        sealed = StreamRepository(work).seal(stream.workspace_id, stream.id, Segment(first, last, key, len(packed)))
    if sealed:
        for info in list(services.blobs.list(f"{stream.workspace_id}/logs/{stream.id}")):
            if info.key.startswith(same_start) and info.key != key:
                services.blobs.delete(info.key)  # of a sealing that was killed before its row
    return sealed
