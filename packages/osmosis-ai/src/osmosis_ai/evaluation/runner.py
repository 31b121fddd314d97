"""The walk: work items through rollout server and policy to durable verdicts.

Owns order, concurrency, deadlines, tries, halting and cancellation. Knows no files, no HTTP framework, no database and
no command line: verdicts go to a `Journal`, what else is kept of a rollout to a `Keeper`, servers come from a
`RolloutPool`, answers from a `Gateway`. How a try is judged is in `judgement`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from osmosis_ai.errors import OsmosisError
from osmosis_ai.evaluation.attempt import run_rollout
from osmosis_ai.evaluation.judgement import Judgement, judge, judge_loss
from osmosis_ai.evaluation.observer import Observer, Tally
from osmosis_ai.evaluation.pool import RolloutPool
from osmosis_ai.evaluation.rollout_server import RolloutServer
from osmosis_ai.evaluation.verdict import Attempt, Fault, Outcome, Timings, Verdict, WorkItem
from osmosis_ai.evaluation.walk import Interrupted, Limits, RunOutcome, Stop, StopSwitch
from osmosis_ai.rollout.types import RolloutResultResponse
from osmosis_ai.rollout.types.sample import json_safe_number

if TYPE_CHECKING:
    from osmosis_ai.evaluation.journal import Journal
    from osmosis_ai.gateway.record import CallRecord, SessionRecord
    from osmosis_ai.gateway.server import Gateway

SETTLE_LIMIT_S = 120.0
"""How long cancelled rollouts may take to end."""


class Keeper(Protocol):
    """Keeps what is not a verdict: call records, trajectories, derived files."""

    async def rollout_ended(
        self, item: WorkItem, rollout_id: str, calls: SessionRecord, result: RolloutResultResponse | None
    ) -> None:
        """A try ended, however; called before its verdict or attempt is recorded. Must not raise."""
        ...

    def verdict_recorded(self, verdict: Verdict) -> None:
        """A verdict is durable. Must not raise."""
        ...


@dataclass(slots=True)
class _Try:
    """One more try at an item.

    Attributes:
        number: From 1.
        losses: Tries that ended because the server died or was blocked under them.
        alone: Nothing else may be in flight with it: it is under suspicion.
        server: Where it runs, once it does.
        rollout_id: Its id, once it has one.
    """

    item: WorkItem
    number: int = 1
    losses: int = 0
    alone: bool = False
    server: RolloutServer | None = None
    rollout_id: str = ""


class Runner:
    """Walks work items to verdicts; one use.

    Args:
        items: The pending work items, read lazily.
        pool: Where rollouts run; started.
        gateway: Where their agents find the policy; started. Its `on_call` must be `self.call_ended`.
        journal: Where verdicts become durable.
        keeper: Keeps call records and derived files.
        limits: Bounds.
        observer: Told of everything; must return at once (`observer.Relay`).
        stop: Turned by the user's signals.
        tally: Where the run stands before the walk.
        threshold: A reward of at least this passes, for the tally.
        redact: Removes secrets from error texts.
        identify: Gives a try (its item, its number from 1) its rollout id, unused so far; random ones by default.
    """

    def __init__(
        self,
        items: Iterator[WorkItem],
        *,
        pool: RolloutPool,
        gateway: Gateway,
        journal: Journal,
        keeper: Keeper,
        limits: Limits,
        observer: Observer,
        stop: StopSwitch,
        tally: Tally,
        threshold: float = 1.0,
        redact: Callable[[str], str] = str,
        identify: Callable[[WorkItem, int], str] | None = None,
    ) -> None:
        self._items = items
        self._pool = pool
        self._gateway = gateway
        self._journal = journal
        self._keeper = keeper
        self._limits = limits
        self._observer = observer
        self._stop = stop
        self._tally = tally
        self._threshold = threshold
        self._redact = redact
        self._identify = identify or (lambda item, number: uuid.uuid4().hex)
        self.outcome = RunOutcome()
        self._wake = asyncio.Event()
        self._flying: dict[asyncio.Task[None], _Try] = {}
        self._retries: deque[_Try] = deque()
        self._suspects: deque[_Try] = deque()
        self._waiting = 0  # retries whose delay is not over
        self._lost_in_a_row = 0
        self._price_unknown = False
        self._drained = False  # the items have run out
        self._broken = False  # nothing in flight can be recorded any more

    def call_ended(self, rollout_id: str, call: CallRecord) -> None:
        """Count what a chat call cost; the gateway's `on_call`."""
        limit = self._limits.max_cost_usd
        if call.cost_usd is not None:
            self.outcome.spent_usd += call.cost_usd
            if limit is not None and self.outcome.spent_usd >= limit:
                self._halt(
                    "max_cost",
                    f"the calls since this start cost {self.outcome.spent_usd:.4f} of {limit:g} USD (--max-cost)",
                )
        elif limit is not None and call.response is not None and not self._price_unknown:
            self._price_unknown = True
            self._observer.warning(
                "MAX_COST_UNKNOWN_PRICE", "The price of the model's calls is not known, so --max-cost cannot hold."
            )

    def halt(self, code: str, reason: str) -> None:
        """Dispatch nothing more; what is in flight may end."""
        self._halt(code, reason)

    async def run(self) -> RunOutcome:
        """Walk until every item has its verdict, or dispatch halted and what was in flight has ended.

        Raises:
            Interrupted: The user asked twice to stop.
        """
        self._stop.listen(self._wake.set)
        try:
            while True:
                if self._stop.level is not Stop.NO:
                    await self._drain()
                    break
                self._wake.clear()
                self._dispatch()
                if self._broken or not (self._flying or self._dispatchable):
                    break
                await self._wake.wait()
        finally:
            await self._abandon()
        self.outcome.cancelled += len(self._retries) + len(self._suspects) + self._waiting
        return self.outcome

    # -- dispatch

    @property
    def _dispatchable(self) -> bool:
        if self.outcome.halt_reason is not None:
            return False
        return not self._drained or bool(self._retries or self._suspects or self._waiting)

    def _dispatch(self) -> None:
        limit = self._limits.in_flight(self._pool.capacity)
        while self.outcome.halt_reason is None and len(self._flying) < limit:
            if any(current.alone for current in self._flying.values()):
                return
            if self._suspects:
                if self._flying:
                    return  # a suspect waits until it can be alone
                current = self._suspects.popleft()
            elif self._retries:
                current = self._retries.popleft()
            else:
                item = self._next_item()
                if item is None:
                    return
                current = _Try(item)
                self.outcome.dispatched += 1
            task = asyncio.create_task(self._walk(current))
            self._flying[task] = current
            task.add_done_callback(self._landed)

    def _next_item(self) -> WorkItem | None:
        if self._drained:
            return None
        try:
            item = next(self._items, None)
        except OsmosisError as error:
            self._drained = True
            self._fail(error)
            return None
        self._drained = item is None
        return item

    def _landed(self, task: asyncio.Task[None]) -> None:
        self._flying.pop(task, None)
        if task.cancelled():
            self.outcome.cancelled += 1
        elif (error := task.exception()) is not None:
            self._broken = True
            self._fail(error)
        self._wake.set()

    def _halt(self, code: str, reason: str) -> None:
        if self.outcome.halt_reason is None:
            self.outcome.halt_code, self.outcome.halt_reason = code, self._redact(reason.rstrip(" .\n"))
        self._wake.set()

    def _fail(self, error: BaseException) -> None:
        if self.outcome.error is None:
            self.outcome.error = error
        code = error.error_code.lower() if isinstance(error, OsmosisError) else "internal"
        self._halt(code, str(error) or type(error).__name__)

    def _later(self, current: _Try) -> None:
        """Queue another try after its delay."""
        if current.alone:
            self._suspects.append(current)
            self._wake.set()
            return
        self._waiting += 1

        def due() -> None:
            self._waiting -= 1
            self._retries.append(current)
            self._wake.set()

        delay = self._limits.retry_delay_s * 4 ** (current.number - 2)
        asyncio.get_running_loop().call_later(min(delay, 30.0), due)

    # -- one try

    async def _walk(self, current: _Try) -> None:
        item = current.item
        rollout_id = self._identify(item, current.number)
        started = time.monotonic()
        server = await self._pool.acquire()
        current.server, current.rollout_id = server, rollout_id
        session = self._gateway.open(rollout_id, f"{item.source_row_index}/{item.run_index}")
        self._observer.started(item)
        result: RolloutResultResponse | None = None
        server.in_flight += 1
        try:
            result, phase, judgement = await run_rollout(server, item, session, self._limits, self._stop)
        finally:
            server.in_flight -= 1
            calls = await self._gateway.close(rollout_id)
        await self._keeper.rollout_ended(item, rollout_id, calls, result)
        if result is not None:
            cancelling = self._stop.level is not Stop.NO
            judgement = judge(item, result, calls, last_status=phase, cancelling=cancelling)
        elif server.lost.done():
            repeated = current.losses > 0 and current.number >= self._limits.tries
            judgement = judge_loss(server.loss, repeated=repeated, agent_timeout_s=self._limits.agent_timeout_s)
        assert judgement is not None
        await self._settle(current, rollout_id, judgement, result, calls, (time.monotonic() - started) * 1000)

    # -- its end

    async def _settle(
        self,
        current: _Try,
        rollout_id: str,
        judgement: Judgement,
        result: RolloutResultResponse | None,
        calls: SessionRecord,
        duration_ms: float,
    ) -> None:
        item = current.item
        failure = judgement.failure
        if failure is not None:
            tail = self._redact(failure.traceback_tail) if failure.traceback_tail else None
            failure = replace(
                failure,
                code=self._redact(failure.code),
                message=self._redact(failure.message),
                traceback_tail=tail,
            )
        again = judgement.retry and current.number < self._limits.tries
        stopping = self._stop.level is not Stop.NO
        if judgement.outcome is None or (judgement.retry and (again or stopping)):
            if failure is not None:
                attempt = Attempt(
                    item.row_index, item.run_index, rollout_id, current.number, failure, calls.tokens, calls.cost_usd,
                    duration_ms,
                )  # fmt: skip
                self._journal.attempt(attempt)
                self._observer.attempt(attempt)
            if judgement.halt is not None and failure is not None:
                self._halt(failure.code, judgement.halt)
            if again and not stopping and self.outcome.halt_reason is None:
                lost = failure is not None and failure.code in ("server_died", "server_blocked")
                losses = current.losses + lost
                alone = lost and (losses >= 2 or (failure is not None and failure.code == "server_blocked"))
                self._later(_Try(item, current.number + 1, losses, alone))
            else:
                self.outcome.cancelled += 1
            return
        timings = result.timings if result is not None else None
        verdict = Verdict(
            item.row_index,
            item.run_index,
            rollout_id,
            judgement.outcome,
            source_row_index=item.source_row_index,
            reward=judgement.reward,
            failure=failure,
            tokens=calls.tokens,
            prompt_tokens=calls.prompt_tokens,
            completion_tokens=calls.completion_tokens,
            cost_usd=calls.cost_usd,
            duration_ms=duration_ms,
            timings=Timings(
                duration_ms / 1000,
                timings.queued_s if timings else None,
                timings.agent_s if timings else None,
                timings.grader_s if timings else None,
            ),
            attempts=current.number,
            metrics=_numbers(result),
        )
        await self._journal.record(verdict)
        self.outcome.recorded += 1
        self._pool.finished()
        self._keeper.verdict_recorded(verdict)
        self._count(verdict)
        self._observer.verdict(verdict, self._tally)
        if failure is None or failure.fault is not Fault.INFRASTRUCTURE:
            self._lost_in_a_row = 0
            return
        self._lost_in_a_row += 1
        if self._lost_in_a_row >= self._limits.failures_in_a_row:
            self._halt(
                failure.code,
                f"{self._lost_in_a_row} items in a row failed through no fault of the agent; the last, after "
                f"{current.number} tries: {failure.message}",
            )

    def _count(self, verdict: Verdict) -> None:
        t = self._tally
        reward = verdict.reward
        self._tally = Tally(
            t.done + 1,
            t.total,
            t.graded + (reward is not None),
            t.passed + (reward is not None and reward >= self._threshold),
            t.failed + (verdict.outcome is Outcome.FAILED),
            t.skipped + (verdict.outcome is Outcome.SKIPPED),
        )

    # -- stopping

    async def _drain(self) -> None:
        """Cancel what is in flight and wait until it has settled.

        Raises:
            Interrupted: The user asked again while it settled.
        """
        self._halt("interrupted", "interrupted")
        for task, current in list(self._flying.items()):
            if current.server is None:
                task.cancel()  # it waits for a server
            else:
                current.server.cancel_soon(current.rollout_id)
        deadline = time.monotonic() + SETTLE_LIMIT_S
        while self._flying and self._stop.level is not Stop.NOW and (left := deadline - time.monotonic()) > 0:
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._wake.wait()
        if self._stop.level is Stop.NOW:
            raise Interrupted("Interrupted.")

    async def _abandon(self) -> None:
        """End every task that still runs; their items stay pending."""
        tasks = list(self._flying)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def _numbers(result: RolloutResultResponse | None) -> dict[str, float]:
    """The sample's metrics that are finite numbers."""
    if result is None or result.sample is None:
        return {}
    return {
        name: value
        for name, value in result.sample.metrics.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and json_safe_number(value) is not None
    }
