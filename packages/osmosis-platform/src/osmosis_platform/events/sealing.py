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


def seal_streams(services: Services, *, lines: int = SEGMENT_LINES) -> int:
    """Seals what every stream with a long tail, or without a writer, has to seal.

    Returns:
        How many segments were made.
    """
    with services.database.read() as work:
        due = StreamIndex(work).with_tails(lines)
    count = 0
    for stream in due:
        while _seal_next(services, stream, lines):
            count += 1
            with services.database.read() as work:
                found = StreamRepository(work).find(stream.workspace_id, stream.id)
            if found is None:
                break
            stream = found
    return count


def _seal_next(services: Services, stream: Stream, wanted: int) -> bool:
    import zstandard

    first = stream.sealed_through + 1
    last = min(stream.last_line_seq, first + wanted - 1)
    if last < first or (last - first + 1 < wanted and stream.closed_at is None):
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
    key = f"{stream.workspace_id}/logs/{stream.id}/{first:012d}-{last:012d}.ndjson.zst"
    services.blobs.put(key, [packed])
    crashpoints.reach("logs.after-blob")
    with services.database.write() as work:
        return StreamRepository(work).seal(stream.workspace_id, stream.id, Segment(first, last, key, len(packed)))
