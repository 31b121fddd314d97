"""What was done by whom: append-only, one hash chain per workspace and one for the platform."""

from __future__ import annotations

import sqlalchemy as sa

from osmosis_platform.db.tables.metadata import metadata
from osmosis_platform.db.types import Json, UtcTime

audit_entries = sa.Table(
    "audit_entries",
    metadata,
    sa.Column("chain", sa.Text, primary_key=True),  # a workspace id, or `platform`
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("at", UtcTime, nullable=False),
    sa.Column("actor_kind", sa.Text, nullable=False),  # user | token | worker | system
    sa.Column("actor_id", sa.Text),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("resource_kind", sa.Text, nullable=False),
    sa.Column("resource_id", sa.Text),
    sa.Column("details", Json, nullable=False),
    sa.Column("ip", sa.Text),
    sa.Column("request_id", sa.Text),
    sa.Column("previous_hash", sa.Text, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
)
