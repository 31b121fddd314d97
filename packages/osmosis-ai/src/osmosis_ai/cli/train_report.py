"""What a training came to: how the reward moved, where the adapters are, what to type next."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sized
from typing import TYPE_CHECKING, Any

from osmosis_ai.cli.eval_report import cause_table
from osmosis_ai.cli.figures import duration_text, path_text, plural, reward_text
from osmosis_ai.cli.results import Block, Cell, Fields, OperationResult, Status, Text
from osmosis_ai.cli.training_curves import Curves, metric_graphs, reward_plot
from osmosis_ai.cli.training_rollouts import RolloutFacts, read_rollouts
from osmosis_ai.evaluation.rows import format_selector
from osmosis_ai.evaluation.statistics import Estimate, mean

if TYPE_CHECKING:
    from osmosis_trainer.training import TrainingReport, TrainingRequest

    from osmosis_ai.cli.train_flags import TrainFlags
    from osmosis_ai.workspace.repository import Origin

_FILES = ("metrics.jsonl", "rollouts.jsonl", "checkpoints/", "logs.txt")
_WINDOW = 5
_CHECKPOINTS_SHOWN = 8
_SELECTOR_WIDTH = 60


def run_result(
    report: TrainingReport, flags: TrainFlags, request: TrainingRequest, curves: Curves, origin: Origin | None
) -> OperationResult:
    """The result of an invocation that trained."""
    status: Status = "success"
    if report.status != "finished":
        status = "partial"
        message = f"Stopped after step {report.steps:,} of {report.steps_total:,}; everything so far is kept."
    else:
        message = f"Trained {plural(report.steps, 'step')}. {_verdict(report)}"
    facts = read_rollouts(report.run_dir)
    blocks: list[Block] = [cause_table(facts.causes)] if facts.causes else []
    blocks.append(_figures(report, facts))
    if len(report.training_reward) > 1:
        blocks = [reward_plot(curves, title="Reward"), metric_graphs(curves), *blocks]
    return _result(report, facts, flags, request, origin, status, message.strip(), blocks)


def noop_result(
    report: TrainingReport, flags: TrainFlags, request: TrainingRequest, origin: Origin | None
) -> OperationResult:
    """The result when every step was trained before: nothing ran."""
    further = "raise total_epochs" + ("." if flags.max_steps is None else " or --max-steps.")
    message = f"Nothing to train: {report.run_name} is finished. To train it further: {further}"
    facts = read_rollouts(report.run_dir)
    return _result(report, facts, flags, request, origin, "noop", message, [_figures(report, facts)])


def continuation(flags: TrainFlags, name: str) -> str:
    """The command line that goes on with this training, with everything that matters for it."""
    words = ["osmosis", "train", "run", str(flags.config)]
    for option, value in (
        ("--dataset-file", flags.dataset_file),
        ("--name", name),
        ("--engine", flags.engine),
        ("--output", flags.output),
        ("--rows", flags.rows),
        ("--max-steps", flags.max_steps),
        ("--secrets-file", flags.secrets_file),
    ):
        if value is not None:
            words += [option, str(value)]
    return shlex.join([*words, "--resume"])


def _result(
    report: TrainingReport,
    facts: RolloutFacts,
    flags: TrainFlags,
    request: TrainingRequest,
    origin: Origin | None,
    status: Status,
    message: str,
    blocks: list[Block],
) -> OperationResult:
    structured: list[dict[str, Any]] = []
    if report.status != "finished":
        structured.append({"action": "train_resume", "name": report.run_name})
    if report.model_path is not None:
        structured.append({"action": "eval_run", "model": report.model_path})
    return OperationResult(
        operation="train.run",
        status=status,
        message=message,
        resource=_resource(report, facts, request, origin),
        blocks=blocks,
        next_steps=_next_steps(report, facts, flags, request),
        next_steps_structured=structured,
    )


def _verdict(report: TrainingReport) -> str:
    """One sentence on how the reward moved, by validation where there is one."""
    validation = report.validation_reward
    if len(validation) > 1:
        return f"Validation reward went from {_ends(validation)}."
    before, after = _first_and_last(report.training_reward)
    if before is None or after is None:
        return "No rollout had a reward."
    return f"Training reward went from {reward_text(before)} to {reward_text(after)}."


def _ends(values: Mapping[int, float]) -> str:
    return f"{reward_text(values[min(values)])} to {reward_text(values[max(values)])}"


def _first_and_last(rewards: Mapping[int, float]) -> tuple[float | None, float | None]:
    """Means of the first and the last few steps: single steps are noisy."""
    values = [rewards[step] for step in sorted(rewards)]
    if not values:
        return None, None
    few = _few(values)
    return mean(values[:few]), mean(values[-few:])


def _few(values: Sized) -> int:
    """How many steps at each end are taken together."""
    return max(1, min(_WINDOW, len(values) // 2))


def _figures(report: TrainingReport, facts: RolloutFacts) -> Fields:
    rows: list[tuple[str, Cell]] = [
        ("Run", report.run_name),
        ("Steps", f"{report.steps:,} of {report.steps_total:,}"),
        ("Rollouts", facts.outcomes),
    ]
    before, after = _first_and_last(report.training_reward)
    if before is not None and after is not None:
        few = _few(report.training_reward)
        which = f"means of the first and last {few} steps" if few > 1 else "first and last step"
        rows.append(("Training Reward", _moved(before, after, which)))
    estimates = facts.validation
    if len(estimates) > 1:
        first, last = estimates[min(estimates)], estimates[max(estimates)]
        rows.append(("Validation Reward", _moved(first.mean, last.mean, _intervals(first, last))))
    elif estimates:
        (step, only) = next(iter(estimates.items()))
        rows.append(("Validation Reward", f"{reward_text(only.mean)}  (after step {step}; {plural(only.rows, 'row')})"))
    if report.checkpoints:
        steps = sorted(report.checkpoints)
        shown = ", ".join(str(step) for step in steps[-_CHECKPOINTS_SHOWN:])
        rows.append(("Checkpoints", f"{'… ' if len(steps) > _CHECKPOINTS_SHOWN else ''}after steps {shown}"))
        rows.append(("Adapter", path_text(report.checkpoints[steps[-1]])))
    if report.seconds:
        rows.append(("Duration", duration_text(report.seconds)))
    rows.append(("Output", path_text(report.run_dir)))
    if files := [name for name in _FILES if (report.run_dir / name).exists()]:
        rows.append(("Files", ", ".join(files)))
    return Fields(rows, title="Results")


def _moved(before: float, after: float, note: str) -> Text:
    role = "good" if after > before else "warn" if after < before else None
    return Text(f"{reward_text(before)} → {reward_text(after)}  ({note})", role)


def _intervals(first: Estimate, last: Estimate) -> str:
    rows = f"{plural(last.rows, 'row')} never trained on"
    if first.interval is None or last.interval is None:
        return rows
    before, after = first.interval, last.interval
    return f"95% intervals {before.low:.2f} to {before.high:.2f} → {after.low:.2f} to {after.high:.2f}; {rows}"


def _next_steps(report: TrainingReport, facts: RolloutFacts, flags: TrainFlags, request: TrainingRequest) -> list[str]:
    steps: list[tuple[str, str]] = []
    if report.status != "finished":
        steps.append(("Go on", continuation(flags, report.run_name)))
    if report.model_path is not None:
        config = _eval_config(request)
        data = shlex.join(["--dataset-file", flags.dataset_file]) if flags.dataset_file else ""
        before, after = f"{report.run_name}-before", f"{report.run_name}-after"
        unseen = _unseen_rows(facts, request)
        command = f"osmosis eval run {config} {data}" + (f" --rows {unseen}" if unseen else "")
        where = " on rows it was not trained on" if unseen else ""
        steps.append((f"Evaluate it{where}", f"{command} --model {shlex.quote(report.model_path)} --name {after}"))
        steps.append(("Evaluate the base model", f"{command} --model {request.file.model_path} --name {before}"))
        steps.append(("Compare the two", f"osmosis eval compare {before} {after}"))
    shown = shlex.quote(str(report.run_dir)) if flags.output else report.run_name
    steps.append(("See the curves again", f"osmosis train view {shown}"))
    return [line for label, command in steps for line in (f"{label}:", f"  {command}")]


def _unseen_rows(facts: RolloutFacts, request: TrainingRequest) -> str:
    """A selector of the rows that an honest evaluation may take; nothing where there are none, or too many to type."""
    used = range(request.dataset.total_rows) if request.rows is None else request.rows
    kept_apart = set(range(request.dataset.total_rows)) - set(used)
    selector = format_selector(sorted(kept_apart | (facts.validation_rows - facts.trained_rows)))
    return selector if len(selector) <= _SELECTOR_WIDTH else ""


def _eval_config(request: TrainingRequest) -> str:
    """The eval file that goes with a training file: of the same name, else of the same rollout."""
    folder = request.workspace_dir / "configs" / "eval"
    for name in (request.file.path.name, f"{request.file.rollout}.toml"):
        if (folder / name).is_file():
            return shlex.quote(path_text(folder / name))
    return "<eval config>"


def _resource(
    report: TrainingReport, facts: RolloutFacts, request: TrainingRequest, origin: Origin | None
) -> dict[str, Any]:
    resource: dict[str, Any] = {
        "run_name": report.run_name,
        "status": report.status,
        "output_path": str(report.run_dir),
        "dataset_source": request.dataset_source,
        "steps": report.steps,
        "total_steps": report.steps_total,
        "examples_processed_count": report.examples,
        "duration_ms": round(report.seconds * 1000, 3),
        "training_reward": _points(report.training_reward),
        "validation_reward": [
            {
                "step": step,
                "value": estimate.mean,
                "rows": estimate.rows,
                **({"low": estimate.interval.low, "high": estimate.interval.high} if estimate.interval else {}),
            }
            for step, estimate in facts.validation.items()
        ],
        "checkpoints": [
            {"checkpoint_step": step, "path": str(path)} for step, path in sorted(report.checkpoints.items())
        ],
        "outcomes": dict(facts.kinds),
        "causes": [
            {"fault": str(cause.fault), "code": cause.code, "message": cause.message, "count": cause.count}
            for cause in facts.causes
        ],
        "model_path": report.model_path,
        "cost_usd": 0.0,
        "workspace_directory": str(request.workspace_dir),
    }
    if report.status != "finished":
        resource["halt"] = {"code": "interrupted", "reason": "it was stopped"}
    if origin is not None:
        resource["git"] = {"identity": origin.identity, "remote_url": origin.remote_url}
    return resource


def _points(values: Mapping[int, float]) -> list[dict[str, float]]:
    return [{"step": step, "value": values[step]} for step in sorted(values)]
