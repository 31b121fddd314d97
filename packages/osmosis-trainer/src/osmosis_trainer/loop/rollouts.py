"""A step's rollouts: groups of work items through the one walk (`evaluation.runner`), back as samples with their tokens.

Owns what a rollout is called, which weights and noise it gets, what is kept of it (a line of rollouts.jsonl, the
trajectories of some). How items are dispatched, tried again and judged is the runner's.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shutil
import time
from collections.abc import Callable, Generator, Iterable, Iterator, KeysView, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from osmosis_ai.errors import OsmosisError
from osmosis_ai.evaluation.events import Entry
from osmosis_ai.evaluation.hosting import TRIALS
from osmosis_ai.evaluation.observer import SilentObserver, Tally
from osmosis_ai.evaluation.pool import RolloutPool
from osmosis_ai.evaluation.rows import RowContent
from osmosis_ai.evaluation.runner import Runner
from osmosis_ai.evaluation.verdict import Attempt, Failure, Fault, ItemKey, Outcome, Verdict, WorkItem
from osmosis_ai.evaluation.walk import Limits, StopSwitch
from osmosis_ai.gateway.record import SessionRecord
from osmosis_ai.gateway.server import Gateway
from osmosis_ai.rollout.types import RolloutResultResponse

from osmosis_trainer.engine.sampling import SamplingParams
from osmosis_trainer.loop.lines import Lines
from osmosis_trainer.loop.rollout_policy import RolloutNotes, RolloutPlan, RolloutPolicy
from osmosis_trainer.tokens.tree import TokenTree, token_tree

type Phase = Literal["training", "validation"]


class WalkHaltedError(OsmosisError):
    """The rollouts of a step cannot go on: server after server ended, or no rollout can be carried out."""

    code = "ROLLOUTS"


class WalkInterrupted(OsmosisError):
    """The user asked not to wait for the rollouts in flight."""

    code = "INTERRUPTED"


@dataclass(frozen=True, slots=True)
class Group:
    """The rollouts of one row.

    Attributes:
        row: Position in the dataset.
        noise: Names the group within the run; with the sample's number it decides all its noise.
        refill: Whether it stands in for a group that taught nothing.
    """

    row: int
    noise: str
    refill: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """One rollout that ended.

    Attributes:
        row: Position in the dataset.
        rollout_id: Its id.
        outcome: How it ended.
        reward: Of a graded one.
        failure: Of a failed one.
        tree: Its tokens.
        notes: What the policy saw.
        version: Of the weights that answered it.
        metrics: Numbers the grader added.
        duration_s: From dispatch to verdict.
        attempts: Tries it took.
    """

    row: int
    rollout_id: str
    outcome: Outcome
    reward: float | None
    failure: Failure | None
    tree: TokenTree
    notes: RolloutNotes
    version: str
    metrics: Mapping[str, float] = field(default_factory=dict)
    duration_s: float = 0.0
    attempts: int = 1

    @property
    def refused(self) -> bool:
        """Whether its prompt was too long to be answered at all: it says nothing, whatever was made of that."""
        return self.notes.long_prompt is not None and not self.tree.nodes

    @property
    def kind(self) -> str:
        """How it counts: graded, skipped, long_prompt, or whose fault its failure is."""
        if self.refused:
            return "long_prompt"
        if self.failure is not None:
            return self.failure.fault.value
        return "graded" if self.outcome is Outcome.GRADED else "skipped"


class OwnCpu:
    """CPU seconds of the loop's own work, apart from rollouts, gateway and engine: order, tokens, datums, lines.

    Attributes:
        seconds: So far.
    """

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextlib.contextmanager
    def counted(self) -> Generator[None]:
        """Count a piece of work that does not wait."""
        began = time.thread_time()
        try:
            yield
        finally:
            self.seconds += time.thread_time() - began


@dataclass(frozen=True, slots=True)
class Walk:
    """What every walk of a run goes through; started and ended by the run.

    Attributes:
        run_dir: Trajectories of rollouts lie under it.
        rows: Content of each row of the dataset.
        keep_trajectories: Groups of a training step whose trajectories stay; those of a validation pass all do.
        own_cpu: What the loop's own work has cost.
    """

    run_dir: Path
    rows: Sequence[RowContent]
    pool: RolloutPool
    gateway: Gateway
    policy: RolloutPolicy
    limits: Limits
    stop: StopSwitch
    lines: Lines
    redact: Callable[[str], str]
    note: Callable[[str, str, str, Mapping[str, Any]], None]
    progress: Callable[[int, str, int, int], None]
    keep_trajectories: int = 1
    own_cpu: OwnCpu = field(default_factory=OwnCpu)

    async def collect(
        self,
        groups: Sequence[Group],
        samples: int,
        *,
        step: int,
        phase: Phase,
        version: str,
        sampling: SamplingParams,
        limits: Limits | None = None,
    ) -> list[list[Sample]]:
        """Carry out `samples` rollouts of each group.

        Returns:
            For each group its samples, by number.

        Raises:
            WalkHaltedError: No rollout can be carried out any more.
            WalkInterrupted: The user asked not to wait.
        """
        collecting = _Collecting(self, groups, samples, step, phase, version, sampling)
        runner = Runner(
            collecting.items(),
            pool=self.pool,
            gateway=self.gateway,
            journal=collecting,
            keeper=collecting,
            limits=limits or self.limits,
            observer=collecting,
            stop=self.stop,
            tally=Tally(total=len(groups) * samples),
            redact=self.redact,
            identify=collecting.identify,
        )
        outcome = await runner.run()
        if outcome.error is not None:
            raise outcome.error
        if outcome.halt_code == "interrupted":
            raise WalkInterrupted("Interrupted while rollouts were in flight; the last step that was trained is kept.")
        if outcome.halt_reason is not None:
            raise WalkHaltedError(f"The rollouts of step {step} cannot go on: {outcome.halt_reason}.")
        asyncio.get_running_loop().run_in_executor(None, collecting.tidy)
        return collecting.result()


class _Collecting(SilentObserver):
    """One walk's journal, keeper and observer: what becomes of its items."""

    def __init__(
        self,
        walk: Walk,
        groups: Sequence[Group],
        samples: int,
        step: int,
        phase: Phase,
        version: str,
        sampling: SamplingParams,
    ) -> None:
        self._walk = walk
        self._groups = groups
        self._count = samples
        self._step = step
        self._phase: Phase = phase
        self._version = version
        self._sampling = sampling
        self._trees: dict[str, tuple[TokenTree, RolloutNotes]] = {}
        self._samples: dict[ItemKey, Sample] = {}
        self._ids: dict[ItemKey, list[str]] = {}

    def items(self) -> Iterator[WorkItem]:
        """The work items: group by group, so that whole groups end early."""
        for index, group in enumerate(self._groups):
            content = self._walk.rows[group.row]
            for number in range(self._count):
                yield WorkItem(index, number, group.row, content.messages, content.label, content.metadata)

    def identify(self, item: WorkItem, number: int) -> str:
        """Name a try, and say how its answers are drawn: as those of any other try at the same item."""
        letter = "t" if self._phase == "training" else "v"
        rollout_id = f"{letter}{self._step}-r{item.source_row_index}-{item.run_index}-{secrets.token_hex(4)}"
        noise = f"{self._groups[item.row_index].noise}/{item.run_index}"
        self._walk.policy.plan(rollout_id, RolloutPlan(self._version, self._sampling, noise))
        self._ids.setdefault(item.key, []).append(rollout_id)
        return rollout_id

    def result(self) -> list[list[Sample]]:
        """The samples of each group."""
        return [[self._samples[index, number] for number in range(self._count)] for index in range(len(self._groups))]

    def tidy(self) -> None:
        """Remove the files of rollouts that nobody will look at, on a worker thread."""
        if self._phase == "validation":
            return
        for (index, _), ids in self._ids.items():
            if index >= self._walk.keep_trajectories:
                for rollout_id in ids:
                    shutil.rmtree(self._walk.run_dir / TRIALS / rollout_id, ignore_errors=True)

    # -- Keeper

    async def rollout_ended(
        self, item: WorkItem, rollout_id: str, calls: SessionRecord, result: RolloutResultResponse | None
    ) -> None:
        """Keep the tokens."""
        with self._walk.own_cpu.counted():
            self._trees[rollout_id] = token_tree(calls), self._walk.policy.notes(rollout_id)

    def verdict_recorded(self, verdict: Verdict) -> None:
        """Nothing more to keep."""

    # -- Journal

    def records(self) -> Mapping[ItemKey, Entry]:
        """A step's verdicts are its samples."""
        return {}

    def pending(self, keys: Iterable[ItemKey], *, retry_failed: bool = False) -> KeysView[ItemKey]:
        """All of them: a step is done as a whole or not at all."""
        return dict.fromkeys(keys).keys()

    async def record(self, verdict: Verdict) -> None:
        """Make the sample of a verdict and write its line."""
        with self._walk.own_cpu.counted():
            self._record(verdict)

    def _record(self, verdict: Verdict) -> None:
        tree, notes = self._trees.pop(verdict.rollout_id)
        sample = Sample(
            row=verdict.source_row_index or 0,
            rollout_id=verdict.rollout_id,
            outcome=verdict.outcome,
            reward=None if notes.long_prompt is not None and not tree.nodes else verdict.reward,
            failure=verdict.failure,
            tree=tree,
            notes=notes,
            version=self._version,
            metrics=verdict.metrics,
            duration_s=(verdict.duration_ms or 0.0) / 1000,
            attempts=verdict.attempts,
        )
        self._samples[verdict.key] = sample
        self._walk.lines.add(_line(sample, self._step, self._phase, verdict.key))
        self._walk.progress(self._step, self._phase, len(self._samples), len(self._groups) * self._count)

    def attempt(self, attempt: Attempt) -> None:
        """A try that ended nothing, told by the runner as journal and as observer: note it once."""
        if self._trees.pop(attempt.rollout_id, None) is None:
            return
        failure = attempt.failure
        details = {"rollout_id": attempt.rollout_id, "fault": failure.fault.value, "code": failure.code}
        self._walk.note("WARNING", "dispatch", f"try {attempt.number}: {failure.message}", details)

    async def close(self) -> None:
        """Nothing is held."""


