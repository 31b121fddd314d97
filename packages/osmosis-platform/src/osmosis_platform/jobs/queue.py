"""Putting jobs into the queue and cancelling them, within the caller's transaction. Who runs them: jobs/worker.py."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.jobs import JobRepository
from osmosis_platform.domain.job import PLATFORM
from osmosis_platform.errors import MissingError, TakenError, UnavailableError
from osmosis_platform.ids import new_id
from osmosis_platform.jobs.handler import KINDS, ended

__all__ = ["PLATFORM", "Bell", "bell", "enqueue", "request_cancel"]


class Bell:
    """Wakes the worker of this process when a job was committed; workers of other processes look by themselves."""

    def __init__(self) -> None:
        self._rung = threading.Event()

    def ring(self) -> None:
        """A job was committed, or something else changed that a worker should look at."""
        self._rung.set()

    def wait(self, timeout_s: float) -> bool:
        """Waits for a ring; whether there was one."""
        rung = self._rung.wait(timeout_s)
        self._rung.clear()
        return rung


bell = Bell()


def enqueue(
    work: UnitOfWork,
    workspace_id: str,
    kind: str,
    payload: Mapping[str, Any],
    *,
    subject_id: str | None = None,
    unique_key: str | None = None,
    queue: str = "cpu",
    priority: int = 0,
    not_before: datetime | None = None,
    max_failures: int = 3,
    max_crashes: int = 3,
) -> str:
    """Puts a job into the queue in the caller's transaction: it exists exactly if what it works on does.

    Args:
        work: The open transaction.
        workspace_id: Whose job it is; `PLATFORM` for none's.
        kind: One of `KINDS`.
        payload: JSON for the handler; never a secret, since pages show it.
        subject_id: What it works on; logs of the job go to the stream of this id.
        unique_key: Within the workspace; while a job with this key is open, that one is returned and nothing is added.
        queue: Which workers take it.
        priority: Higher first, within the workspace.
        not_before: When it may start; default: at once.
        max_failures: How many tries it has with errors that may pass.
        max_crashes: How many leases lost with no other job in the worker make it a poison that is not tried again.

    Returns:
        The id of the job.
    """
    if kind not in KINDS:
        raise ValueError(f"no kind of job is called {kind!r}; jobs/handler.py: KINDS lists them")
    key = None if unique_key is None else f"{workspace_id}:{unique_key}"
    job_id = new_id("jo")
    values: dict[str, Any] = {
        "id": job_id,
        "kind": kind,
        "queue": queue,
        "priority": priority,
        "subject_id": subject_id,
        "payload": json.loads(json.dumps(payload, allow_nan=False)),
        "unique_key": key,
        "max_failures": max_failures,
        "max_crashes": max_crashes,
        "traceparent": _traceparent(),
    }
    if not_before is not None:
        values["not_before"] = not_before
    repository = JobRepository(work)
    for _ in range(100):
        if repository.add(workspace_id, values):
            work.after_commit(bell.ring)
            return job_id
        assert key is not None
        if (open_id := repository.find_open(workspace_id, key)) is not None:
            return open_id
        time.sleep(0.01)  # it ended between the two statements, or its transaction is about to commit
    raise UnavailableError(f"The {kind} job could not be put into the queue. Try again in a moment.")


def request_cancel(work: UnitOfWork, workspace_id: str, job_id: str) -> None:
    """Cancels a job: at once if nobody runs it, otherwise its worker is asked and sees it within a heartbeat.

    Raises:
        MissingError: No such job in this workspace.
        TakenError: It has ended already in another way; a second cancel of a cancelled job is fine.
    """
    repository = JobRepository(work)
    for _ in range(3):  # a worker may claim or release it between the statements
        if (job := repository.cancel_queued(workspace_id, job_id)) is not None:
            ended(work, job)
            return
        if repository.request_cancel(workspace_id, job_id) is not None:
            return
        job = repository.get(workspace_id, job_id)
        if job is None:
            raise MissingError(f"There is no job {job_id} in this workspace.")
        if job.status == "cancelled":
            return
        if job.finished_at is not None:
            raise TakenError(f"Job {job_id} has already {job.status}, so there is nothing to cancel.", field="job")
    raise UnavailableError(f"Job {job_id} is just changing hands. Try again in a moment.")


def _traceparent() -> str | None:
    """The W3C trace context of the request at hand, so that the job's spans belong to it."""
    from opentelemetry import trace

    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"
