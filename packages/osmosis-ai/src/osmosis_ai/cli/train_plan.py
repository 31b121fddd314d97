"""What a training is about to do, and what it takes, told before it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from osmosis_ai.cli.figures import count_text, duration_text, path_text, plural
from osmosis_ai.cli.results import Cell, Fields, Text

if TYPE_CHECKING:
    from osmosis_trainer.training import TrainingRun

_UNKNOWN = Text("unknown until a first training has shown it", "dim")


def plan_fields(run: TrainingRun) -> Fields:
    """The plan of a training that has something to do."""
    request, config, plan = run.request, run.config, run.plan
    file = request.file
    rows: list[tuple[str, Cell]] = [
        ("Run", run.name),
        ("Rollout", file.rollout),
        ("Entrypoint", file.entrypoint),
        ("Model", file.model_path),
        ("Engine", request.engine),
        ("Dataset", f"{request.dataset.name} (local file)"),
    ]
    if file.branch:
        rows.append(("Branch", file.branch))
    if file.commit_sha:
        rows.append(("Commit", file.commit_sha))
    held = f"{plan.validation_rows:,} held out for validation" if plan.validation_rows else "none held out"
    rows.append(("Rows", f"{plan.rows:,} to train on, {held}"))
    steps = f"{plan.steps:,}" + (f" ({plan.done:,} done before)" if plan.done else "")
    rows.append(
        ("Steps", f"{steps}, each {plural(plan.rows_per_step, 'row')} x {config.n_samples_per_prompt} rollouts")
    )
    refills = f" (up to {plan.refill_rollouts:,} more where groups teach nothing)" if plan.refill_rollouts else ""
    rows.append(("Rollouts", f"{plan.rollouts:,}{refills}"))
    guess = " (a guess: nothing was trained here before)" if plan.assumed else ""
    rows.append(("Tokens", f"about {count_text(plan.tokens)}{guess}" if plan.tokens is not None else _UNKNOWN))
    rows.append(("Time", f"about {duration_text(plan.seconds)}{guess}" if plan.seconds is not None else _UNKNOWN))
    rows.append(("Cost", "$0 (the model runs on this machine)"))
    rows.append(("Checkpoints", f"every {plural(config.checkpoint_save_freq, 'step')}, and the last"))
    rows.append(("Output", path_text(run.run_dir)))
    return Fields(rows, title="Training")
