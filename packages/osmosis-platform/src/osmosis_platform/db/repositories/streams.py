"""Streams, their events and their log lines as rows. Who may write is the epoch's matter, what a line says the room's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.inserts import insert
from osmosis_platform.db.tables.events import event_streams, events, log_lines, log_segments


@dataclass(frozen=True, slots=True)
class Stream:
    """The counters of a stream.

    Attributes:
        epoch: Of its newest writer; an older one is refused.
        last_event_seq: Of its newest event; 0 for none.
        last_line_seq: Of its newest log line; 0 for none.
        sealed_through: The newest line that is in a segment.
    """

    id: str
    workspace_id: str
    epoch: int
    last_event_seq: int
    last_line_seq: int
    sealed_through: int
    closed_at: datetime | None


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened, in order."""

    seq: int
    at: datetime
    kind: str
    payload: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StoredLine:
    """One log line, in order."""

    seq: int
    at: datetime
    level: str
    step: str
    message: str
    details: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Segment:
    """Lines that were sealed into an object."""

    first_seq: int
    last_seq: int
    blob_key: str
    size_bytes: int


_STREAM = [event_streams.c[name] for name in Stream.__dataclass_fields__]
_EVENT = [events.c[name] for name in Event.__dataclass_fields__]
_LINE = [log_lines.c[name] for name in StoredLine.__dataclass_fields__]
_SEGMENT = [log_segments.c[name] for name in Segment.__dataclass_fields__]


