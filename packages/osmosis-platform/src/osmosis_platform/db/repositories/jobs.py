"""Jobs as a workspace sees them: put in, listed, cancelled. What workers write is in leases.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.listing import Listing
from osmosis_platform.db.tables.jobs import jobs
from osmosis_platform.db.types import UtcTime
from osmosis_platform.domain.job import OPEN, Failure, Fault, JobStatus


@dataclass(frozen=True, slots=True)
class ListedJob:
    """What lists tell of a job.

    Attributes:
        failures: Ends by an error that may pass.
        crashes: Leases that were lost with no other job in the worker.
        error: Of the last failure; kept while the job waits for its next try.
    """

    id: str
    kind: str
    queue: str
    status: JobStatus
    subject_id: str | None
    priority: int
    failures: int
    crashes: int
    cancel_requested_at: datetime | None
    progress: Mapping[str, Any] | None
    result: Mapping[str, Any] | None
    error: Failure | None
    created_at: datetime
    not_before: datetime
    started_at: datetime | None
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class Job(ListedJob):
    """One job as its row tells it.

    Attributes:
        epoch: Grows with each lease; a worker's writes carry the one it was given.
    """

    workspace_id: str
    payload: Mapping[str, Any]
    epoch: int
    owner: str | None
    max_failures: int
    max_crashes: int
    traceparent: str | None


_FIELDS = list(ListedJob.__dataclass_fields__)
_STATUS, _ERROR = _FIELDS.index("status"), _FIELDS.index("error")
_ERROR_COLUMNS = ("error_code", "error_message", "error_fault")


def _columns(item: type[ListedJob]) -> list[sa.Column[Any]]:
    """In the order of the fields; an error has three columns."""
    names = [(_ERROR_COLUMNS if name == "error" else (name,)) for name in item.__dataclass_fields__]
    return [jobs.c[column] for columns in names for column in columns]


COLUMNS = _columns(Job)


def job_of(row: Sequence[Any]) -> Job:
    """The job of a row of `COLUMNS`."""
    return _made(Job, row)


def _made[T: ListedJob](item: type[T], row: Sequence[Any]) -> T:
    facts = list(row)
    facts[_STATUS] = JobStatus(facts[_STATUS])
    code, message, fault = facts[_ERROR : _ERROR + 3]
    facts[_ERROR : _ERROR + 3] = [None if code is None else Failure(code, message or "", cast("Fault", fault))]
    return item(*facts)


@cache
def _listing(*filters: str) -> Listing[ListedJob]:
    """Jobs of a workspace, newest first, by some of `statuses`, `kind` and `subject_id`."""
    where = [jobs.c.workspace_id == sa.bindparam("workspace_id")]
    if "statuses" in filters:
        where.append(jobs.c.status.in_(sa.bindparam("statuses", expanding=True)))
    where += [jobs.c[name] == sa.bindparam(name) for name in ("kind", "subject_id") if name in filters]
    make = partial(_made, ListedJob)
    return Listing(_columns(ListedJob), make, jobs, where=where, order=(jobs.c.id.desc(),))


class JobRepository:
    """Jobs of one workspace, or of `platform`."""

    def __init__(self, work: UnitOfWork) -> None:
        self._work = work

    def add(self, workspace_id: str, values: Mapping[str, Any]) -> bool:
        """Puts a job into the queue; False if an open one has its unique key."""
        now = self._work.clock()
        insert = (sqlite if self._work.dialect == "sqlite" else postgresql).insert
        row = {"status": JobStatus.QUEUED, "created_at": now, "waiting_since": now, "not_before": now, **values}
        statement = insert(jobs).values(workspace_id=workspace_id, **row).on_conflict_do_nothing().returning(jobs.c.id)
        return self._work.execute(statement).first() is not None

    def find_open(self, workspace_id: str, unique_key: str) -> str | None:
        """The id of the open job with this key."""
        mine = (jobs.c.workspace_id == workspace_id) & (jobs.c.unique_key == unique_key)
        return self._work.execute(sa.select(jobs.c.id).where(mine, jobs.c.status.in_(OPEN))).scalar()

    def get(self, workspace_id: str, job_id: str) -> Job | None:
        """One job of this workspace."""
        query = sa.select(*COLUMNS).where(jobs.c.workspace_id == workspace_id, jobs.c.id == job_id)
        row = self._work.execute(query).one_or_none()
        return None if row is None else job_of(row)

    def page(
        self,
        workspace_id: str,
        *,
        limit: int,
        offset: int,
        statuses: Sequence[str] = (),
        kind: str | None = None,
        subject_id: str | None = None,
    ) -> tuple[list[ListedJob], int]:
        """One page, newest first, and how many there are in all."""
        asked = {"statuses": list(statuses) or None, "kind": kind, "subject_id": subject_id}
        filters = {name: value for name, value in asked.items() if value is not None}
        parameters = {"workspace_id": workspace_id, **filters}
        return _listing(*filters).page(self._work, parameters, limit=limit, offset=offset)

    def cancel_queued(self, workspace_id: str, job_id: str) -> Job | None:
        """Cancels a job that nobody runs; None if it is not (or not any more) queued here."""
        now = self._work.clock()
        statement = (
            jobs.update()
            .where(jobs.c.workspace_id == workspace_id, jobs.c.id == job_id, jobs.c.status == JobStatus.QUEUED)
            .values(status=JobStatus.CANCELLED, cancel_requested_at=now, finished_at=now)
            .returning(*COLUMNS)
        )
        row = self._work.execute(statement).one_or_none()
        return None if row is None else job_of(row)

    def request_cancel(self, workspace_id: str, job_id: str) -> Job | None:
        """Asks the worker of a running job to stop; None if it is not running here."""
        now = self._work.clock()
        statement = (
            jobs.update()
            .where(jobs.c.workspace_id == workspace_id, jobs.c.id == job_id, jobs.c.status == JobStatus.RUNNING)
            .values(cancel_requested_at=sa.func.coalesce(jobs.c.cancel_requested_at, sa.literal(now, UtcTime())))
            .returning(*COLUMNS)
        )
        row = self._work.execute(statement).one_or_none()
        return None if row is None else job_of(row)
