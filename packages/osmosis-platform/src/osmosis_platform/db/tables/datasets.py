"""Datasets: one row per upload; an overwritten or deleted one keeps its row, without a live name."""

from __future__ import annotations

import sqlalchemy as sa

from osmosis_platform.db.tables.metadata import metadata
from osmosis_platform.db.types import Json, UtcTime

datasets = sa.Table(
    "datasets",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("workspace_id", sa.ForeignKey("workspaces.id"), nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("live_name", sa.Text),  # the name, while this one answers to it
    sa.Column("status", sa.Text, nullable=False),  # pending uploading processing uploaded error cancelled
    sa.Column("original_format", sa.Text, nullable=False),  # csv | jsonl | parquet
    sa.Column("original_size_bytes", sa.BigInteger, nullable=False),
    sa.Column("original_sha256", sa.Text),
    sa.Column("original_blob_key", sa.Text, nullable=False),
    sa.Column("file_format", sa.Text),  # of what download serves
    sa.Column("file_size_bytes", sa.BigInteger),
    sa.Column("file_blob_key", sa.Text),
    sa.Column("parquet_blob_key", sa.Text),
    sa.Column("row_count", sa.BigInteger),
    sa.Column("preview", Json),
    sa.Column("column_statistics", Json),
    sa.Column("upload", Json),  # method, part size and store's upload id, while uploading
    sa.Column("error_code", sa.Text),
    sa.Column("error_message", sa.Text),
    sa.Column("replaces_id", sa.Text),  # soft-deleted when this one is complete
    sa.Column("created_by", sa.ForeignKey("users.id"), nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("updated_at", UtcTime, nullable=False),
    sa.Column("deleted_at", UtcTime),
    sa.Column("deleted_by", sa.Text),
    sa.Column("purged_at", UtcTime),  # when the objects of a deleted one were removed
    sa.UniqueConstraint("workspace_id", "live_name"),
)

# The order of lists; what is deleted is not in it, so a count reads nothing else.
sa.Index(
    "ix_datasets_newest",
    datasets.c.workspace_id,
    datasets.c.created_at,
    datasets.c.id,
    sqlite_where=datasets.c.deleted_at.is_(None),
    postgresql_where=datasets.c.deleted_at.is_(None),
)
