"""Source snapshots that are in the object store, by the tree they hold."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.tables.git import source_snapshots


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A source tree as an object that workers fetch without git or credentials.

    Attributes:
        tree_sha: Git's name of the tree.
        blob_key: A tar, compressed with zstd; the same bytes for the same tree.
        size_bytes: Of the object.
        sha256: Of the object.
    """

    workspace_id: str
    tree_sha: str
    blob_key: str
    size_bytes: int
    sha256: str
    created_at: datetime


_COLUMNS = [source_snapshots.c[name] for name in Snapshot.__dataclass_fields__]


class SnapshotRepository:
    """Snapshots of one workspace."""

    def __init__(self, work: UnitOfWork) -> None:
        self._work = work

    def find(self, workspace_id: str, tree_sha: str) -> Snapshot | None:
        """The snapshot of a tree, if it was made before."""
        table = source_snapshots
        query = sa.select(*_COLUMNS).where(table.c.workspace_id == workspace_id, table.c.tree_sha == tree_sha)
        row = self._work.execute(query).mappings().one_or_none()
        return None if row is None else Snapshot(**row)

    def add(self, workspace_id: str, tree_sha: str, blob_key: str, size_bytes: int, sha256: str) -> Snapshot:
        """Records an object that is in the store; who comes second gets the first one's row."""
        insert = (sqlite if self._work.dialect == "sqlite" else postgresql).insert
        values = {"tree_sha": tree_sha, "blob_key": blob_key, "size_bytes": size_bytes, "sha256": sha256}
        row = insert(source_snapshots).values(workspace_id=workspace_id, created_at=self._work.clock(), **values)
        self._work.execute(row.on_conflict_do_nothing())
        found = self.find(workspace_id, tree_sha)
        assert found is not None
        return found
