"""The life of a job, pure: who is next, when a lease is lost, what becomes of a job that failed, crashed or was cancelled.

queued ──claim──► running ──returned──► finished
│                 ├── failed for good, or once too often ──► failed
│                 ├── failed, may pass; lease lost; worker drained ──► queued (later)
│                 └── cancel requested and noticed ──► cancelled
└──cancel──► cancelled
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal

type Fault = Literal["user", "agent", "grader", "infrastructure"]

CRASHED = "CRASHED"
PLATFORM = "platform"  # the workspace of jobs that belong to none
ANY = "*"
BEATS_PER_LEASE = 4

_FIRST_BACKOFF_S = 2.0
_LONGEST_BACKOFF_S = 300.0
_CLOCK_SLACK = timedelta(seconds=5)

SUSPECT_AFTER = 2  # leases lost beside others'; once is a power cut or a neighbour, and serial runs are slow
SUSPECT_PATIENCE = timedelta(seconds=30)


class JobStatus(StrEnum):
    """Where a job is; the last three are final."""

    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"


OPEN = (JobStatus.QUEUED, JobStatus.RUNNING)
FINAL = (JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELLED)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a job did not succeed.

    Attributes:
        code: Stable, upper case.
        message: For whom it concerns: the thing, the place, the remedy; no secrets.
        fault: Whose it is.
        retryable: Whether the same job may succeed later.
    """

    code: str
    message: str
    fault: Fault = "infrastructure"
    retryable: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a running job.

    Attributes:
        status: Queued again, or final.
        failures: Ends by an error that may pass, so far.
        crashes: Lost leases that were its own fault, so far.
        delay_s: How long a queued job waits.
        failure: Why; None for a job that was cancelled.
    """

    status: JobStatus
    failures: int
    crashes: int
    delay_s: float = 0.0
    failure: Failure | None = None


def backoff_s(tries: int, jitter: float) -> float:
    """How long to wait after the `tries`-th failure: doubling from 2 s to 5 min, of which half is chance.

    Args:
        tries: 1 after the first failure.
        jitter: 0 to 1, drawn by the caller.
    """
    longest = min(_LONGEST_BACKOFF_S, _FIRST_BACKOFF_S * 2.0 ** min(tries - 1, 32))
    return longest * (0.5 + 0.5 * jitter)


def after_failure(
    failure: Failure, *, failures: int, crashes: int, max_failures: int, cancel_requested: bool, jitter: float
) -> Verdict:
    """What becomes of a job whose handler raised: a failure that may pass is tried `max_failures` times in all."""
    if cancel_requested:
        return Verdict(JobStatus.CANCELLED, failures, crashes)
    if failure.retryable and failures + 1 < max_failures:
        return Verdict(JobStatus.QUEUED, failures + 1, crashes, backoff_s(failures + 1, jitter), failure)
    return Verdict(JobStatus.FAILED, failures + 1, crashes, failure=failure)


def after_lost_lease(
    kind: str, *, failures: int, crashes: int, max_crashes: int, cancel_requested: bool, jitter: float, shared: bool
) -> Verdict:
    """What becomes of a job whose worker fell silent: `max_crashes` lost leases make it a poison that nobody takes.

    With other jobs in the worker nobody knows whose crash it was, so none is counted; who has lost `SUSPECT_AFTER` leases
    in such company runs alone from then on, and then it is known.
    """
    crashes += 0 if shared else 1
    if cancel_requested:
        return Verdict(JobStatus.CANCELLED, failures, crashes)
    if shared:
        return Verdict(JobStatus.QUEUED, failures, crashes)
    if crashes >= max_crashes:
        message = (
            f"The worker of this {kind} job stopped answering {crashes} times with no other job in it, so it is not tried "
            "again. "
            "The platform's log tells what happened to its workers."
        )
        return Verdict(JobStatus.FAILED, failures, crashes, failure=Failure(CRASHED, message))
    return Verdict(JobStatus.QUEUED, failures, crashes, 0.0 if crashes == 1 else backoff_s(crashes - 1, jitter))


def is_lost(*, lease_until: datetime, lease_s: float, now: datetime, unchanged_s: float) -> bool:
    """Whether a lease is lost, to an observer who trusts its own steady clock more than anybody's time of day.

    A holder beats every quarter of its lease. So a lease that did not change for a whole one is lost even if the time of
    day went back, and one that the time of day says is over is believed only after half a lease without a beat.

    Args:
        lease_until: As the holder wrote it.
        lease_s: The holder's lease.
        now: The time of day.
        unchanged_s: For how long this observer has seen no beat, by its monotonic clock.
    """
    return unchanged_s >= lease_s or (lease_until <= now and unchanged_s >= lease_s / 2)


def due_bounds(now: datetime) -> tuple[datetime, datetime]:
    """When a waiting job is due: `not_before` at most the first, or `waiting_since` over the second.

    A job that waits since later than now was put there before the time of day went back; it must not wait for that again.
    """
    return now, now + _CLOCK_SLACK


@dataclass(frozen=True, slots=True)
class Limits:
    """How many jobs may run at a time, by (workspace, kind), each of which may be `*`.

    A row of a workspace stands before the row of `*`, which holds for every workspace without its own. A kind's limit and
    the limit over all kinds both count.
    """

    rows: Mapping[tuple[str, str], int] = field(default_factory=dict)

    def allow(self, workspace_id: str, kind: str, running: Mapping[tuple[str, str], int]) -> bool:
        """Whether one more job of this kind may run in this workspace."""
        of_kind = running.get((workspace_id, kind), 0)
        of_all = sum(count for (owner, _), count in running.items() if owner == workspace_id)
        return of_kind < self._limit(workspace_id, kind) and of_all < self._limit(workspace_id, ANY)

    def _limit(self, workspace_id: str, kind: str) -> float:
        own = self.rows.get((workspace_id, kind))
        return self.rows.get((ANY, kind), float("inf")) if own is None else own


def next_turn(
    waiting: Iterable[tuple[str, str]],
    running: Mapping[tuple[str, str], int],
    limits: Limits,
    turns: Mapping[str, int],
) -> tuple[str, list[str]] | None:
    """Which workspace gets the free slot, and for which of its kinds.

    The one with the fewest running jobs, and among those the one whose last turn is longest ago: a workspace with a
    thousand jobs cannot keep out one with a single job. Priorities order the jobs within a workspace.

    Args:
        waiting: (workspace, kind) of the jobs that are due.
        running: How many run, by (workspace, kind).
        limits: What may run.
        turns: A number that grows with each turn, by workspace.
    """
    kinds: dict[str, list[str]] = {}
    for workspace_id, kind in waiting:
        if limits.allow(workspace_id, kind, running):
            kinds.setdefault(workspace_id, []).append(kind)
    if not kinds:
        return None
    busy: dict[str, int] = {}
    for (workspace_id, _), count in running.items():
        busy[workspace_id] = busy.get(workspace_id, 0) + count
    chosen = min(kinds, key=lambda owner: (busy.get(owner, 0), turns.get(owner, 0), owner))
    return chosen, sorted(kinds[chosen])
