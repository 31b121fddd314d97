"""The training loop: batches of rollouts in, optimiser steps out, validation beside it, states and checkpoints after it.

Owns the order of things and what overlaps. Rollouts are `rollouts`', numbers `advantages`' and `metrics`', weights the
engine's; servers, signals and files around it are `execution`'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Container, Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from osmosis_ai.errors import OsmosisError

from osmosis_trainer.datum import Datum
from osmosis_trainer.engine.protocol import AdamConfig, PolicyEngine
from osmosis_trainer.loop.advantages import GroupAdvantages, Member, Signal, group_advantages, group_datums
from osmosis_trainer.loop.alarms import check_finite, check_gap
from osmosis_trainer.loop.checkpoints import CheckpointStore, Saved
from osmosis_trainer.loop.config import TrainingConfig
from osmosis_trainer.loop.diagnosis import diagnose
from osmosis_trainer.loop.lines import Lines
from osmosis_trainer.loop.metrics import group_metrics, sample_metrics, update_metrics, validation_metrics
from osmosis_trainer.loop.observer import TrainingObserver
from osmosis_trainer.loop.order import DataOrder
from osmosis_trainer.loop.rollouts import Group, Sample, Walk, WalkInterrupted, counts_as_reward
from osmosis_trainer.loop.writers import MetricWriter

ADAPTER = "policy"
"""The adapter's name in the engine; its versions are `policy-v1`, ..."""

# Steps in a row without a single reward after which nothing is hoped for any more.
_REWARDLESS_STEPS = 2


class NoRewardError(OsmosisError):
    """Step after step no rollout got a reward; says why."""

    code = "NO_REWARD"


@dataclass(frozen=True, slots=True)
class Batch:
    """The rollouts of a step.

    Attributes:
        groups: Samples of each group, refills included.
        refilled: How many groups are refills.
        version_step: Steps that were trained when the weights that drew them were published.
        seconds: From dispatch to the last verdict.
    """

    groups: Sequence[Sequence[Sample]]
    refilled: int
    version_step: int
    seconds: float


@dataclass(slots=True)
class Progress:
    """Where a training stands.

    Attributes:
        step: Steps trained.
        examples: Rollouts since it began.
    """

    step: int = 0
    examples: int = 0