class StreamRepository:
    """Streams of one workspace."""

    def __init__(self, work: UnitOfWork) -> None:
        self._work = work

    def find(self, workspace_id: str, stream_id: str) -> Stream | None:
        """A stream, if anything was ever written to it."""
        query = sa.select(*_STREAM).where(event_streams.c.id == stream_id, event_streams.c.workspace_id == workspace_id)
        row = self._work.execute(query).mappings().one_or_none()
        return None if row is None else Stream(**row)

    def reserve(
        self, workspace_id: str, stream_id: str, *, epoch: int, lines: int = 0, events: int = 0
    ) -> Stream | None:
        """Takes sequence numbers for a writer, making the stream on its first use.

        Args:
            workspace_id: Whose stream.
            stream_id: The id of what it tells about.
            epoch: Of the writer; 0 for requests, which hold no lease.
            lines: How many log lines follow.
            events: How many events follow.

        Returns:
            The stream after the reservation, whose newest numbers are the writer's; None when a newer epoch has written
            or the stream is another workspace's.
        """
        first = {"id": stream_id, "workspace_id": workspace_id, "epoch": epoch, "sealed_through": 0}
        self._work.execute(
            insert(self._work, event_streams)
            .values(**first, last_event_seq=0, last_line_seq=0)
            .on_conflict_do_nothing()
        )
        newest = event_streams.c.epoch
        statement = (
            event_streams.update()
            .where(
                event_streams.c.id == stream_id,
                event_streams.c.workspace_id == workspace_id,
                sa.or_(newest <= epoch, sa.literal(epoch == 0)),
            )
            .values(
                epoch=sa.case((newest < epoch, epoch), else_=newest),
                last_line_seq=event_streams.c.last_line_seq + lines,
                last_event_seq=event_streams.c.last_event_seq + events,
            )
            .returning(*_STREAM)
        )
        row = self._work.execute(statement).mappings().one_or_none()
        return None if row is None else Stream(**row)

    def add_lines(self, workspace_id: str, stream_id: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Adds lines under reserved numbers."""
        if rows:
            self._work.execute(log_lines.insert(), [{"stream_id": stream_id, **row} for row in rows])

    def add_event(self, workspace_id: str, stream_id: str, seq: int, kind: str, payload: Mapping[str, Any]) -> None:
        """Adds an event under a reserved number."""
        values = {"seq": seq, "at": self._work.clock(), "kind": kind, "payload": dict(payload)}
        self._work.execute(events.insert().values(stream_id=stream_id, **values))

    def events_after(self, workspace_id: str, stream_id: str, after: int, limit: int) -> list[Event]:
        """Events with larger numbers, oldest first."""
        if self.find(workspace_id, stream_id) is None:
            return []
        query = sa.select(*_EVENT).where(events.c.stream_id == stream_id, events.c.seq > after)
        rows = self._work.execute(query.order_by(events.c.seq).limit(limit)).mappings()
        return [Event(**row) for row in rows]

    def lines_between(self, workspace_id: str, stream_id: str, first: int, last: int) -> list[StoredLine]:
        """Lines of the hot tail with numbers from `first` to `last`, oldest first."""
        if self.find(workspace_id, stream_id) is None:
            return []
        query = sa.select(*_LINE).where(log_lines.c.stream_id == stream_id, log_lines.c.seq.between(first, last))
        return [StoredLine(**row) for row in self._work.execute(query.order_by(log_lines.c.seq)).mappings()]

    def segments_between(self, workspace_id: str, stream_id: str, first: int, last: int) -> list[Segment]:
        """The segments that hold any line from `first` to `last`, oldest first."""
        if self.find(workspace_id, stream_id) is None:
            return []
        query = sa.select(*_SEGMENT).where(
            log_segments.c.stream_id == stream_id, log_segments.c.last_seq >= first, log_segments.c.first_seq <= last
        )
        return [Segment(**row) for row in self._work.execute(query.order_by(log_segments.c.first_seq)).mappings()]

    def seal(self, workspace_id: str, stream_id: str, segment: Segment) -> bool:
        """Notes a segment and drops its lines from the hot tail; False when somebody else sealed them."""
        mine = (
            (event_streams.c.id == stream_id)
            & (event_streams.c.workspace_id == workspace_id)
            & (event_streams.c.sealed_through == segment.first_seq - 1)
        )
        moved = self._work.execute(event_streams.update().where(mine).values(sealed_through=segment.last_seq))
        if moved.rowcount != 1:
            return False
        values = {name: getattr(segment, name) for name in Segment.__dataclass_fields__}
        self._work.execute(log_segments.insert().values(stream_id=stream_id, **values))
        gone = (log_lines.c.stream_id == stream_id) & (log_lines.c.seq <= segment.last_seq)
        self._work.execute(log_lines.delete().where(gone))
        return True

    def drop(self, workspace_id: str, stream_id: str) -> None:
        """Forgets a stream of which nothing was sealed."""
        if (stream := self.find(workspace_id, stream_id)) is None or stream.sealed_through:
            return
        for table in (events, log_lines):
            self._work.execute(table.delete().where(table.c.stream_id == stream_id))
        self._work.execute(event_streams.delete().where(event_streams.c.id == stream_id))

    def close(self, workspace_id: str, stream_id: str) -> None:
        """Notes that nothing more is expected: the whole tail may be sealed."""
        mine = (event_streams.c.id == stream_id) & (event_streams.c.workspace_id == workspace_id)
        self._work.execute(event_streams.update().where(mine).values(closed_at=self._work.clock()))


class StreamIndex:
    """Streams whose tails are long, whosever they are."""

    GLOBAL = "the sealing job looks after every workspace"

    def __init__(self, work: UnitOfWork) -> None:
        self._work = work

    def with_tails(self, lines: int, closed_lines: int, limit: int = 100) -> list[Stream]:
        """Streams with at least so many unsealed lines; of those that are closed fewer will do."""
        unsealed = event_streams.c.last_line_seq - event_streams.c.sealed_through
        due = (unsealed >= lines) | (event_streams.c.closed_at.is_not(None) & (unsealed >= closed_lines))
        rows = self._work.execute(sa.select(*_STREAM).where(due).limit(limit)).mappings()
        return [Stream(**row) for row in rows]

    def seqs(self, stream_ids: Sequence[str]) -> dict[str, tuple[int, int]]:
        """The newest event and line of streams, for who listens in another process."""
        query = sa.select(event_streams.c.id, event_streams.c.last_event_seq, event_streams.c.last_line_seq)
        rows = self._work.execute(query.where(event_streams.c.id.in_(stream_ids)))
        return {row[0]: (row[1], row[2]) for row in rows}
