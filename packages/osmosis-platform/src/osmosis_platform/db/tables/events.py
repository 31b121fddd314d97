"""Events and log lines of a stream (a dataset, a sync, later a run): a hot tail, then sealed segments in the blob store."""

from __future__ import annotations

import sqlalchemy as sa

from osmosis_platform.db.tables.metadata import metadata
from osmosis_platform.db.types import Json, UtcTime

event_streams = sa.Table(
    "event_streams",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),  # the id of what it tells about
    sa.Column("workspace_id", sa.Text, nullable=False),
    sa.Column("epoch", sa.Integer, nullable=False, default=0),  # of the newest writer
    sa.Column("last_event_seq", sa.BigInteger, nullable=False, default=0),
    sa.Column("last_line_seq", sa.BigInteger, nullable=False, default=0),
    sa.Column("sealed_through", sa.BigInteger, nullable=False, default=0),  # lines in segments
    sa.Column("closed_at", UtcTime),
)

events = sa.Table(
    "events",
    metadata,
    sa.Column("stream_id", sa.ForeignKey("event_streams.id"), primary_key=True),
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("at", UtcTime, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("payload", Json, nullable=False),
)

log_lines = sa.Table(
    "log_lines",
    metadata,
    sa.Column("stream_id", sa.ForeignKey("event_streams.id"), primary_key=True),
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("at", UtcTime, nullable=False),
    sa.Column("level", sa.Text, nullable=False),
    sa.Column("step", sa.Text, nullable=False),
    sa.Column("message", sa.Text, nullable=False),
    sa.Column("details", Json),
)

log_segments = sa.Table(
    "log_segments",
    metadata,
    sa.Column("stream_id", sa.ForeignKey("event_streams.id"), primary_key=True),
    sa.Column("first_seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("last_seq", sa.BigInteger, nullable=False),
    sa.Column("blob_key", sa.Text, nullable=False),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
)
