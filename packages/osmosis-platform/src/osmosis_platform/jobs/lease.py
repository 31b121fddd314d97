"""Watching the leases of all workers: whose silence is long enough, and what becomes of their jobs."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

import structlog

from osmosis_platform.db.database import Database, UnitOfWork
from osmosis_platform.db.repositories.jobs import Job
from osmosis_platform.db.repositories.leases import Lease, LeaseRepository
from osmosis_platform.domain.job import BEATS_PER_LEASE, OPEN, after_lost_lease, is_lost
from osmosis_platform.errors import StorageFullError, UnavailableError
from osmosis_platform.jobs.handler import ended

log = structlog.get_logger(__name__)

_chance = secrets.SystemRandom().random


@dataclass
class _Silence:
    epoch: int
    beats: int
    seconds: float = 0.0


class LeaseWatch:
    """Measures how long each lease has been silent, by this process's steady clock.

    A look counts at most one beat's time, so that an observer which was itself stopped does not take its own absence for
    the silence of others.

    Args:
        monotonic: Seconds that never go back.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._looked_at = monotonic()
        self._silent: dict[str, _Silence] = {}

    def lost(self, leases: Iterable[Lease], now: datetime) -> list[Lease]:
        """The leases that are lost at this look, and with each those of the same worker that are as silent.

        A worker beats for all its jobs at once. So whoever dies takes them all, though their time runs out one by one.
        """
        at = self._monotonic()
        since_s = at - self._looked_at
        self._looked_at = at
        before, self._silent = self._silent, {}
        lost, doubtful = [], []
        for lease in leases:
            silence = before.get(lease.job_id)
            if silence is None or (silence.epoch, silence.beats) != (lease.epoch, lease.beats):
                silence = _Silence(lease.epoch, lease.beats)
            else:
                silence.seconds += min(since_s, lease.lease_s / BEATS_PER_LEASE)
            self._silent[lease.job_id] = silence
            facts = {"lease_until": lease.lease_until, "lease_s": lease.lease_s, "now": now}
            if is_lost(**facts, unchanged_s=silence.seconds):
                lost.append(lease)
            elif silence.seconds >= lease.lease_s / 2:
                doubtful.append(lease)
        dead = {lease.owner for lease in lost}
        return lost + [lease for lease in doubtful if lease.owner in dead]


def take_over(database: Database, watch: LeaseWatch) -> int:
    """Looks once at all leases and puts the jobs of silent workers back, or ends them; how many."""
    with database.read() as work:
        leases = LeaseRepository(work).leases()
    lost = watch.lost(leases, database.clock())
    jobs_of = Counter(lease.owner for lease in lost)
    taken = 0
    for lease in lost:
        shared = jobs_of[lease.owner] > 1
        try:
            with database.write() as work:
                job = _settle_lost(work, lease, shared=shared, with_ending=True)
        except (UnavailableError, StorageFullError):
            raise
        except Exception:
            # Its room could not settle what the job was for; the job itself must end all the same.
            log.exception("the ending of a job failed", job_id=lease.job_id)
            with database.write() as work:
                job = _settle_lost(work, lease, shared=shared, with_ending=False)
        if job is not None:
            taken += 1
            facts = {"kind": job.kind, "crashes": job.crashes, "status": job.status.value, "shared": shared}
            log.warning("lease lost", job_id=job.id, worker=lease.owner, **facts)
    return taken


def _settle_lost(work: UnitOfWork, lease: Lease, *, shared: bool, with_ending: bool) -> Job | None:
    repository = LeaseRepository(work)
    job = repository.get(lease.job_id)
    if job is None:
        return None
    verdict = after_lost_lease(
        job.kind,
        failures=job.failures,
        crashes=job.crashes,
        max_crashes=job.max_crashes,
        cancel_requested=job.cancel_requested_at is not None,
        jitter=_chance(),
        shared=shared,
    )
    if not repository.settle_lost(lease, verdict, shared=shared):
        return None
    after = repository.get(lease.job_id)
    if with_ending and after is not None and after.status not in OPEN:
        ended(work, after)
    return after
