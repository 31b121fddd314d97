"""Log lines and events of a stream: appended by whoever holds the newest epoch, read in pages by cursor."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from osmosis_ai.redaction import Redactor

from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.streams import Segment, StoredLine, StreamRepository
from osmosis_platform.errors import InvalidRequestError, TakenError

if TYPE_CHECKING:
    from osmosis_platform.services import Services

MAX_MESSAGE = 16_384
MAX_DETAILS = 16_384

LEVELS = ("debug", "info", "warning", "error")
type Direction = Literal["older", "newer"]


class StaleWriterError(TakenError):
    """A writer whose lease was taken over; what it wanted to add is not added."""

    code = "STALE_WRITER"


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line to add. Texts are cut at 16 KiB; details that are larger are dropped, which the line then says.

    Attributes:
        level: `debug`, `info`, `warning` or `error`; another word counts as `info`.
        at: When it happened; None for now.
        step: What was going on, for example `validate`.
        details: JSON facts.
    """

    level: str
    step: str
    message: str
    details: Mapping[str, Any] | None = None
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class LogPage:
    """Lines oldest first, and where to go on."""

    lines: Sequence[StoredLine]
    next_cursor: str | None


def append_lines(
    work: UnitOfWork,
    workspace_id: str,
    stream_id: str,
    lines: Sequence[LogLine],
    *,
    redactor: Redactor,
    epoch: int = 0,
) -> int:
    """Adds lines, in order, in the caller's transaction, without secrets.

    Args:
        work: A unit of work that may write.
        workspace_id: Whose stream.
        stream_id: The id of what it tells about.
        lines: A batch; a hundred lines cost little more than one.
        redactor: Knows what must not be in them: `secrets.redacting.OWN`, or one that knows a run's values too. A value
            must be whole within a line; what comes in pieces passes a `RedactingStream` before.
        epoch: Of the writer's lease; 0 for requests, which have none.

    Returns:
        The number of the newest line.

    Raises:
        StaleWriterError: A newer epoch has written to the stream.
    """
    if not lines:
        return 0
    streams = StreamRepository(work)
    stream = streams.reserve(workspace_id, stream_id, epoch=epoch, lines=len(lines))
    if stream is None:
        raise StaleWriterError(f"Another worker writes to {stream_id} now.")
    first, now = stream.last_line_seq - len(lines) + 1, work.clock()
    steps = redactor.texts([line.step for line in lines])
    messages = redactor.texts([line.message for line in lines])
    rows = [
        {
            "seq": seq,
            "at": line.at or now,
            "level": line.level if line.level in LEVELS else "info",
            "step": step[:100],
            "message": _text(message),
            "details": _bounded(line.details, redactor),
        }
        for seq, (line, step, message) in enumerate(zip(lines, steps, messages, strict=True), first)
    ]
    streams.add_lines(workspace_id, stream_id, rows)
    return stream.last_line_seq


def append_event(
    work: UnitOfWork,
    workspace_id: str,
    stream_id: str,
    kind: str,
    payload: Mapping[str, Any],
    *,
    redactor: Redactor,
    epoch: int = 0,
) -> int:
    """Adds an event, without secrets, in the transaction of what it tells, and gives its number.

    Args:
        work: The open transaction: the event is there exactly if the change is.
        workspace_id: Whose stream.
        stream_id: The id of what it tells about.
        kind: What happened, for example `dataset.status`.
        payload: JSON facts.
        redactor: As of `append_lines`.
        epoch: Of the writer's lease; 0 where the transaction itself checks the lease, and for requests.

    Raises:
        StaleWriterError: A newer epoch has written to the stream.
    """
    streams = StreamRepository(work)
    stream = streams.reserve(workspace_id, stream_id, epoch=epoch, events=1)
    if stream is None:
        raise StaleWriterError(f"Another worker writes to {stream_id} now.")
    streams.add_event(workspace_id, stream_id, stream.last_event_seq, kind, redactor.value(payload))
    return stream.last_event_seq


def read_page(
    services: Services, workspace_id: str, stream_id: str, *, cursor: str | None, limit: int, direction: Direction
) -> LogPage:
    """A page of a log (platform-api.md 5.2): without a cursor the newest lines, with one what comes next.

    Opens its own units of work, since sealed lines are read from the blob store in between.

    Raises:
        InvalidRequestError: The cursor is not one of ours.
    """
    with services.database.read() as work:
        streams = StreamRepository(work)
        stream = streams.find(workspace_id, stream_id)
        if stream is None:
            if cursor is not None:
                _decode(cursor)
            return LogPage((), None)
        newest = stream.last_line_seq
        if direction == "older":
            last = newest if cursor is None else min(_decode(cursor) - 1, newest)
            first = max(1, last - limit + 1)
        else:
            first = max(1, newest - limit + 1) if cursor is None else _decode(cursor) + 1
            last = min(newest, first + limit - 1)
        tail = streams.lines_between(workspace_id, stream_id, first, last)
        segments: list[Segment] = []
        if first <= stream.sealed_through:
            segments = streams.segments_between(workspace_id, stream_id, first, last)
    sealed = [line for segment in segments for line in read_segment(services, segment) if first <= line.seq <= last]
    lines = sorted([*sealed, *tail], key=lambda line: line.seq)
    if direction == "older":
        following = None if first <= 1 or not lines else _encode(first)
    else:
        following = _encode(lines[-1].seq) if lines and lines[-1].seq < newest else None
    return LogPage(lines, following)


def read_segment(services: Services, segment: Segment) -> list[StoredLine]:
    """The lines of a sealed segment."""
    import zstandard

    packed = b"".join(services.blobs.open(segment.blob_key))
    text = zstandard.ZstdDecompressor().decompressobj().decompress(packed)
    lines = []
    for row in text.splitlines():
        facts = json.loads(row)
        facts["at"] = datetime.fromisoformat(facts["at"])
        lines.append(StoredLine(**facts))
    return lines


def _encode(seq: int) -> str:
    return base64.urlsafe_b64encode(f"seq:{seq}".encode()).decode().rstrip("=")


def _decode(cursor: str) -> int:
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode("ascii")
        name, _, number = text.partition(":")
        if name == "seq" and number.isdigit() and len(number) <= 18:
            return int(number)
    except (binascii.Error, ValueError):
        pass
    raise InvalidRequestError("The cursor is not one that this log gave out; start without one.", field="cursor")


def _text(message: str) -> str:
    clean = message.replace("\x00", "\\0").encode("utf-8", "replace").decode("utf-8")
    return clean if len(clean) <= MAX_MESSAGE else clean[:MAX_MESSAGE] + " [cut]"


def _bounded(details: Mapping[str, Any] | None, redactor: Redactor) -> dict[str, Any] | None:
    if details is None:
        return None
    text = json.dumps(details, default=str, allow_nan=False)
    if len(text) > MAX_DETAILS:
        return {"dropped": f"details of {len(text)} bytes"}
    return redactor.value(json.loads(text.replace("\\u0000", "")))
