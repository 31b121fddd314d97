"""What things cost and may cost: metering rows, and limits set by administrators."""

from __future__ import annotations

import sqlalchemy as sa

from osmosis_platform.db.tables.metadata import metadata
from osmosis_platform.db.types import UtcTime

usage_records = sa.Table(
    "usage_records",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("workspace_id", sa.Text, nullable=False),
    sa.Column("at", UtcTime, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),  # for example job.cpu_seconds
    sa.Column("quantity", sa.Float, nullable=False),
    sa.Column("unit", sa.Text, nullable=False),
    sa.Column("subject_id", sa.Text),
    sa.Column("job_id", sa.Text),
    sa.Column("cost_usd", sa.Float),  # absent: no price is set
    sa.Index("ix_usage_records_workspace_at", "workspace_id", "at"),
)

quotas = sa.Table(
    "quotas",
    metadata,
    sa.Column("workspace_id", sa.Text, primary_key=True),  # or `*`
    sa.Column("name", sa.Text, primary_key=True),  # for example datasets.bytes
    sa.Column("value", sa.Float, nullable=False),
)