class TrainingLoop:
    """Trains one adapter; used once.

    Args:
        config: The run's options.
        order: Its rows.
        held_out: Rows to validate on.
        engine: Owns the weights.
        walk: Carries out rollouts.
        store: Keeps states and checkpoints.
        metrics: metrics.jsonl.
        writers: Other takers of metrics.
        observer: Watches.
        note: Takes lines for the run's log.
        steps: Where to stop, counted from the training's beginning.
        validated: Steps after which earlier invocations validated.
        facts: What every saved state says beside the position.
        embedded: Whether sampler and trainer are one float32 model, so that the gap alarm holds.
    """

    def __init__(
        self,
        config: TrainingConfig,
        order: DataOrder,
        held_out: Sequence[int],
        *,
        engine: PolicyEngine,
        walk: Walk,
        store: CheckpointStore,
        metrics: Lines,
        writers: Sequence[MetricWriter],
        observer: TrainingObserver,
        note: Callable[[str, str, str, Mapping[str, Any]], None],
        steps: int,
        validated: Container[int],
        facts: Mapping[str, Any],
        embedded: bool,
    ) -> None:
        self._config = config
        self._order = order
        self._held_out = held_out
        self._engine = engine
        self._walk = walk
        self._store = store
        self._metrics = metrics
        self._writers = writers
        self._observer = observer
        self._note = note
        self._steps = steps
        self._validated = validated
        self._facts = facts
        self._embedded = embedded
        self.progress = Progress()
        self.stopping = False
        self._version = ""
        self._version_steps: dict[str, int] = {}
        self._in_use: dict[str, int] = {}
        self._validating: asyncio.Task[None] | None = None
        self._ahead: dict[int, asyncio.Task[Batch]] = {}
        self._flat_steps = 0
        self._rewardless_steps = 0
        self._reasons: list[str] = []
        self._warned: set[str] = set()
        self._save_s = 0.0
        self._counted_cpu_s = 0.0

    async def run(self, saved: Saved | None) -> None:
        """Train until the last step, or until `stopping` is set: then to the end of the step under way.

        Args:
            saved: What to go on from.

        Raises:
            OsmosisError: An alarm, the disk, the rollouts, or a training that gets no rewards.
        """
        await self._begin(saved)
        try:
            due = self.progress.step in (0, self._steps) or self._validation_due
            if self._held_out and due and self.progress.step not in self._validated:
                await self._validate()
            while self.progress.step < self._steps and not self.stopping:
                await self._step()
            if self._validating is not None:
                await self._validating
            self._judge_whole()
        except WalkInterrupted:
            self.stopping = True
        finally:
            await self._abandon()
        await self._checkpoint()

    # -- beginning

    async def _begin(self, saved: Saved | None) -> None:
        config = self._config
        if saved is None:
            await self._engine.create_adapter(ADAPTER, rank=config.lora_rank, alpha=config.lora_alpha, seed=config.seed)
        else:
            await self._engine.load_state(ADAPTER, saved.state)
            facts = saved.facts["progress"]
            self.progress.step = saved.step
            self.progress.examples = facts["examples"]
            self._flat_steps, self._rewardless_steps = facts["flat_steps"], facts["rewardless_steps"]
        await self._publish()

    async def _publish(self) -> None:
        self._version = await self._engine.publish(ADAPTER)
        self._version_steps[self._version] = self.progress.step
        for version in [v for v in self._version_steps if v != self._version and not self._in_use.get(v)]:
            await self._engine.retire(version)
            del self._version_steps[version]

    @contextlib.contextmanager
    def _using(self, version: str) -> Generator[None]:
        """Keep a version published while rollouts draw from it."""
        self._in_use[version] = self._in_use.get(version, 0) + 1
        try:
            yield
        finally:
            self._in_use[version] -= 1

    # -- one step

    async def _step(self) -> None:
        config, step = self._config, self.progress.step
        began = time.monotonic()
        last = min(step + config.staleness, self._steps - 1)
        for ahead in range(step, last + 1):
            if ahead not in self._ahead:
                self._ahead[ahead] = asyncio.create_task(self._collect(ahead), name=f"rollouts of step {ahead}")
        batch = await self._ahead[step]
        del self._ahead[step]
        waited = time.monotonic() - began

        with self._walk.own_cpu.counted():
            values = self._measure(batch)
            datums, signals, stale = self._datums(batch)
            values |= group_metrics(signals, batch.refilled) | {"samples_stale": float(stale)}
        on_policy = batch.version_step == step
        values |= {"staleness": float(step - batch.version_step)}

        training = time.monotonic()
        values |= await self._train(step, datums, on_policy=on_policy)
        trained = time.monotonic()
        self.progress.step += 1
        self.progress.examples += int(values["samples"])
        await self._publish()
        published = time.monotonic()
        self._judge_signal(batch, signals)
        if self._held_out and (self._validation_due or self.progress.step == self._steps):
            await self._validate()
        values |= {
            "epoch": self._order.epoch(step),
            "examples": float(self.progress.examples),
            "rollout_s": batch.seconds,
            "train_s": trained - training,
            "publish_s": published - trained,
            "waited_s": waited,
            "step_s": time.monotonic() - began,
        }
        drawn = values.get("response_length", 0.0) * values["samples"]
        values["tokens_per_s"] = drawn / max(batch.seconds, 1e-9)
        check_finite(self.progress.step, values)
        values |= {"loop_cpu_s": self._walk.own_cpu.seconds - self._counted_cpu_s, "save_s": self._save_s}
        self._counted_cpu_s = self._walk.own_cpu.seconds
        with self._walk.own_cpu.counted():
            self._write("training", values)
        self._observer.step(self.progress.step, self._steps, values)
        if self.progress.step % config.checkpoint_save_freq == 0:
            await self._checkpoint()
        elif self.progress.step % config.state_save_freq == 0:
            await self._save_state()

    async def _collect(self, step: int) -> Batch:
        """The rollouts of a step, with others in place of groups without signal, as far as the run allows."""
        config = self._config
        began = time.monotonic()
        version, version_step = self._version, self.progress.step
        groups = [Group(row, f"training/{step}/{row}/{i}") for i, row in enumerate(self._order.step_rows(step))]
        spare = self._order.refill(step)
        left = int(config.refill_limit * len(groups))
        found: list[list[Sample]] = []
        wanted, refilled = len(groups), 0
        with self._using(version):
            while groups:
                found += await self._walk.collect(
                    groups,
                    config.n_samples_per_prompt,
                    step=step + 1,
                    phase="training",
                    version=version,
                    sampling=config.sampling,
                )
                useful = sum(self._advantages(group).signal is Signal.YES for group in found)
                count = min(wanted - useful, left)
                groups = [Group(row, f"refill/{step}/{row}", refill=True) for row in islice(spare, max(count, 0))]
                left -= len(groups)
                refilled += len(groups)
        return Batch(found, refilled, version_step, time.monotonic() - began)

    def _measure(self, batch: Batch) -> dict[str, float]:
        samples = [sample for group in batch.groups for sample in group]
        for sample in samples:
            if sample.refused:
                self._warn_once(
                    f"long prompt {sample.row}",
                    "LONG_PROMPT",
                    f"Row {sample.row} is skipped: its prompt has {sample.notes.long_prompt} tokens, max_prompt_length "
                    f"is {self._config.max_prompt_length}.",
                )
        return sample_metrics(samples)

    def _advantages(self, group: Sequence[Sample]) -> GroupAdvantages:
        rewards = [counts_as_reward(sample, self._config.agent_error_reward) for sample in group]
        return group_advantages(rewards, std_scaling=self._config.scales_by_std)

    def _datums(self, batch: Batch) -> tuple[list[Datum], list[Signal], int]:
        config = self._config
        context = self._engine.capabilities.context
        if self.progress.step - batch.version_step > config.staleness:
            return [], [Signal.TOO_FEW] * len(batch.groups), sum(map(len, batch.groups))
        datums: list[Datum] = []
        signals: list[Signal] = []
        for group in batch.groups:
            advantages = self._advantages(group)
            signals.append(advantages.signal)
            members = [
                Member(sample.rollout_id, counts_as_reward(sample, config.agent_error_reward), sample.tree)
                for sample in group
            ]
            datums += group_datums(members, advantages, overlong_masking=config.masks_overlong, context=context)
        return datums, signals, 0

    async def _train(self, step: int, datums: Sequence[Datum], *, on_policy: bool) -> dict[str, float]:
        """Take the step's optimiser steps; without datums the weights stay."""
        config = self._config
        lr = config.lr_at(step, self._steps)
        values: dict[str, float] = {"lr": lr, "tokens_trained": 0.0}
        if not datums:
            return values
        adam = AdamConfig(
            lr=lr,
            beta1=config.adam_beta1,
            beta2=config.adam_beta2,
            weight_decay=config.weight_decay,
            clip=config.grad_clip,
        )
        for update in range(config.updates_per_step):
            name = f"step {step} update {update}"
            found = await self._engine.forward_backward(ADAPTER, datums, config.loss, op_id=f"{name} backward")
            if update == 0:
                values |= update_metrics(found.metrics)
                if on_policy and self._embedded:
                    check_gap(step + 1, found.metrics, filtered=config.sampling.filters)
                check_finite(step + 1, values)
            result = await self._engine.optim_step(ADAPTER, adam, op_id=f"{name} optimiser")
            values["grad_norm"] = result.grad_norm
        return values

    # -- signal

    def _judge_signal(self, batch: Batch, signals: Sequence[Signal]) -> None:
        """Say why a training does not learn, and stop one that gets no rewards at all.

        Raises:
            NoRewardError: For two steps no rollout got a reward.
        """
        rewarded = any(sample.reward is not None for group in batch.groups for sample in group)
        self._rewardless_steps = 0 if rewarded else self._rewardless_steps + 1
        if Signal.YES in signals:
            self._flat_steps = 0
            return
        self._flat_steps += 1
        reasons = diagnose(batch.groups)
        if self._rewardless_steps >= _REWARDLESS_STEPS:
            raise NoRewardError(
                f"No rollout of the last {self._rewardless_steps} steps got a reward, so there is nothing to learn "
                "from.\n" + "\n".join(f"  - {reason}" for reason in reasons)
            )
        self._reasons = reasons
        if self._flat_steps % self._config.no_signal_steps == 0:
            self._explain(f"{self._flat_steps} steps in a row had nothing to learn from.")

    def _judge_whole(self) -> None:
        """Say of a training all of whose steps taught nothing that its adapter is the base model, and why."""
        if self._flat_steps and self._flat_steps == self.progress.step:
            self._explain("No step had anything to learn from, so the adapter changes nothing.")

    def _explain(self, what: str) -> None:
        """Warn that nothing is learnt, with the reasons that the last such step gave."""
        self._note("WARNING", "training", " ".join([what, *self._reasons]), {})
        self._observer.warning("NO_SIGNAL", what)
        for reason in self._reasons:
            self._observer.diagnosis(reason)

    def _warn_once(self, key: str, code: str, message: str) -> None:
        if key not in self._warned:
            self._warned.add(key)
            self._note("WARNING", "training", message, {})
            self._observer.warning(code, message)

    # -- validation

    @property
    def _validation_due(self) -> bool:
        interval = self._config.eval_interval
        return interval is not None and self.progress.step % interval == 0

    async def _validate(self) -> None:
        """Begin a pass over the held-out rows with the current weights, beside what comes next."""
        if self._validating is not None:
            await self._validating
        self._validating = asyncio.create_task(
            self._validation(self._version, self.progress.step), name=f"validation after step {self.progress.step}"
        )

    async def _validation(self, version: str, step: int) -> None:
        config = self._config
        began = time.monotonic()
        # the noise is the same at every pass: what differs between two passes is the weights
        groups = [Group(row, f"validation/{row}") for row in self._held_out]
        with self._using(version):
            found = await self._walk.collect(
                groups,
                config.validation_samples,
                step=step,
                phase="validation",
                version=version,
                sampling=config.validation_sampling,
            )
        values = validation_metrics([sample for group in found for sample in group])
        values["validation_s"] = time.monotonic() - began
        self._write("validation", values, step)
        self._observer.validation(step, values)

    # -- keeping

    def _write(self, kind: str, values: Mapping[str, float], step: int | None = None) -> None:
        at = self.progress.step if step is None else step
        self._metrics.add({"step": at, "kind": kind, "time": round(time.time(), 3), **values})
        named = {name if kind == "training" or name == "validation_reward" else f"validation/{name}": value
                 for name, value in values.items()}  # fmt: skip
        for writer in self._writers:
            try:
                writer.write(at, named)
            except Exception as error:  # a service elsewhere must not end a training
                text = f"Metrics could not be handed to {type(writer).__name__.strip('_').lower()}: {error}"
                self._warn_once(f"writer {type(writer).__name__}", "WRITER", text)

    def _state_facts(self) -> dict[str, Any]:
        self._metrics.force()
        self._walk.lines.force()
        progress = self.progress
        return {
            **self._facts,
            "progress": {
                "examples": progress.examples,
                "flat_steps": self._flat_steps,
                "rewardless_steps": self._rewardless_steps,
            },
        }

    async def _save_state(self) -> None:
        began = time.monotonic()
        await self._store.save_state(self._engine, ADAPTER, self.progress.step, self._state_facts())
        self._save_s = time.monotonic() - began

    async def _checkpoint(self) -> None:
        """Save a checkpoint of the present step, unless there is one."""
        step = self.progress.step
        if step == 0 or step in self._store.steps():
            return
        began = time.monotonic()
        path = await self._store.save_checkpoint(self._engine, ADAPTER, self._version, step, self._state_facts())
        self._save_s = time.monotonic() - began
        self._note("INFO", "checkpoint", f"saved after step {step}", {"path": str(path)})
        self._observer.checkpoint(step, path)

    async def _abandon(self) -> None:
        """End what still runs."""
        tasks = [*self._ahead.values(), *([self._validating] if self._validating is not None else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.gather(*tasks, return_exceptions=True)
