"""The history of a repository's syncs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.listing import Listing
from osmosis_platform.db.tables.git import repository_syncs
from osmosis_platform.ids import new_id


@dataclass(frozen=True, slots=True)
class Sync:
    """One sync: what set it off, what it found, how it ended.

    Attributes:
        trigger: `push`, `webhook`, `poll`, `manual`, `submit` or `connect`.
        status: `pending`, `syncing`, `success` or `failed`.
        branch: The branch whose commit is told: the default branch, or what was pushed instead.
        rollout_count: Rollouts on that branch.
    """

    id: str
    workspace_id: str
    repository_id: str
    trigger: str
    status: str
    branch: str | None
    commit_sha: str | None
    author: str | None
    message: str | None
    rollout_count: int | None
    error_code: str | None
    error_message: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


_COLUMNS = [repository_syncs.c[name] for name in Sync.__dataclass_fields__]
_HISTORY = Listing(
    _COLUMNS,
    lambda row: Sync(*row),
    repository_syncs,
    where=(
        repository_syncs.c.workspace_id == sa.bindparam("workspace_id"),
        repository_syncs.c.repository_id == sa.bindparam("repository_id"),
    ),
    order=(repository_syncs.c.id.desc(),),
)


class SyncRepository:
    """Syncs of one workspace."""

    def __init__(self, work: UnitOfWork) -> None:
        self._work = work

    def add(self, workspace_id: str, repository_id: str, trigger: str, *, status: str = "pending") -> Sync:
        """Begins the record of a sync."""
        now = self._work.clock()
        values = {
            "id": new_id("sy"),
            "workspace_id": workspace_id,
            "repository_id": repository_id,
            "trigger": trigger,
            "status": status,
            "created_at": now,
            "started_at": now if status == "syncing" else None,
        }
        row = self._work.execute(repository_syncs.insert().values(**values).returning(*_COLUMNS)).mappings().one()
        return Sync(**row)

    def change(self, workspace_id: str, sync_id: str, values: Mapping[str, Any]) -> Sync | None:
        """Changes a sync that has not ended; None if there is no such one."""
        table = repository_syncs
        statement = (
            table.update()
            .where(
                table.c.workspace_id == workspace_id,
                table.c.id == sync_id,
                table.c.status.in_(["pending", "syncing"]),
            )
            .values(**values)
            .returning(*_COLUMNS)
        )
        row = self._work.execute(statement).mappings().one_or_none()
        return None if row is None else Sync(**row)

    def abandon(self, workspace_id: str, repository_id: str, code: str, message: str) -> list[Sync]:
        """Ends the syncs that nobody works on any more as failed, and gives them as they ended."""
        table = repository_syncs
        statement = (
            table.update()
            .where(
                table.c.workspace_id == workspace_id,
                table.c.repository_id == repository_id,
                table.c.status == "syncing",
            )
            .values(status="failed", error_code=code, error_message=message, finished_at=self._work.clock())
            .returning(*_COLUMNS)
        )
        return [Sync(**row) for row in self._work.execute(statement).mappings()]

    def discard(self, workspace_id: str, sync_id: str) -> None:
        """Drops a sync that told nothing new."""
        table = repository_syncs
        self._work.execute(table.delete().where(table.c.workspace_id == workspace_id, table.c.id == sync_id))

    def get(self, workspace_id: str, sync_id: str) -> Sync | None:
        """One sync of this workspace."""
        table = repository_syncs
        query = sa.select(*_COLUMNS).where(table.c.workspace_id == workspace_id, table.c.id == sync_id)
        row = self._work.execute(query).mappings().one_or_none()
        return None if row is None else Sync(**row)

    def find_pending(self, workspace_id: str, repository_id: str) -> Sync | None:
        """The sync that waits for its turn."""
        table = repository_syncs
        query = (
            sa.select(*_COLUMNS)
            .where(
                table.c.workspace_id == workspace_id,
                table.c.repository_id == repository_id,
                table.c.status == "pending",
            )
            .order_by(table.c.id)
            .limit(1)
        )
        row = self._work.execute(query).mappings().one_or_none()
        return None if row is None else Sync(**row)

    def page(self, workspace_id: str, repository_id: str, *, limit: int, offset: int) -> tuple[list[Sync], int]:
        """One page, newest first, and how many there are in all."""
        parameters = {"workspace_id": workspace_id, "repository_id": repository_id}
        return _HISTORY.page(self._work, parameters, limit=limit, offset=offset)
