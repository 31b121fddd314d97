"""One local training, from checked flags to a result: preconditions, plan, question, secrets, steps.

Owns: the order in which a user is told and asked things. The loop and its files are the trainer's, which is imported
here and only when a training is asked for.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from osmosis_ai.cli.figures import plural
from osmosis_ai.cli.local_models import runs_here
from osmosis_ai.cli.output import Output
from osmosis_ai.cli.preconditions import agree, connect, local_dataset, require_modules, require_rollout
from osmosis_ai.cli.quiet import quiet_libraries
from osmosis_ai.cli.train_flags import TrainFlags
from osmosis_ai.cli.train_plan import plan_fields
from osmosis_ai.cli.train_progress import make_progress
from osmosis_ai.cli.train_report import continuation, noop_result, run_result
from osmosis_ai.cli.training_curves import Curves, read_curves
from osmosis_ai.client.scope import takes_any_host
from osmosis_ai.errors import OsmosisError, ValidationError
from osmosis_ai.evaluation.rows import select
from osmosis_ai.extras import optional_imports
from osmosis_ai.workspace.repository import find_origin, find_work_tree, require_directories
from osmosis_ai.workspace.training_config import load_training_config, locate_training_config

if TYPE_CHECKING:
    from osmosis_trainer.training import TrainingReport, TrainingRequest, TrainingRun

    from osmosis_ai.cli.results import OperationResult
    from osmosis_ai.client.session import PlatformClient
    from osmosis_ai.evaluation.dataset import Dataset

_COMMAND = "osmosis train run"
_FINAL = ("NO_REWARD", "TRAINING_ALARM", "NON_FINITE")  # going on would end the same way


def train(output: Output, flags: TrainFlags) -> OperationResult:
    """Train what the flags say.

    Raises:
        OsmosisError: A precondition does not hold, or the training could not start or was stopped by an alarm.
        Cancelled: The user said no.
    """
    quiet_libraries()
    require_modules("eval", "fastapi", "uvicorn")  # the gateway's server
    with optional_imports("local", "Training on this machine"):
        import osmosis_trainer.training as trainer
    work_tree = find_work_tree()
    require_directories(work_tree)
    local = "pass --dataset-file FILE to train on a local file"
    client = connect(output, work_tree, local) if flags.dataset_file is None else None
    path = locate_training_config(flags.config, work_tree, _COMMAND)
    file = load_training_config(path, work_tree, trainer.training_options())
    require_rollout(work_tree, file)
    if not runs_here(file.model_path) and not (work_tree / file.model_path).is_dir():
        raise ValidationError(
            f"experiment.model_path is {file.model_path!r}, whose weights are not on this machine. Train osmosis/nano, or"
            " give the path of a folder with a Hugging Face model (then with --engine torch)."
        )
    if others := [name for name in file.advanced if name != "training"]:
        output.warn(f"[advanced] is recorded and has no effect on a local run, but for training: {', '.join(others)}")
    dataset = _dataset(output, flags, file.dataset, client)
    rows: tuple[int, ...] | None = None
    if flags.rows is not None:
        selection = select(dataset, rows=flags.rows, limit=None)
        for warning in selection.warnings:
            output.warn(warning)
        rows = tuple(selection.indices)
    options: dict[str, Any] = {"engine": flags.engine} if flags.engine is not None else {}
    request = trainer.TrainingRequest(
        workspace_dir=work_tree,
        file=file,
        dataset=dataset,
        output_root=Path(flags.output).resolve() if flags.output else work_tree / ".osmosis" / "trainings",
        rows=rows,
        name=flags.name,
        resume=flags.resume,
        max_steps=flags.max_steps,
        **options,
    )
    return _run(output, flags, request, trainer.TrainingRun)


def _dataset(output: Output, flags: TrainFlags, name: str, client: PlatformClient | None) -> Dataset:
    """The file of the command line, else the platform's dataset."""
    if client is None:
        return local_dataset(flags.dataset_file or "")
    from osmosis_ai.cli.platform_dataset import fetch_dataset

    with client:
        return fetch_dataset(output, client, name).dataset


def _run(output: Output, flags: TrainFlags, request: TrainingRequest, trainings: type[TrainingRun]) -> OperationResult:
    origin = find_origin(request.workspace_dir, any_host=takes_any_host())
    with trainings.open(request, warn=lambda code, message: output.warn(message, code)) as run:
        if run.complete:
            return noop_result(run.report(), flags, request, origin)
        left = run.steps - run.done_steps
        what = f"Train {plural(left, 'step')} x" if left > 0 else "Make the last checkpoint and validation of"
        try:
            _ = run.engine  # refuses a model that it cannot run before anybody is asked
            secrets = agree(
                output,
                plan_fields(run),
                f"{what} model {request.file.model_path}?",
                yes=flags.yes,
                secret_names=request.file.secret_names,
                secrets_file=flags.secrets_file,
            )
        except BaseException:
            _take_back(run)
            raise
        curves = _curves_before(run)
        try:
            report = _train(output, run, secrets, curves)
        except OsmosisError as error:
            if error.error_code not in _FINAL and run.store.latest(lambda _: None) is not None:
                error.message += f"\nThe steps before are kept. Go on:\n  {continuation(flags, run.name)}"
            raise
    return run_result(report, flags, request, read_curves(run.run_dir), origin)


def _train(output: Output, run: TrainingRun, secrets: dict[str, str], curves: Curves) -> TrainingReport:
    with make_progress(output, steps=run.steps, curves=curves) as progress:
        return asyncio.run(run.execute(secrets, progress))


def _curves_before(run: TrainingRun) -> Curves:
    """What earlier invocations measured, as far as this one goes on from it."""
    curves = Curves()
    if run.saved is not None:
        curves = read_curves(run.run_dir).until(run.done_steps)
    return curves


def _take_back(run: TrainingRun) -> None:
    """Remove the directory of a training in which nothing was ever tried; one that was started before stays."""
    if not run.request.resume and not (run.run_dir / "logs.txt").exists():
        shutil.rmtree(run.run_dir, ignore_errors=True)
