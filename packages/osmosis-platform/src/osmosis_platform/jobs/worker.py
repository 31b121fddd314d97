"""One worker process: claims jobs, drives their handlers in threads, beats for them, takes over from the silent.

Threads, since handlers are synchronous and wait for disks, databases and child processes: one for each running job, one
for the heartbeats of all of them, and the caller's, which claims. An outage of the database ends none of them.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog
from osmosis_ai.redaction import Redactor

from osmosis_platform import crashpoints
from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.jobs import Job
from osmosis_platform.db.repositories.leases import LeaseRepository
from osmosis_platform.domain.job import BEATS_PER_LEASE, OPEN, PLATFORM, Failure, JobStatus, Verdict, after_failure
from osmosis_platform.errors import OsmosisError, ServiceError, StorageFullError, UnavailableError
from osmosis_platform.jobs.handler import (
    JobCancelledError,
    JobContext,
    JobFailureError,
    JobReleasedError,
    LeaseLostError,
    ended,
    handler_of,
)
from osmosis_platform.jobs.lease import LeaseWatch, take_over
from osmosis_platform.jobs.queue import bell
from osmosis_platform.jobs.schedule import SCHEDULE, Periodic, enqueue_due
from osmosis_platform.secrets.redacting import OWN

if TYPE_CHECKING:
    from osmosis_platform.services import Services

log = structlog.get_logger(__name__)

_chance = secrets.SystemRandom().random
_AWAY = (UnavailableError, StorageFullError)


class Worker:
    """Runs jobs until it is told to stop.

    Args:
        services: The parts of this process.
        queues: Whose jobs it takes.
        slots: How many at a time; default: the setting.
        lease_s: How long it may be silent before its jobs move on; default: the setting.
        poll_s: How often it looks for jobs that other processes put in.
        drain_s: How long running jobs have at a stop. After half of it they are asked to stop and go back to the queue.
        schedule: The kinds that come by themselves.
    """

    def __init__(
        self,
        services: Services,
        *,
        queues: Sequence[str] = ("cpu",),
        slots: int | None = None,
        lease_s: float | None = None,
        poll_s: float = 0.25,
        drain_s: float = 10.0,
        schedule: Mapping[str, Periodic] = SCHEDULE,
    ) -> None:
        self.id = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._services = services
        self._queues = tuple(queues)
        self._slots = services.settings.worker_slots if slots is None else slots
        self._lease_s = services.settings.lease_s if lease_s is None else lease_s
        self._poll_s = poll_s
        self._drain_s = drain_s
        self._schedule = schedule
        self._watch = LeaseWatch()
        self._running: dict[tuple[str, int], JobContext] = {}
        self._changing = threading.Lock()  # guards _running: slots, heartbeat and claims see it
        self._ended = threading.Event()

    def run(self, stop: threading.Event) -> None:
        """Works until `stop` is set, then lets running jobs end, or gives them back, and returns."""
        log.info("worker started", worker=self.id, queues=self._queues, slots=self._slots, lease_s=self._lease_s)
        beating = threading.Thread(target=self._beat_until_ended, name="heartbeat", daemon=True)
        beating.start()
        pause_s = self._poll_s
        look_at = 0.0
        while not stop.is_set():
            try:
                if time.monotonic() >= look_at:
                    look_at = time.monotonic() + min(1.0, self._lease_s / 10)
                    take_over(self._services.database, self._watch)
                    enqueue_due(self._services, self._schedule)
                self._fill()
                pause_s = self._poll_s
            except _AWAY as error:
                pause_s = min(5.0, pause_s * 2)
                log.warning("worker waits for the database", reason=error.message, again_in_s=round(pause_s, 2))
            except Exception:
                pause_s = min(5.0, pause_s * 2)
                log.exception("worker goes on after an error of ours")
            _wait(stop, pause_s)
        self._drain()
        self._ended.set()
        beating.join(timeout=self._lease_s)
        try:
            with self._services.database.write(durable=False) as work:
                LeaseRepository(work).forget_worker(self.id)
        except _AWAY:
            pass  # the sweep forgets it
        log.info("worker ended", worker=self.id)

    def _fill(self) -> None:
        """Claims as many jobs as there are free slots."""
        with self._changing:
            free = self._slots - len(self._running)
            idle, alone = not self._running, any(context.alone for context in self._running.values())
        if free <= 0 or alone:
            return
        database = self._services.database
        with database.read() as work:
            repository = LeaseRepository(work)
            if not repository.is_anything_due(self._queues):
                return
            if not idle and repository.is_suspect_overdue(self._queues):
                return
        # Durable: a PostgreSQL that forgets a claim would give the same epoch to somebody else.
        with database.write() as work:
            repository = LeaseRepository(work)
            suspect = repository.claim_suspect(self._queues, self.id, lease_s=self._lease_s) if idle else None
            claimed = (
                [suspect] if suspect else repository.claim(self._queues, self.id, lease_s=self._lease_s, limit=free)
            )
            crashpoints.reach("job.in-claim")
        crashpoints.reach("job.after-claim")
        for job in claimed:
            context = JobContext(self._services, job, alone=suspect is not None)
            if job.cancel_requested_at is not None:
                context.cancelled.set()
            with self._changing:
                self._running[job.id, job.epoch] = context
            try:
                threading.Thread(target=self._drive, args=(context,), name=f"job-{job.kind}", daemon=True).start()
            except RuntimeError:  # no more threads: the lease runs out, and somebody else has room
                with self._changing:
                    del self._running[job.id, job.epoch]
                log.exception("job could not be started here", job_id=job.id)

    def _drive(self, context: JobContext) -> None:
        """Runs one handler from claim to end; nothing that it raises goes further."""
        job = context.job
        with structlog.contextvars.bound_contextvars(job_id=job.id, kind=job.kind, workspace_id=job.workspace_id):
            # Periodic jobs would fill a log that nobody could read: they are told of when they go wrong.
            say = log.debug if job.workspace_id == PLATFORM else log.info
            say("job started", epoch=job.epoch, failures=job.failures, crashes=job.crashes)
            started, cpu_started = time.monotonic(), time.thread_time()
            try:
                outcome = self._outcome(context)
                crashpoints.reach("job.after-handler")
                context.cpu_seconds += time.thread_time() - cpu_started
                self._end(context, outcome, time.monotonic() - started)
                crashpoints.reach("job.after-end")
            except BaseException:
                log.exception("job could not be ended here; its lease runs out")
            finally:
                with self._changing:
                    self._running.pop((job.id, job.epoch), None)
                bell.ring()

    def _outcome(self, context: JobContext) -> Mapping[str, Any] | Failure | type[BaseException] | None:
        """What the handler returned, or why it did not."""
        try:
            context.check()
            handler = handler_of(context.job.kind)
            crashpoints.reach("job.before-handler")
            with _span(context.job):
                result = handler(context)
            return None if result is None else context.redactor.value(json.loads(json.dumps(result, allow_nan=False)))
        except (JobCancelledError, LeaseLostError, JobReleasedError) as error:
            return type(error)
        except BaseException as error:
            return failure_of(error, context.redactor)

    def _end(
        self, context: JobContext, outcome: Mapping[str, Any] | Failure | type[BaseException] | None, wall_s: float
    ) -> None:
        """Writes the outcome as soon as the database takes it, unless the lease is lost first."""
        pause_s, with_ending = 0.05, True
        while not context.lost.is_set() and outcome is not LeaseLostError:
            try:
                with self._services.database.write() as work:
                    status = self._write_end(work, context, outcome, wall_s, with_ending=with_ending)
                if status is None:
                    context.lost.set()
                    break
                code = outcome.code if isinstance(outcome, Failure) else None
                quiet = context.job.workspace_id == PLATFORM and code is None
                say = log.debug if quiet else log.info
                say("job ended", status=status.value, wall_s=round(wall_s, 3), code=code)
                return
            except _AWAY:
                time.sleep(pause_s)
                pause_s = min(2.0, pause_s * 2)
            except Exception:
                if not with_ending:
                    raise
                # Metering or the job's room could not settle their part; the job itself must end all the same.
                log.exception("the ending of a job failed")
                with_ending = False
        log.warning("job was taken over; nothing of this try counts")

    @staticmethod
    def _write_end(
        work: UnitOfWork,
        context: JobContext,
        outcome: Mapping[str, Any] | Failure | type[BaseException] | None,
        wall_s: float,
        *,
        with_ending: bool,
    ) -> JobStatus | None:
        repository = LeaseRepository(work)
        if not repository.hold(context.job.id, context.job.epoch):
            return None
        job = repository.get(context.job.id)
        assert job is not None
        cancelled = job.cancel_requested_at is not None
        if isinstance(outcome, Failure):
            verdict = after_failure(
                outcome,
                failures=job.failures,
                crashes=job.crashes,
                max_failures=job.max_failures,
                cancel_requested=cancelled,
                jitter=_chance(),
            )
            repository.settle(job.id, job.epoch, verdict)
        elif outcome is JobReleasedError and not cancelled:
            repository.release(job.id, job.epoch)
        elif isinstance(outcome, type):
            repository.settle(job.id, job.epoch, Verdict(JobStatus.CANCELLED, job.failures, job.crashes))
        else:
            repository.finish(job.id, job.epoch, outcome)
        after = repository.get(job.id)
        assert after is not None
        if with_ending:
            _meter(work, job, context.cpu_seconds, wall_s)
            if after.status not in OPEN:
                ended(work, after)
        crashpoints.reach("job.in-end")
        return after.status

    def _beat_until_ended(self) -> None:
        """Prolongs every lease of this worker a few times within each lease, and learns of cancels."""
        every_s = self._lease_s / BEATS_PER_LEASE
        pause_s = 0.0
        while not self._ended.wait(pause_s):
            pause_s = every_s
            try:
                self._beat()
            except _AWAY:
                pause_s = min(1.0, every_s)
            except Exception:
                log.exception("heartbeat goes on after an error of ours")

    def _beat(self) -> None:
        with self._changing:
            contexts = list(self._running.values())
        with self._services.database.write(durable=False) as work:
            repository = LeaseRepository(work)
            repository.see_worker(self.id, host=socket.gethostname(), pid=os.getpid(), queues=self._queues)
            seen = [
                (context, repository.beat(context.job.id, context.job.epoch, lease_s=self._lease_s))
                for context in sorted(contexts, key=lambda context: context.job.id)
            ]
        for context, (held, cancelled) in seen:
            if not held:
                context.lost.set()
            elif cancelled:
                context.cancelled.set()

    def _drain(self) -> None:
        """Lets running jobs end; asks them to stop after half the time; gives back those that do not."""
        now = time.monotonic()
        self._await_idle(now + self._drain_s / 2)
        for context in self._now_running():
            context.released.set()
        self._await_idle(now + self._drain_s)
        for context in self._now_running():
            try:
                with self._services.database.write() as work:
                    self._write_end(work, context, JobReleasedError, 0.0, with_ending=True)
            except _AWAY:
                log.warning("job could not be given back; its lease runs out", job_id=context.job.id)
            context.lost.set()

    def _await_idle(self, until: float) -> None:
        while self._now_running() and time.monotonic() < until:
            time.sleep(0.02)

    def _now_running(self) -> list[JobContext]:
        with self._changing:
            return list(self._running.values())


def failure_of(error: BaseException, redactor: Redactor = OWN) -> Failure:
    """What an error of a handler means for its job; its text without the secrets that the job knew."""
    found = _failure_of(error, redactor)
    return replace(found, message=redactor.text(found.message))


def _failure_of(error: BaseException, redactor: Redactor) -> Failure:
    if isinstance(error, JobFailureError):
        return error.failure
    if isinstance(error, _AWAY):
        return Failure(error.error_code, error.message, "infrastructure", retryable=True)
    if isinstance(error, ServiceError) and error.status < 500:
        return Failure(error.error_code, error.message, "user", retryable=error.status == 429)
    if isinstance(error, OsmosisError):
        return Failure(
            error.error_code, error.message, "user" if not isinstance(error, ServiceError) else "infrastructure"
        )
    log.error("handler failed", exception=redactor.text("".join(traceback.format_exception(error))))
    message = "The platform failed at this job; its log names the cause under the job's id."
    return Failure("INTERNAL", message, "infrastructure", retryable=True)


def _meter(work: UnitOfWork, job: Job, cpu_s: float, wall_s: float) -> None:
    if job.workspace_id == PLATFORM:
        return
    from osmosis_platform.usage.metering import record

    for kind, quantity in (("job.cpu_seconds", cpu_s), ("job.wall_seconds", wall_s)):
        record(work, job.workspace_id, kind, quantity, "s", subject_id=job.subject_id, job_id=job.id)


def _span(job: Job) -> Any:
    """A span of this job below the request that put it into the queue; nothing without the extra `otel`."""
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    parent = TraceContextTextMapPropagator().extract({"traceparent": job.traceparent} if job.traceparent else {})
    tracer = trace.get_tracer("osmosis_platform.jobs")
    return tracer.start_as_current_span(f"job {job.kind}", parent, attributes={"osmosis.job_id": job.id})


def _wait(stop: threading.Event, timeout_s: float) -> None:
    """Waits for a job of this process, but never longer after a stop than a moment."""
    deadline = time.monotonic() + timeout_s
    while not stop.is_set() and (left := deadline - time.monotonic()) > 0:
        if bell.wait(min(left, 0.25)):
            return
