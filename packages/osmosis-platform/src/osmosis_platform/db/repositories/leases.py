"""The worker's side of jobs: claim, beat, fenced writes, ends; limits, turns, the schedule, and who works."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.jobs import COLUMNS, Job, job_of
from osmosis_platform.db.tables.jobs import job_limits, job_schedule, job_turns, jobs, workers
from osmosis_platform.db.types import UtcTime
from osmosis_platform.domain.job import (
    FINAL,
    SUSPECT_AFTER,
    SUSPECT_PATIENCE,
    JobStatus,
    Limits,
    Verdict,
    due_bounds,
    next_turn,
)

# Names the lock under which PostgreSQL's claims and ends take turns; any number that nobody else uses.
_CLAIM_LOCK = 0x6F736D6A

# Workers died with it more than once while they ran other jobs too: it runs alone until it is known whose fault that was.
_IS_SUSPECT = jobs.c.shared_losses >= SUSPECT_AFTER


@dataclass(frozen=True, slots=True)
class Lease:
    """A running job as an observer sees it."""

    job_id: str
    epoch: int
    owner: str
    beats: int
    lease_until: datetime
    lease_s: float


class LeaseRepository:
    """What workers do with jobs of every workspace."""

    GLOBAL: ClassVar[str] = "a worker serves every workspace; each write names the job and the epoch of its lease"

    def __init__(self, work: UnitOfWork) -> None:
        self._work = work

    def is_anything_due(self, queues: Sequence[str]) -> bool:
        """Whether a claim may find something: a cheap question, asked often."""
        return self._work.execute(sa.select(jobs.c.id).where(*self._due(queues)).limit(1)).first() is not None

    def claim(self, queues: Sequence[str], owner: str, *, lease_s: float, limit: int) -> list[Job]:
        """Leases up to `limit` jobs to `owner`, each under a new epoch; suspects only come by `claim_suspect`.

        SQLite has one writer at a time. On PostgreSQL claims take turns by an advisory lock, since two of them that count
        running jobs together would overrun a limit; rows that somebody is cancelling are skipped.
        """
        return self._claim([*self._due(queues), ~_IS_SUSPECT], owner, lease_s, limit)

    def claim_suspect(self, queues: Sequence[str], owner: str, *, lease_s: float) -> Job | None:
        """Leases a job that may have killed workers to `owner`, who runs nothing and takes nothing else beside it."""
        claimed = self._claim([*self._due(queues), _IS_SUSPECT], owner, lease_s, 1)
        return claimed[0] if claimed else None

    def is_suspect_overdue(self, queues: Sequence[str]) -> bool:
        """Whether a suspect has waited so long for an idle worker that busy ones should become idle."""
        long_since = jobs.c.not_before <= self._work.clock() - SUSPECT_PATIENCE
        query = sa.select(jobs.c.id).where(*self._due(queues), _IS_SUSPECT, long_since)
        return self._work.execute(query.limit(1)).first() is not None

    def _claim(self, due: Sequence[sa.ColumnElement[bool]], owner: str, lease_s: float, limit: int) -> list[Job]:
        if self._work.dialect == "postgresql":
            self._work.execute(sa.select(sa.func.pg_advisory_xact_lock(_CLAIM_LOCK)))
        waiting = {
            (row.workspace_id, row.kind)
            for row in self._work.execute(sa.select(jobs.c.workspace_id, jobs.c.kind).distinct().where(*due))
        }
        if not waiting:
            return []
        running = self._running()
        limits = self.limits()
        turns = {row.workspace_id: row.turn for row in self._work.execute(sa.select(job_turns))}
        claimed: list[Job] = []
        while len(claimed) < limit and (turn := next_turn(waiting, running, limits, turns)) is not None:
            workspace_id, kinds = turn
            job = self._lease_first(due, workspace_id, kinds, owner, lease_s)
            if job is None:
                waiting -= {(workspace_id, kind) for kind in kinds}
                continue
            claimed.append(job)
            running[workspace_id, job.kind] = running.get((workspace_id, job.kind), 0) + 1
            turns[workspace_id] = max(turns.values(), default=0) + 1
            self._upsert(job_turns, {"workspace_id": workspace_id}, {"turn": turns[workspace_id]})
        return claimed

    def beat(self, job_id: str, epoch: int, *, lease_s: float) -> tuple[bool, bool]:
        """Prolongs a lease: (is it still held, is a cancel requested)."""
        statement = (
            jobs.update()
            .where(*self._held(job_id, epoch))
            .values(lease_until=self._work.clock() + timedelta(seconds=lease_s), beats=jobs.c.beats + 1)
            .returning(jobs.c.cancel_requested_at)
        )
        row = self._work.execute(statement).one_or_none()
        return row is not None, row is not None and row.cancel_requested_at is not None

    def hold(self, job_id: str, epoch: int) -> bool:
        """Locks the job's row until the transaction ends, if the lease is still held: the fence of every write."""
        query = sa.select(jobs.c.id).where(*self._held(job_id, epoch)).with_for_update(key_share=True)
        return self._work.execute(query).first() is not None

    def set_progress(self, job_id: str, epoch: int, progress: Mapping[str, Any]) -> bool:
        """Writes how far the job is; False if the lease is not held any more."""
        statement = jobs.update().where(*self._held(job_id, epoch)).values(progress=dict(progress))
        return self._work.execute(statement).rowcount == 1

    def finish(self, job_id: str, epoch: int, result: Mapping[str, Any] | None) -> bool:
        """Ends a job that did its work; False if the lease is not held any more."""
        values = {"result": None if result is None else dict(result), "error_code": None, "error_message": None}
        return self._end(self._held(job_id, epoch), JobStatus.FINISHED, values)

    def settle(self, job_id: str, epoch: int, verdict: Verdict) -> bool:
        """Ends a job, or puts it back into the queue; False if the lease is not held any more.

        Its worker survived it, so it is no suspect any more.
        """
        return self._settle(self._held(job_id, epoch), verdict, shared_losses=0)

    def settle_lost(self, lease: Lease, verdict: Verdict, *, shared: bool) -> bool:
        """The same for a lease that fell silent; False if it has beaten since.

        Args:
            lease: As it was seen.
            verdict: What becomes of the job.
            shared: Whether other jobs' leases of the same worker fell silent with it.
        """
        where = [*self._held(lease.job_id, lease.epoch), jobs.c.beats == lease.beats]
        return self._settle(where, verdict, **({"shared_losses": jobs.c.shared_losses + 1} if shared else {}))

    def release(self, job_id: str, epoch: int) -> bool:
        """Puts a job back at once, as if it had never been claimed but for its epoch."""
        return self._settle(self._held(job_id, epoch), None)

    def get(self, job_id: str) -> Job | None:
        """One job of any workspace."""
        row = self._work.execute(sa.select(*COLUMNS).where(jobs.c.id == job_id)).one_or_none()
        return None if row is None else job_of(row)

    def leases(self) -> list[Lease]:
        """Every lease that is held."""
        names = ("epoch", "owner", "beats", "lease_until", "lease_s")
        query = sa.select(jobs.c.id.label("job_id"), *(jobs.c[name] for name in names))
        rows = self._work.execute(query.where(jobs.c.status == JobStatus.RUNNING).order_by(jobs.c.id)).mappings()
        return [Lease(**row) for row in rows]

    def limits(self) -> Limits:
        """What may run at a time."""
        return Limits({(row.workspace_id, row.kind): row.running for row in self._work.execute(sa.select(job_limits))})

    def set_limit(self, workspace_id: str, kind: str, running: int | None) -> None:
        """Limits how many jobs may run at a time; None removes the limit."""
        keys = {"workspace_id": workspace_id, "kind": kind}
        if running is None:
            self._work.execute(job_limits.delete().filter_by(**keys))
        else:
            self._upsert(job_limits, keys, {"running": running})

    def counts(self) -> dict[tuple[str, str, str], int]:
        """How many open jobs there are by (queue, kind, status), for metrics."""
        columns = jobs.c.queue, jobs.c.kind, jobs.c.status
        rows = self._work.execute(
            sa.select(*columns, sa.func.count().label("jobs")).where(jobs.c.status.not_in(FINAL)).group_by(*columns)
        )
        return {(row.queue, row.kind, row.status): row.jobs for row in rows}

    def begin_period(self, kind: str, every_s: float) -> bool:
        """Whether it is this caller who runs a periodic kind now: true for one caller in each period.

        A next period that is further away than one was set before the time of day went back, and does not count.
        """
        now, future = due_bounds(self._work.clock())
        next_at = now + timedelta(seconds=every_s)
        insert = (sqlite if self._work.dialect == "sqlite" else postgresql).insert
        first = insert(job_schedule).values(kind=kind, next_at=next_at).on_conflict_do_nothing()
        if self._work.execute(first.returning(job_schedule.c.kind)).first() is not None:
            return True
        far = job_schedule.c.next_at > future + timedelta(seconds=every_s)
        statement = (
            job_schedule.update()
            .where(job_schedule.c.kind == kind, (job_schedule.c.next_at <= now) | far)
            .values(next_at=next_at)
        )
        return self._work.execute(statement).rowcount == 1

    def due_periods(self, periods: Mapping[str, float]) -> list[str]:
        """Which periodic kinds may be due: a cheap question before `begin_period`, which decides."""
        now, future = due_bounds(self._work.clock())
        known = {row.kind: row.next_at for row in self._work.execute(sa.select(job_schedule))}
        return [
            kind
            for kind, every_s in periods.items()
            if kind not in known or not now < known[kind] <= future + timedelta(seconds=every_s)
        ]

    def see_worker(self, worker_id: str, *, host: str, pid: int, queues: Sequence[str]) -> None:
        """Says that a worker is alive."""
        now = self._work.clock()
        seen = workers.update().where(workers.c.id == worker_id).values(seen_at=now)
        if self._work.execute(seen).rowcount == 0:
            values = {"id": worker_id, "host": host, "pid": pid, "queues": list(queues)}
            self._work.execute(workers.insert().values(**values, started_at=now, seen_at=now))

    def forget_worker(self, worker_id: str) -> None:
        """Says that a worker has ended."""
        self._work.execute(workers.delete().where(workers.c.id == worker_id))

    def sweep(self, *, ended_before: datetime, workers_before: datetime) -> int:
        """Deletes jobs that ended long ago and workers that said nothing for long; how many jobs."""
        self._work.execute(workers.delete().where(workers.c.seen_at < workers_before))
        old = jobs.delete().where(jobs.c.status.in_(FINAL), jobs.c.finished_at < ended_before)
        return self._work.execute(old).rowcount

    def _due(self, queues: Sequence[str]) -> list[sa.ColumnElement[bool]]:
        now, future = due_bounds(self._work.clock())
        due = (jobs.c.not_before <= now) | (jobs.c.waiting_since > future)
        return [jobs.c.status == JobStatus.QUEUED, jobs.c.queue.in_(queues), due]

    def _running(self) -> dict[tuple[str, str], int]:
        columns = jobs.c.workspace_id, jobs.c.kind
        count = sa.func.count().label("jobs")
        query = sa.select(*columns, count).where(jobs.c.status == JobStatus.RUNNING).group_by(*columns)
        return {(row.workspace_id, row.kind): row.jobs for row in self._work.execute(query)}

    def _lease_first(
        self,
        due: Sequence[sa.ColumnElement[bool]],
        workspace_id: str,
        kinds: Sequence[str],
        owner: str,
        lease_s: float,
    ) -> Job | None:
        query = (
            sa.select(jobs.c.id)
            .where(*due, jobs.c.workspace_id == workspace_id, jobs.c.kind.in_(kinds))
            .order_by(jobs.c.priority.desc(), jobs.c.id)
            .limit(1)
            .with_for_update(skip_locked=True)
        )
        job_id = self._work.execute(query).scalar()
        if job_id is None:
            return None
        now = self._work.clock()
        lease = {"owner": owner, "lease_until": now + timedelta(seconds=lease_s), "lease_s": lease_s, "beats": 0}
        statement = (
            jobs.update()
            .where(jobs.c.id == job_id, jobs.c.status == JobStatus.QUEUED)
            .values(
                status=JobStatus.RUNNING,
                epoch=jobs.c.epoch + 1,
                started_at=sa.func.coalesce(jobs.c.started_at, sa.literal(now, UtcTime())),
                **lease,
            )
            .returning(*COLUMNS)
        )
        row = self._work.execute(statement).one_or_none()
        return None if row is None else job_of(row)

    @staticmethod
    def _held(job_id: str, epoch: int) -> list[sa.ColumnElement[bool]]:
        return [jobs.c.id == job_id, jobs.c.epoch == epoch, jobs.c.status == JobStatus.RUNNING]

    def _settle(self, where: Sequence[sa.ColumnElement[bool]], verdict: Verdict | None, **values: Any) -> bool:
        if verdict is not None:
            values |= {"failures": verdict.failures, "crashes": verdict.crashes}
            if verdict.failure is not None:
                failure = verdict.failure
                values |= {"error_code": failure.code, "error_message": failure.message, "error_fault": failure.fault}
        if verdict is not None and verdict.status is not JobStatus.QUEUED:
            return self._end(where, verdict.status, values)
        now = self._work.clock()
        delay = timedelta(seconds=0 if verdict is None else verdict.delay_s)
        values |= {"status": JobStatus.QUEUED, "waiting_since": now, "not_before": now + delay}
        return (
            self._work.execute(jobs.update().where(*where).values(owner=None, lease_until=None, **values)).rowcount == 1
        )

    def _end(self, where: Sequence[sa.ColumnElement[bool]], status: JobStatus, values: Mapping[str, Any]) -> bool:
        ended = {"status": status, "finished_at": self._work.clock(), "owner": None, "lease_until": None}
        return self._work.execute(jobs.update().where(*where).values(**ended, **values)).rowcount == 1

    def _upsert(self, table: sa.Table, keys: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        insert = (sqlite if self._work.dialect == "sqlite" else postgresql).insert
        statement = insert(table).values(**keys, **values)
        self._work.execute(statement.on_conflict_do_update(index_elements=list(keys), set_=dict(values)))