def _line(sample: Sample, step: int, phase: Phase, key: ItemKey) -> dict[str, Any]:
    """The line of rollouts.jsonl."""
    failure = sample.failure
    record: dict[str, Any] = {
        "step": step,
        "phase": phase,
        "group": key[0],
        "sample": key[1],
        "row": sample.row,
        "rollout_id": sample.rollout_id,
        "kind": sample.kind,
        "reward": sample.reward,
        "version": sample.version,
        "turns": len(sample.tree.nodes),
        "branches": len(sample.tree.branches),
        "sampled_tokens": sample.tree.sampled_tokens,
        "length": sample.tree.length,
        "cut": sample.tree.cut,
        "lost_calls": sample.tree.lost_calls,
        "unparsed_calls": sample.notes.unparsed_calls,
        "unfinished_thoughts": sample.notes.unfinished_thoughts,
        "long_prompt": sample.notes.long_prompt,
        "attempts": sample.attempts,
        "duration_s": round(sample.duration_s, 4),
        "metrics": dict(sample.metrics) or None,
    }
    if failure is not None:
        record["error"] = {"fault": failure.fault.value, "code": failure.code, "message": failure.message[:500]}
    return {name: value for name, value in record.items() if value is not None}


def counts_as_reward(sample: Sample, agent_error_reward: float | None) -> float | None:
    """The reward a sample counts with: its own, or the run's for a rollout whose agent failed; else none."""
    if sample.reward is not None:
        return sample.reward
    failed = sample.failure is not None and sample.failure.fault is Fault.AGENT
    return agent_error_reward if failed and not sample.refused else None
