"""Removing every row of a workspace, found by the tables themselves, so that a new table cannot be forgotten."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.tables import metadata
from osmosis_platform.db.tables.datasets import datasets
from osmosis_platform.db.tables.git import repositories

KEPT: dict[str, str] = {
    "usage_records": "accounts of past months must still add up",
}
"""Tables whose rows outlive their workspace, and why. Its own row and its audit chain do as well: they say what it was."""


class PurgeRepository:
    """The rows of one workspace, in whatever table."""

    def __init__(self, work: UnitOfWork) -> None:
        self._work = work

    def repository_ids(self, workspace_id: str) -> list[str]:
        """Every repository it ever had."""
        query = sa.select(repositories.c.id).where(repositories.c.workspace_id == workspace_id)
        return list(self._work.execute(query.order_by(repositories.c.id)).scalars())

    def uploads(self, workspace_id: str) -> list[tuple[str, Mapping[str, Any]]]:
        """The keys and instructions of uploads that were not completed."""
        query = sa.select(datasets.c.original_blob_key, datasets.c.upload).where(
            datasets.c.workspace_id == workspace_id
        )
        return [(key, upload) for key, upload in self._work.execute(query) if upload is not None]

    def purge(self, workspace_id: str) -> int:
        """Deletes its rows, those that refer to others before these; how many."""
        count = 0
        for table in reversed(metadata.sorted_tables):
            mine = rows_of(table, workspace_id)
            if mine is not None and table.name not in KEPT:
                count += self._work.execute(sa.delete(table).where(mine)).rowcount
        return count


def rows_of(table: sa.Table, workspace_id: str) -> sa.ColumnElement[bool] | None:
    """The condition for a workspace's rows of a table: by its own column or by what it refers to; None if it has none."""
    if "workspace_id" in table.c:
        return table.c.workspace_id == workspace_id
    refers = [
        key.parent.in_(sa.select(key.column).where(key.column.table.c.workspace_id == workspace_id))
        for key in sorted(table.foreign_keys, key=lambda key: key.parent.name)
        if "workspace_id" in key.column.table.c
    ]
    return sa.or_(*refers) if refers else None
