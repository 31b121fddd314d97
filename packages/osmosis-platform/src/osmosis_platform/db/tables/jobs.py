"""The lease queue: jobs, limits, workers. Every write of a worker carries the epoch it was leased with."""

from __future__ import annotations

import sqlalchemy as sa

from osmosis_platform.db.tables.metadata import metadata
from osmosis_platform.db.types import Json, UtcTime

jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("workspace_id", sa.Text, nullable=False),  # or `platform`
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("queue", sa.Text, nullable=False, default="cpu"),
    sa.Column("priority", sa.Integer, nullable=False, default=0),  # higher first
    sa.Column("subject_id", sa.Text, index=True),  # what it works on, for example a dataset
    sa.Column("payload", Json, nullable=False),
    sa.Column("unique_key", sa.Text),  # one open job per key
    sa.Column("status", sa.Text, nullable=False),  # queued running finished failed cancelled
    sa.Column("epoch", sa.Integer, nullable=False, default=0),
    sa.Column("owner", sa.Text),
    sa.Column("lease_until", UtcTime),
    sa.Column("lease_s", sa.Float),
    sa.Column("beats", sa.Integer, nullable=False, default=0),  # grows with each heartbeat
    sa.Column("waiting_since", UtcTime, nullable=False),  # when it was last put into the queue
    sa.Column("not_before", UtcTime, nullable=False),
    sa.Column("cancel_requested_at", UtcTime),
    sa.Column("failures", sa.Integer, nullable=False, default=0),  # ended by an error that may pass
    sa.Column("max_failures", sa.Integer, nullable=False, default=3),
    sa.Column("crashes", sa.Integer, nullable=False, default=0),  # leases lost with no other job in the worker
    sa.Column("shared_losses", sa.Integer, nullable=False, default=0),  # leases lost together with other jobs'
    sa.Column("max_crashes", sa.Integer, nullable=False, default=3),
    sa.Column("progress", Json),
    sa.Column("result", Json),
    sa.Column("error_fault", sa.Text),  # user | agent | grader | infrastructure
    sa.Column("error_code", sa.Text),
    sa.Column("error_message", sa.Text),
    sa.Column("traceparent", sa.Text),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("started_at", UtcTime),
    sa.Column("finished_at", UtcTime),
    sa.Index("ix_jobs_claim", "status", "queue", "workspace_id", "kind"),
    sa.Index("ix_jobs_workspace", "workspace_id", "id"),
)

sa.Index(
    "uq_jobs_open",
    jobs.c.unique_key,
    unique=True,
    sqlite_where=jobs.c.status.in_(["queued", "running"]),
    postgresql_where=jobs.c.status.in_(["queued", "running"]),
)

job_limits = sa.Table(
    "job_limits",
    metadata,
    sa.Column("workspace_id", sa.Text, primary_key=True),  # or `*`
    sa.Column("kind", sa.Text, primary_key=True),  # or `*`
    sa.Column("running", sa.Integer, nullable=False),
)

job_turns = sa.Table(
    "job_turns",
    metadata,
    sa.Column("workspace_id", sa.Text, primary_key=True),
    sa.Column("turn", sa.BigInteger, nullable=False),  # of its last claim; the lowest is next
)

job_schedule = sa.Table(
    "job_schedule",
    metadata,
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("next_at", UtcTime, nullable=False),
)

workers = sa.Table(
    "workers",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("queues", Json, nullable=False),
    sa.Column("started_at", UtcTime, nullable=False),
    sa.Column("seen_at", UtcTime, nullable=False),
)
