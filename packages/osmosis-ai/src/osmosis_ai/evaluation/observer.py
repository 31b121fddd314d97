"""Who watches a run, and the relay that keeps a slow watcher from slowing the walk."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from osmosis_ai.evaluation.verdict import Attempt, Verdict, WorkItem


@dataclass(frozen=True, slots=True)
class Tally:
    """Where a run stands, earlier invocations included.

    Attributes:
        done: Work items with a verdict.
        total: Work items of the run.
        graded: Verdicts with a reward.
        passed: Rewards at or above the threshold.
        failed: Verdicts that are failures.
        skipped: Verdicts without a reward, stated.
    """

    done: int = 0
    total: int = 0
    graded: int = 0
    passed: int = 0
    failed: int = 0
    skipped: int = 0


class Observer(Protocol):
    """Watches a run. Calls come from one thread, in order, and never from the event loop of the run."""

    def stage(self, text: str) -> None:
        """The run enters a stage: `Preparing the environment`."""
        ...

    def started(self, item: WorkItem) -> None:
        """A try at a work item begins."""
        ...

    def attempt(self, attempt: Attempt) -> None:
        """A try ended nothing and the item is tried again, or stays pending."""
        ...

    def verdict(self, verdict: Verdict, tally: Tally) -> None:
        """A verdict is durable."""
        ...

    def log(self, line: str) -> None:
        """A line was added to logs.txt."""
        ...

    def warning(self, code: str | None, message: str) -> None:
        """Something that the user should know, once."""
        ...


class SilentObserver:
    """Watches nothing."""

    def stage(self, text: str) -> None:
        """Ignore it."""

    def started(self, item: WorkItem) -> None:
        """Ignore it."""

    def attempt(self, attempt: Attempt) -> None:
        """Ignore it."""

    def verdict(self, verdict: Verdict, tally: Tally) -> None:
        """Ignore it."""

    def log(self, line: str) -> None:
        """Ignore it."""

    def warning(self, code: str | None, message: str) -> None:
        """Ignore it."""


class Delivery:
    """Carries calls to a watcher on a thread of its own, in order.

    The thread is there because drawing may block (a terminal that does not read); the walk must not.
    """

    BACKLOG = 5000

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._deliver, name="observer", daemon=True)
        self._thread.start()

    def put(self, call: Callable[[], None]) -> None:
        """Carry a call, however far behind the watcher is."""
        self._calls.put(call)

    def offer(self, call: Callable[[], None]) -> None:
        """Carry a call, unless the watcher is `BACKLOG` calls behind."""
        if self._calls.qsize() < self.BACKLOG:
            self._calls.put(call)

    def close(self, limit_s: float = 5.0) -> BaseException | None:
        """Wait until the watcher has seen everything, at most `limit_s`; returns the error that broke it, if any."""
        self._calls.put(None)
        self._thread.join(limit_s)
        return self._failure

    def _deliver(self) -> None:
        while (call := self._calls.get()) is not None:
            if self._failure is not None:
                continue  # a broken watcher sees no more; the run goes on
            try:
                call()
            except BaseException as error:
                self._failure = error


class Relay(Delivery):
    """An `Observer` that hands every call to another one through a `Delivery`.

    Log lines and started items are dropped while the watcher is far behind; verdicts and warnings never are.
    """

    def __init__(self, observer: Observer) -> None:
        super().__init__()
        self._observer = observer

    def stage(self, text: str) -> None:
        """Pass it on."""
        self.put(lambda: self._observer.stage(text))

    def started(self, item: WorkItem) -> None:
        """Pass it on, unless the watcher is far behind."""
        self.offer(lambda: self._observer.started(item))

    def attempt(self, attempt: Attempt) -> None:
        """Pass it on."""
        self.put(lambda: self._observer.attempt(attempt))

    def verdict(self, verdict: Verdict, tally: Tally) -> None:
        """Pass it on."""
        self.put(lambda: self._observer.verdict(verdict, tally))

    def log(self, line: str) -> None:
        """Pass it on, unless the watcher is far behind."""
        self.offer(lambda: self._observer.log(line))

    def warning(self, code: str | None, message: str) -> None:
        """Pass it on."""
        self.put(lambda: self._observer.warning(code, message))


class Noting:
    """An `Observer` that passes everything on to a relay and writes the lines that logs.txt wants of it."""

    def __init__(self, relay: Relay, note: Callable[[str, str, str, Mapping[str, Any]], None]) -> None:
        self._relay = relay
        self._note = note

    def stage(self, text: str) -> None:
        """Pass it on."""
        self._relay.stage(text)

    def log(self, line: str) -> None:
        """Pass it on."""
        self._relay.log(line)

    def warning(self, code: str | None, message: str) -> None:
        """Pass it on."""
        self._relay.warning(code, message)

    def started(self, item: WorkItem) -> None:
        """Pass it on."""
        self._relay.started(item)

    def attempt(self, attempt: Attempt) -> None:
        """Note why the try ended nothing, pass it on."""
        place = f"row {attempt.row_index} run {attempt.run_index}, try {attempt.number}"
        failure = attempt.failure
        details = {"rollout_id": attempt.rollout_id, "fault": failure.fault.value, "code": failure.code}
        self._note("WARNING", "dispatch", f"{place}: {failure.message}", details)
        self._relay.attempt(attempt)

    def verdict(self, verdict: Verdict, tally: Tally) -> None:
        """Note the verdict, pass it on."""
        details: dict[str, Any] = {"rollout_id": verdict.rollout_id, "status": verdict.outcome.value}
        if verdict.reward is not None:
            details["reward"] = verdict.reward
        message = f"row {verdict.row_index} run {verdict.run_index}"
        if verdict.failure is not None:
            details |= {"fault": verdict.failure.fault.value, "error_type": verdict.failure.code}
            message += f": {verdict.failure.message}"
        self._note("INFO", "result", message, details)
        self._relay.verdict(verdict, tally)
