"""Metering rows and quotas."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.tables.datasets import datasets
from osmosis_platform.db.tables.usage import quotas, usage_records
from osmosis_platform.ids import new_id

EVERYBODY = "*"


@dataclass(frozen=True, slots=True)
class UsageTotal:
    """What a workspace used of one kind in a span of time.

    Attributes:
        quantity: In `unit`.
        cost_usd: The sum of the rows with a price; None when no row has one, which is not a cost of zero.
    """

    kind: str
    unit: str
    quantity: float
    records: int
    cost_usd: float | None


class UsageRepository:
    """Metering rows of one workspace."""

    def __init__(self, work: UnitOfWork) -> None:
        self._work = work

    def add(
        self,
        workspace_id: str,
        kind: str,
        quantity: float,
        unit: str,
        *,
        subject_id: str | None,
        job_id: str | None,
        cost_usd: float | None,
    ) -> None:
        """Notes what was used now."""
        self._work.execute(
            usage_records.insert().values(
                id=new_id("ur"),
                workspace_id=workspace_id,
                at=self._work.clock(),
                kind=kind,
                quantity=quantity,
                unit=unit,
                subject_id=subject_id,
                job_id=job_id,
                cost_usd=cost_usd,
            )
        )

    def totals(self, workspace_id: str, since: datetime, until: datetime) -> list[UsageTotal]:
        """Sums by kind of the rows in `[since, until)`."""
        query = (
            sa.select(
                usage_records.c.kind,
                usage_records.c.unit,
                sa.func.sum(usage_records.c.quantity),
                sa.func.count(),
                sa.func.sum(usage_records.c.cost_usd),
            )
            .where(
                usage_records.c.workspace_id == workspace_id, usage_records.c.at >= since, usage_records.c.at < until
            )
            .group_by(usage_records.c.kind, usage_records.c.unit)
            .order_by(usage_records.c.kind)
        )
        return [UsageTotal(*row) for row in self._work.execute(query)]

    def stored_bytes(self, workspace_id: str) -> int:
        """The bytes of a workspace's datasets as they were uploaded; the deleted and the given up are being removed."""
        given_up = datasets.c.status == "cancelled"
        mine = (datasets.c.workspace_id == workspace_id, datasets.c.deleted_at.is_(None), ~given_up)
        query = sa.select(sa.func.coalesce(sa.func.sum(datasets.c.original_size_bytes), 0)).where(*mine)
        return int(self._work.execute(query).scalar_one())


class WorkspacesUsage:
    """Who used something."""

    GLOBAL = "the accounts of the platform are over all workspaces, also of those that were deleted"

    def __init__(self, work: UnitOfWork) -> None:
        self._work = work

    def ids(self, since: datetime, until: datetime) -> list[str]:
        """The workspaces with metering rows in `[since, until)`."""
        query = sa.select(usage_records.c.workspace_id).distinct()
        span = (usage_records.c.at >= since, usage_records.c.at < until)
        return list(self._work.execute(query.where(*span)).scalars())


class QuotaRepository:
    """Limits: of one workspace, or of every one that has none of its own."""

    def __init__(self, work: UnitOfWork) -> None:
        self._work = work

    def find(self, workspace_id: str, name: str) -> float | None:
        """The limit that holds; None for none."""
        query = sa.select(quotas.c.workspace_id, quotas.c.value).where(
            quotas.c.workspace_id.in_([workspace_id, EVERYBODY]), quotas.c.name == name
        )
        found = {row[0]: row[1] for row in self._work.execute(query)}
        return found.get(workspace_id, found.get(EVERYBODY))

    def all(self, workspace_id: str) -> dict[str, float]:
        """Every limit that holds for a workspace."""
        query = sa.select(quotas.c.workspace_id, quotas.c.name, quotas.c.value)
        rows = self._work.execute(query.where(quotas.c.workspace_id.in_([workspace_id, EVERYBODY]))).all()
        general = {row[1]: row[2] for row in rows if row[0] == EVERYBODY}
        return general | {row[1]: row[2] for row in rows if row[0] == workspace_id}

    def own(self, workspace_id: str) -> dict[str, float]:
        """The limits set for this workspace alone; `*` for those of every one without its own."""
        query = sa.select(quotas.c.name, quotas.c.value).where(quotas.c.workspace_id == workspace_id)
        return {row.name: row.value for row in self._work.execute(query)}

    def put(self, workspace_id: str, name: str, value: float | None) -> None:
        """Sets or, with None, removes a limit; `*` for every workspace."""
        mine = (quotas.c.workspace_id == workspace_id) & (quotas.c.name == name)
        self._work.execute(quotas.delete().where(mine))
        if value is not None:
            self._work.execute(quotas.insert().values(workspace_id=workspace_id, name=name, value=value))
