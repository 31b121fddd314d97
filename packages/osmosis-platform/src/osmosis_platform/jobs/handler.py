"""What a kind of job is: a function over a `JobContext`, found by name when first needed. The worker calls it.

A handler must be able to run again: its worker may die at any moment, and then another one starts from the beginning with
whatever was written under the fence. It raises `JobFailureError` for what it knows to be wrong; any other error counts as
ours and is tried again. Its writes go through `context.write()`, which refuses a worker whose lease was taken over.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from osmosis_ai.redaction import Redactor

from osmosis_platform import crashpoints
from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.jobs import Job
from osmosis_platform.db.repositories.leases import LeaseRepository
from osmosis_platform.domain.job import Failure, Fault
from osmosis_platform.errors import UnavailableError
from osmosis_platform.secrets.provided import forget_run, read_for_run
from osmosis_platform.secrets.redacting import OWN

if TYPE_CHECKING:
    from osmosis_platform.services import Services

# kind: "module:function", imported when the first job of the kind runs. One line for each kind.
KINDS: dict[str, str] = {
    "jobs.sweep": "osmosis_platform.jobs.sweep:run",
    "identity.sweep": "osmosis_platform.jobs.identity_sweep:run",
    "dataset.process": "osmosis_platform.jobs.dataset:process",
    "datasets.sweep": "osmosis_platform.jobs.dataset_sweep:run",
    "workspaces.sweep": "osmosis_platform.jobs.workspace_sweep:run",
    "repository.sync": "osmosis_platform.jobs.sync:run",
    "repository.poll": "osmosis_platform.jobs.sync:poll",
    "logs.seal": "osmosis_platform.jobs.seal_logs:run",
}

# kind: "module:function" that is called as `ended(work, job)` in the transaction that ends a job of the kind, however it
# ends: also when it was cancelled before it ran, or when its workers died too often. There it settles what the job was for.
ENDINGS: dict[str, str] = {
    "dataset.process": "osmosis_platform.jobs.dataset:ended",
}

type Handler = Callable[[JobContext], Mapping[str, Any] | None]

_OUTAGE_S = 60.0


class JobFailureError(Exception):
    """A handler's word that its job cannot succeed, or not now.

    Args:
        code: Stable, upper case.
        message: The thing, the place, the remedy; no secrets.
        fault: Whose it is.
        retryable: Whether the same job may succeed later.
    """

    def __init__(self, code: str, message: str, *, fault: Fault = "infrastructure", retryable: bool = False) -> None:
        super().__init__(message)
        self.failure = Failure(code, message, fault, retryable)


class JobInterruptedError(Exception):
    """The job must stop here and now; a handler lets it pass."""


class JobCancelledError(JobInterruptedError):
    """Somebody cancelled the job."""


class LeaseLostError(JobInterruptedError):
    """Another worker has the job, or may have it; nothing was written."""


class JobReleasedError(JobInterruptedError):
    """This worker is shutting down; the job goes back into the queue and nothing counts against it."""


@dataclass
class JobContext:
    """What a handler works with. Threads of a handler may share it.

    Attributes:
        services: The parts of this process.
        job: The job, as it was claimed: `id`, `workspace_id`, `kind`, `subject_id`, `payload`, `epoch`, `failures`.
        cpu_seconds: CPU time of child processes that the handler adds, for metering.
        alone: Whether its worker runs nothing beside it, to learn whether it kills workers.
        redactor: Takes secrets out of every line, event, progress, result and error of the job; a handler that opens
            secrets puts one that knows them here first.
    """

    services: Services
    job: Job
    cpu_seconds: float = 0.0
    alone: bool = False
    redactor: Redactor = OWN
    cancelled: threading.Event = field(default_factory=threading.Event)
    lost: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    @property
    def stream_id(self) -> str:
        """Where the job's lines and events go: the stream of its subject, or its own if it has none."""
        return self.job.subject_id or self.job.id

    def check(self) -> None:
        """Call it between steps and in long loops: it costs nothing.

        Raises:
            JobCancelledError: Somebody cancelled the job.
            LeaseLostError: Another worker has it.
            JobReleasedError: This worker is shutting down.
        """
        if self.lost.is_set():
            raise LeaseLostError
        if self.cancelled.is_set():
            raise JobCancelledError
        if self.released.is_set():
            raise JobReleasedError

    @contextmanager
    def write(self, *, durable: bool = False) -> Generator[UnitOfWork]:
        """A transaction of this job: it commits if and only if the lease is still held when it does.

        A database that is away is waited for up to a minute before the block starts.

        Raises:
            LeaseLostError: Another worker has the job, or it was released; nothing is written.
            UnavailableError: The database did not come back, or left before the commit.
        """
        deadline = time.monotonic() + _OUTAGE_S
        pause_s = 0.05
        while True:
            if self.lost.is_set():
                raise LeaseLostError
            entered = False
            try:
                with self.services.database.write(durable=durable) as work:
                    if not LeaseRepository(work).hold(self.job.id, self.job.epoch):
                        self.lost.set()
                        raise LeaseLostError
                    entered = True
                    yield work
                    crashpoints.reach("job.before-commit")
                return
            except UnavailableError:
                if entered or time.monotonic() > deadline:
                    raise
                time.sleep(pause_s)
                pause_s = min(2.0, pause_s * 2)

    def progress(self, facts: Mapping[str, Any], *, work: UnitOfWork | None = None) -> None:
        """Says how far the job is, for whoever looks; within the transaction of `write()` if that is given.

        Raises:
            LeaseLostError: Another worker has the job; nothing is written.
        """
        if work is None:
            with self.services.database.write(durable=False) as work:
                self._set_progress(work, facts)
        else:
            self._set_progress(work, facts)

    def log(
        self,
        level: str,
        step: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        *,
        work: UnitOfWork | None = None,
    ) -> None:
        """Adds a line to the log of the job's subject, or of the job itself if it has none.

        Raises:
            LeaseLostError: Another worker has the job; nothing is written.
        """
        if work is None:
            with self.write() as work:
                self._append_line(work, level, step, message, details)
        else:
            self._append_line(work, level, step, message, details)

    def know(self, *values: str) -> None:
        """Keeps these values out of everything that the job writes from now on."""
        self.redactor = self.redactor.with_values(*values)

    def provided_secrets(self) -> dict[str, str]:
        """The values that came with the run that is the job's subject, by name; nothing the job writes will hold them.

        Raises:
            LeaseLostError: Another worker has the job; it gets nothing.
        """
        with self.write() as work:
            values = read_for_run(self.services.vault, work, self.job)
        self.know(*values.values())
        return values

    def event(self, kind: str, payload: Mapping[str, Any], *, work: UnitOfWork | None = None) -> None:
        """Adds an event to the stream of the job's subject; within the transaction of `write()` if that is given.

        Raises:
            LeaseLostError: Another worker has the job; nothing is written.
        """
        if work is None:
            with self.write() as work:
                self._append_event(work, kind, payload)
        else:
            self._append_event(work, kind, payload)

    def _append_event(self, work: UnitOfWork, kind: str, payload: Mapping[str, Any]) -> None:
        from osmosis_platform.events.log import append_event

        append_event(work, self.job.workspace_id, self.stream_id, kind, payload, redactor=self.redactor)

    def _set_progress(self, work: UnitOfWork, facts: Mapping[str, Any]) -> None:
        facts = self.redactor.value(facts)
        if not LeaseRepository(work).set_progress(self.job.id, self.job.epoch, facts):
            self.lost.set()
            raise LeaseLostError

    def _append_line(
        self, work: UnitOfWork, level: str, step: str, message: str, details: Mapping[str, Any] | None
    ) -> None:
        from osmosis_platform.events.log import LogLine, append_lines

        line = LogLine(level, step, message, details)
        append_lines(work, self.job.workspace_id, self.stream_id, [line], redactor=self.redactor)


def handler_of(kind: str) -> Handler:
    """The handler of a kind.

    Raises:
        JobFailureError: This platform does not know the kind: a newer one put the job into the queue.
    """
    place = KINDS.get(kind)
    if place is None:
        message = f"This platform knows no jobs of kind {kind}; a newer version put it into the queue."
        raise JobFailureError("KIND_UNKNOWN", message, retryable=True)
    return _imported(place)


def ended(work: UnitOfWork, job: Job) -> None:
    """Lets the room of a job settle what it was for, in the transaction that ends it; forgets what came with its run."""
    if job.subject_id is not None:
        forget_run(work, job.workspace_id, job.subject_id)
    if (place := ENDINGS.get(job.kind)) is not None:
        _imported(place)(work, job)


def _imported(place: str) -> Callable[..., Any]:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)
