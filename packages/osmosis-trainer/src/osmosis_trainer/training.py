"""The public face of training: `TrainingRun.open(request)` checks and plans, `await run.execute(...)` trains.

    with TrainingRun.open(request, warn=warn) as run:
        show(run.plan)
        report = await run.execute(secrets={}, observer=observer)

Leaves the loop to `loop`, engines to `engines`, and questions to the user and drawing to the command line.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from osmosis_ai.errors import ConflictError, ValidationError
from osmosis_ai.evaluation.hosting import SERVER_RECORD
from osmosis_ai.evaluation.lock import run_lock
from osmosis_ai.evaluation.names import check_run_name, generate_run_name
from osmosis_ai.evaluation.process import reap
from osmosis_ai.evaluation.rows import RowContent

from osmosis_trainer.chat.files import read_chat_files
from osmosis_trainer.engine.protocol import PolicyEngine
from osmosis_trainer.engines import open_engine
from osmosis_trainer.loop.checkpoints import CheckpointStore, Saved
from osmosis_trainer.loop.config import WRITERS, TrainingConfig, training_options
from osmosis_trainer.loop.diagnosis import diagnose
from osmosis_trainer.loop.lines import read_lines
from osmosis_trainer.loop.metrics import METRICS, Metric
from osmosis_trainer.loop.observer import SilentTrainingObserver, TrainingObserver
from osmosis_trainer.loop.order import DataOrder, hold_out
from osmosis_trainer.loop.plan import TrainingPlan, make_plan, record_speed
from osmosis_trainer.loop.request import (
    TrainingRequest,
    Warn,
    changed,
    identity,
    latest_run,
    read_contents,
    read_training_manifest,
    refuse_existing,
    write_manifest,
)
from osmosis_trainer.loop.writers import check_writers
from osmosis_trainer.models import TRAININGS, ModelSource, find_model, folder_digest

if TYPE_CHECKING:
    from osmosis_trainer.loop.loop import Progress

__all__ = [
    "METRICS",
    "TRAININGS",
    "WRITERS",
    "Metric",
    "SilentTrainingObserver",
    "TrainingConfig",
    "TrainingObserver",
    "TrainingPlan",
    "TrainingReport",
    "TrainingRequest",
    "TrainingRun",
    "diagnose",
    "read_metrics",
    "training_options",
]


@dataclass(frozen=True, slots=True)
class TrainingReport:
    """What a training came to, over all its invocations.

    Attributes:
        run_name: Its name.
        run_dir: Its directory.
        status: `finished` after its last step; `stopped` where the user ended it, to be gone on with `--resume`.
        steps: Steps trained.
        steps_total: Steps of the whole training.
        seconds: Of this invocation.
        examples: Rollouts trained from or left out.
        training_reward: By step, where there was one.
        validation_reward: By steps trained before the pass.
        checkpoints: Folders, by step.
        model_path: What evaluates the last checkpoint; None without one.
    """

    run_name: str
    run_dir: Path
    status: Literal["finished", "stopped"]
    steps: int
    steps_total: int
    seconds: float
    examples: int
    training_reward: Mapping[int, float]
    validation_reward: Mapping[int, float]
    checkpoints: Mapping[int, Path]
    model_path: str | None


class TrainingRun:
    """A training that this process holds the lock of; a context manager, opened by `TrainingRun.open`.

    Attributes:
        request: What was asked for.
        name: Its name.
        run_dir: Its directory.
        config: Its options.
        model: The base model.
        engine: Owns its weights; idle until `execute`, which closes it.
        contents: What the rollouts get of each row.
        order: Rows to train on.
        held_out: Rows to validate on.
        steps: Where it ends.
        inputs: What decides its course.
        store: Its states and checkpoints.
        saved: What it goes on from; None for a new one.
    """

    def __init__(
        self,
        request: TrainingRequest,
        name: str,
        config: TrainingConfig,
        model: ModelSource,
        engine: PolicyEngine,
        contents: Sequence[RowContent],
        inputs: Mapping[str, Any],
        saved: Saved | None,
        release: contextlib.ExitStack,
    ) -> None:
        self.request = request
        self.name = name
        self.run_dir = request.output_root / name
        self.config = config
        self.model = model
        self.engine = engine
        self.contents = contents
        self.order, self.held_out = data_order(config, request.rows or range(len(contents)))
        self.steps = min(self.order.steps, config.max_steps or self.order.steps)
        self.inputs = inputs
        self.store = CheckpointStore(self.run_dir, keep=config.keep_checkpoints)
        self.saved = saved
        self._release = release

    @classmethod
    def open(cls, request: TrainingRequest, *, warn: Warn) -> Self:
        """Check everything that can be checked, take the run's lock, make or find the run's directory.

        Raises:
            ValidationError: The config, the dataset, the model, the rollout or a saved state is wrong. Nothing was
                made.
            ConflictError: Another process holds the run, it exists already, or its inputs changed.
            NotFoundError: There is no training to go on with.
            ModuleNotFoundError: The engine's extra is not installed.
        """
        request.check()
        config = request.config
        check_writers(config.writer_names)
        model = find_model(request.file.model_path, request.workspace_dir)
        if model.adapter is not None:
            raise ValidationError(
                f"model_path {model.name!r} is a trained adapter; a training begins at a base model. Name {model.base!r} "
                "as model_path, or go on with that training with --resume."
            )
        contents = read_contents(request.dataset)
        _, held_out = data_order(config, request.rows or range(len(contents)))  # refuses a dataset that is too small
        if not held_out and config.eval_interval is not None:
            warn(None, "eval_interval is set but no rows are held out (validation_rows is 0): nothing is validated.")
        engine = open_engine(request.engine, model.folder, base=model.base)
        read_chat_files(model.folder)
        root = request.output_root
        inputs = identity(request, config, folder_digest(model.folder))
        if request.name is not None:
            name = check_run_name(request.name)
        elif request.resume:
            name = latest_run(root, request.file.path, request.workspace_dir)
        else:
            name = generate_run_name(lambda taken: (root / taken).exists())
        run_dir = root / name
        if run_dir.is_symlink() or (run_dir.exists() and not run_dir.is_dir()):
            raise ConflictError(f"{run_dir} is not a directory of its own; choose another name with --name.")
        with contextlib.ExitStack() as stack:
            stack.enter_context(run_lock(root, name))
            saved: Saved | None = None
            if request.resume:
                saved = _found(run_dir, name, inputs, warn)
            else:
                refuse_existing(run_dir, name)
                write_manifest(run_dir, name, request, inputs)
            if reap(run_dir / SERVER_RECORD):
                warn(None, f"Terminated the orphaned rollout server of training '{name}', whose process had died.")
            return cls(request, name, config, model, engine, contents, inputs, saved, stack.pop_all())

    def __enter__(self) -> Self:
        """Return the run itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop what was begun and release the lock."""
        self._release.close()

    @property
    def done_steps(self) -> int:
        """Steps that earlier invocations trained."""
        return self.saved.step if self.saved is not None else 0

    @property
    def complete(self) -> bool:
        """Whether there is nothing to do: no step, nor what follows the last one, which a kill may have cut off."""
        done = self.done_steps
        if done < self.steps or done not in self.store.steps():
            return False
        ended = any(
            line.get("kind") == "validation" and line.get("step") == done for line in read_metrics(self.run_dir)
        )
        return ended or not self.held_out or done > self.steps

    @cached_property
    def plan(self) -> TrainingPlan:
        """What the training will take; measures the engine for a moment where no earlier training tells its speed."""
        return make_plan(
            self.config,
            self.order,
            self.held_out,
            steps=self.steps,
            done=self.done_steps,
            root=self.request.output_root,
            engine=self.engine,
        )

    async def execute(self, secrets: Mapping[str, str], observer: TrainingObserver) -> TrainingReport:
        """Train what is left.

        Args:
            secrets: Values for the names in `[secrets]`, for this run only.
            observer: Watches.

        Raises:
            OsmosisError: It could not start, or an alarm stopped it; what was saved stays.
            Interrupted: A signal before the first step.
        """
        from osmosis_trainer.loop.execution import TrainingExecution

        try:
            report = await TrainingExecution(self, self.engine, secrets, observer).run()
        finally:
            await self.engine.aclose()
        record_speed(self.request.output_root, self.engine.capabilities, self.run_dir)
        return report

    def report(self, progress: Progress | None = None, *, seconds: float = 0.0) -> TrainingReport:
        """What the training came to; without progress for one with nothing to do."""
        steps = self.done_steps if progress is None else progress.step
        training: dict[int, float] = {}
        validation: dict[int, float] = {}
        examples = 0
        for record in read_metrics(self.run_dir):
            if "training_reward" in record and record.get("kind") == "training":
                training[record["step"]] = record["training_reward"]
            if "validation_reward" in record:
                validation[record["step"]] = record["validation_reward"]
            examples = max(examples, int(record.get("examples", 0)))
        checkpoints = {step: self.store.path(step) for step in self.store.steps()}
        last = max(checkpoints, default=None)
        inside = self.request.output_root == self.request.workspace_dir / TRAININGS
        return TrainingReport(
            run_name=self.name,
            run_dir=self.run_dir,
            status="finished" if steps >= self.steps else "stopped",
            steps=steps,
            steps_total=self.steps,
            seconds=seconds,
            examples=examples,
            training_reward=training,
            validation_reward=validation,
            checkpoints=checkpoints,
            model_path=None
            if last is None
            else f"{self.model.base}@{self.name}/{last}"
            if inside and self.model.base.startswith("osmosis/")
            else str(checkpoints[last]),
        )


def data_order(config: TrainingConfig, rows: Sequence[int]) -> tuple[DataOrder, tuple[int, ...]]:
    """Which rows are trained on in which order, and which are held out.

    Args:
        config: The options.
        rows: Positions in the dataset that may be used, ascending.

    Raises:
        ValidationError: There are too few rows.
    """
    held = config.held_out(len(rows))
    if held >= len(rows):
        raise ValidationError(
            f"The dataset has {len(rows)} rows and {held} are held out for validation, so none is left to train on. "
            "Give it more rows, or set validation_rows in [advanced.training] to fewer."
        )
    kept, held_out = hold_out(len(rows), held, config.seed)
    order = DataOrder(tuple(rows[at] for at in kept), config.rollout_batch_size, config.total_epochs, config.seed)
    return order, tuple(rows[at] for at in held_out)


def read_metrics(run_dir: Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics.jsonl: `step`, `kind` (`training` or `validation`), and values by `METRICS`."""
    return list(read_lines(run_dir / "metrics.jsonl"))


def _found(run_dir: Path, name: str, inputs: Mapping[str, Any], warn: Warn) -> Saved | None:
    manifest = read_training_manifest(run_dir)
    if manifest is None:
        raise ConflictError(f"{run_dir} holds no training to go on with; leave --resume out, or correct --name.")
    if differs := changed(inputs, manifest["inputs"]):
        raise ConflictError(
            f"Training '{name}' was begun with other inputs; changed: {', '.join(differs)}.\n"
            "Put them back, or begin another training with another --name.",
            details={"run_name": name, "changed": differs},
        )
    store = CheckpointStore(run_dir)
    store.clear()
    saved = store.latest(lambda text: warn("DAMAGED_STATE", text))
    store.drop_after(saved.step if saved is not None else -1)
    if saved is None:
        warn(None, f"Training '{name}' has nothing saved yet; it begins again.")
    return saved
