"""Managed trainings: the table of them, one in detail with its checkpoints and metrics, the end of one."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from osmosis_ai.cli.dates import ABSENT, date_cell
from osmosis_ai.cli.figures import path_text, reward_text
from osmosis_ai.cli.listing import Listing
from osmosis_ai.cli.results import Block, Cell, Column, DetailResult, Fields, Table, Text
from osmosis_ai.cli.run_details import configuration_fields, duration_row, name_rows, time_rows, who_cell
from osmosis_ai.cli.run_records import WAITING, is_over, progress_text, training_record, training_summary
from osmosis_ai.cli.statuses import status_token, status_word
from osmosis_ai.cli.training_metrics import (
    TrainingMetrics,
    default_name,
    export_path,
    fetch_metrics,
    refuse_existing,
    save_export,
)
from osmosis_ai.errors import OsmosisError

if TYPE_CHECKING:
    from osmosis_ai.cli.root import Invocation
    from osmosis_ai.client.scope import Scope
    from osmosis_ai.client.session import PlatformClient
    from osmosis_ai.client.wire import Record

_COLUMNS = (
    Column("Name", keep=True), Column("Status"), Column("Steps", right=True), Column("Base Model"), Column("Rollout"),
    Column("Reward", right=True), Column("Submitted"), Column("Submitted By"),
)  # fmt: skip


def _item(item: Record) -> dict[str, Any]:
    record = training_record(item, item)
    return {**record, "summary": training_summary(record)}


def _row(record: Mapping[str, Any]) -> Sequence[Cell]:
    total = record.get("total_steps")
    return (
        record["name"] or record["id"],
        status_token(record["status"]),
        f"{record.get('current_step') or 0:,} / {total:,}" if total else ABSENT,
        record["model_name"] or ABSENT,
        record["rollout_name"] or ABSENT,
        _reward(record.get("reward")),
        date_cell(record["created_at"]),
        who_cell(record),
    )


def _reward(reward: float | None) -> str:
    return ABSENT if reward is None else reward_text(reward)


TRAININGS = Listing(
    path="/training-runs",
    key="training_runs",
    record=_item,
    columns=_COLUMNS,
    row=_row,
    empty="There are no training runs yet. Submit one: osmosis train submit configs/training/FILE.toml",
    title="Training Runs",
)


def show_training(
    invocation: Invocation, name: str, *, output_file: str | None, overwrite: bool, watch: bool
) -> DetailResult:
    """One training with its checkpoints and metrics; the metrics are saved where asked, and always for people.

    Args:
        invocation: The root options.
        name: Name or id.
        output_file: Value of `-o`.
        overwrite: Whether an existing file may be replaced.
        watch: Whether to look again until it has ended.

    Raises:
        ConflictError: The file of `-o` exists.
        OsmosisError: No scope, no login, or the platform's error.
    """
    from osmosis_ai.client.scope import resolve_scope
    from osmosis_ai.client.session import open_client

    scope = resolve_scope(invocation.workspace)
    if output_file is not None and not (output_file.endswith("/") or Path(output_file).is_dir()):
        refuse_existing(export_path(output_file, ""), overwrite=overwrite)
    with open_client(scope, warn=invocation.output.warn) as client:
        if watch:
            _watch(invocation, client, name)
        look = _look(invocation, client, name)
    return look.result(invocation, scope, output_file, overwrite)


def _watch(invocation: Invocation, client: PlatformClient, name: str) -> None:
    from osmosis_ai.cli.watching import watch

    def look() -> tuple[list[Block], str, bool]:
        record, _ = _fetch(client, name)
        line = f"{record['name']}: {record['status']}"
        if progress := progress_text(training_summary(record).get("progress")):
            line += f", {progress}"
        if record.get("reward") is not None:
            line += f", reward {reward_text(record['reward'])}"
        over = is_over(record["status"])
        return [Fields(_head(record), title="Training Run"), fetch_metrics(client, record).graphs()], line, over

    watch(invocation.output, look)


def _fetch(client: PlatformClient, name: str) -> tuple[dict[str, Any], Record]:
    from osmosis_ai.client.session import segment
    from osmosis_ai.client.wire import Record

    detail = Record(client.get(f"/training-runs/{segment(name)}"), "answer")
    run = detail.record("training_run")
    record = training_record(run, detail)
    extra = {"examples_processed_count": run.maybe_int("examples_processed_count"), "notes": run.maybe_text("notes")}
    return {**record, **extra}, detail


class _Look:
    """What was seen of one training at one moment."""

    def __init__(
        self,
        record: dict[str, Any],
        detail: Record,
        checkpoints: list[dict[str, Any]] | str,
        metrics: TrainingMetrics,
    ) -> None:
        self.record = record
        self.detail = detail
        self.checkpoints_problem = checkpoints if isinstance(checkpoints, str) else None
        self.checkpoints = [] if isinstance(checkpoints, str) else checkpoints
        self.metrics = metrics

    def result(self, invocation: Invocation, scope: Scope, output_file: str | None, overwrite: bool) -> DetailResult:
        """The result, after the metrics are saved."""
        path, problem = self._save(invocation, scope, output_file, overwrite)
        record = self.record
        in_progress = not is_over(record["status"]) and (record["status"] or "").lower() not in WAITING
        data = {
            "training_run": record,
            "summary": training_summary(record),
            **({"platform_url": record["platform_url"]} if "platform_url" in record else {}),
            "checkpoints": self.checkpoints,
            **({"checkpoints_error": self.checkpoints_problem} if self.checkpoints_problem else {}),
            "in_progress": in_progress,
            "metrics_available": self.metrics.export is not None,
            "metrics_error": self.metrics.problem,
            "metrics": self.metrics.export,
            "output_path": None if path is None else str(path),
            "save_warning": problem,
            **scope.extras(),
        }
        return DetailResult(
            data, self._blocks(in_progress), title="Training Run Info", hints=self._hints(path, problem)
        )

    def _save(
        self, invocation: Invocation, scope: Scope, output_file: str | None, overwrite: bool
    ) -> tuple[Path | None, str | None]:
        if self.metrics.export is None or (output_file is None and invocation.output.format != "rich"):
            return None, None
        name = default_name(self.record)
        if output_file is None:
            path = scope.base_directory / ".osmosis" / "metrics" / name
        else:
            path = export_path(output_file, name)
            refuse_existing(path, overwrite=overwrite)
        try:
            save_export(self.metrics.export, path)
        except (OSError, OsmosisError) as error:
            return None, f"The metrics could not be saved: {error}"
        return path, None

    def _blocks(self, in_progress: bool) -> list[Block]:
        rows = _head(self.record, self.metrics, internal=self.detail.flag("is_internal_user"))
        if in_progress:
            rows.append(("Note", "Training is in progress; the metrics are a snapshot."))
        checkpoints = Table(
            (Column("Checkpoint", keep=True), Column("Step"), Column("Status")),
            [
                (c["checkpoint_name"] or c["id"], f"step {c['checkpoint_step']}", status_token(c["status"]))
                for c in self.checkpoints
            ],
            label="Checkpoint",
        )
        return [Fields(rows), configuration_fields(self.detail), checkpoints, self.metrics.graphs()]

    def _hints(self, path: Path | None, problem: str | None) -> list[str]:
        hints = [f"⚠ The checkpoints are not known: {self.checkpoints_problem}"] if self.checkpoints_problem else []
        if self.metrics.problem:
            hints.append(self.metrics.problem)
        if path is not None:
            hints.append(f"Metrics saved to {path_text(path)}")
        if problem:
            hints.append(f"⚠ {problem}")
        if url := self.record.get("platform_url"):
            hints.append(f"View: {url}")
        if self.checkpoints:
            latest = self.checkpoints[-1]
            hints.append(f"Deploy: osmosis model deploy {shlex.quote(latest['checkpoint_name'] or latest['id'])}")
        return hints


def _head(
    record: Mapping[str, Any], metrics: TrainingMetrics | None = None, *, internal: bool = False
) -> list[tuple[str, Cell]]:
    rows: list[tuple[str, Cell]] = [*name_rows(record, internal=internal), ("Status", status_word(record["status"]))]
    if progress := progress_text(training_summary(record).get("progress")):
        latest = f", reward {reward_text(record['reward'])}" if record.get("reward") is not None else ""
        rows.append(("Progress", progress + latest))
    elif record.get("reward") is not None:
        rows.append(("Reward", Text(reward_text(record["reward"]), "strong")))
    rows += duration_row(record, metrics.duration_ms if metrics else None)
    if record.get("examples_processed_count") is not None:
        rows.append(("Examples Processed", f"{record['examples_processed_count']:,}"))
    submitted, times = time_rows(record)
    rows += submitted
    labels = (("Dataset", "dataset_name"), ("Base Model", "model_name"), ("Rollout", "rollout_name"))
    rows += [(label, record[key]) for label, key in labels if record[key]]
    rows += times
    if record.get("notes"):
        rows.append(("Notes", record["notes"]))
    return rows


def _look(invocation: Invocation, client: PlatformClient, name: str) -> _Look:
    from osmosis_ai.client.session import segment
    from osmosis_ai.client.wire import Record

    output = invocation.output
    with output.working("Fetching training run..."):
        record, detail = _fetch(client, name)
    checkpoints: list[dict[str, Any]] | str = []
    if (record["status"] or "").lower() not in WAITING:
        with output.working("Fetching checkpoints..."):
            try:
                reply = Record(client.get(f"/training-runs/{segment(name)}/checkpoints"), "answer")
                checkpoints = [_checkpoint(checkpoint) for checkpoint in reply.records("checkpoints")]
            except OsmosisError as error:
                checkpoints = error.message
        with output.working("Fetching metrics..."):
            metrics = fetch_metrics(client, record)
    else:
        metrics = fetch_metrics(client, record)
    return _Look(record, detail, checkpoints, metrics)


def _checkpoint(checkpoint: Record) -> dict[str, Any]:
    return {
        "id": checkpoint.text("id"),
        "checkpoint_name": checkpoint.maybe_text("checkpoint_name"),
        "checkpoint_step": checkpoint.integer("checkpoint_step", 0),
        "status": checkpoint.maybe_text("status"),
        "created_at": checkpoint.maybe_text("created_at"),
    }
