"""Managed and uploaded evaluations: the table of them, one in detail, a retry of what went wrong in one."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from osmosis_ai.cli.dates import ABSENT, date_cell
from osmosis_ai.cli.figures import path_text, plural, rate_text, reward_text
from osmosis_ai.cli.listing import Listing
from osmosis_ai.cli.results import Block, Cell, Column, DetailResult, Fields, OperationResult, Text
from osmosis_ai.cli.run_details import configuration_fields, duration_row, name_rows, time_rows, who_cell
from osmosis_ai.cli.run_records import (
    eval_names,
    eval_record,
    eval_summary,
    is_dirty,
    is_local,
    is_over,
    progress_text,
)
from osmosis_ai.cli.statuses import status_token, status_word
from osmosis_ai.errors import OsmosisError, PlatformError, ValidationError

if TYPE_CHECKING:
    from osmosis_ai.cli.root import Invocation
    from osmosis_ai.client.scope import Scope
    from osmosis_ai.client.session import PlatformClient
    from osmosis_ai.client.wire import Record

NOT_YET = "Metrics are not yet available for pending evaluation runs."
_COLUMNS = (
    Column("Name", keep=True), Column("Status"), Column("Progress", right=True), Column("Rollout"),
    Column("Reward", right=True), Column("Submitted"), Column("Submitted By"),
)  # fmt: skip
_DIRTY = "The code of this local run had uncommitted changes, so the recorded commit is not all of it."


def _item(item: Record) -> dict[str, Any]:
    results, config = item.maybe_record("results"), item.maybe_record("config")
    record = eval_record(item, names=eval_names(item))
    record |= {key: dict(found.fields) for key, found in (("results", results), ("config", config)) if found}
    return _plain_json({**record, "summary": eval_summary(results, config, details=False)})


def _plain_json(value: Any) -> Any:
    from osmosis_ai.client.wire import finite

    return finite(value)


def _row(item: Mapping[str, Any]) -> Sequence[Cell]:
    summary = item["summary"]
    progress = summary.get("progress")
    reward = summary.get("avg_reward")
    name = item["name"] or item["id"]
    if is_local(item):
        name += " (Local, uncommitted changes)" if is_dirty(item) else " (Local)"
    return (
        name,
        status_token(item["status"]),
        f"{progress['completed']:,} / {progress['total']:,}" if progress else ABSENT,
        item["rollout"] or ABSENT,
        ABSENT if reward is None else reward_text(reward),
        date_cell(item["created_at"]),
        who_cell(item),
    )


EVALS = Listing(
    path="/eval-runs",
    key="eval_runs",
    record=_item,
    columns=_COLUMNS,
    row=_row,
    empty="There are no evaluation runs yet. Submit one: osmosis eval submit configs/eval/FILE.toml",
    title="Evaluation Runs",
)


def fetch_eval(client: PlatformClient, name: str) -> tuple[dict[str, Any], Record]:
    """One evaluation: its record and the whole answer.

    Raises:
        OsmosisError: The platform's error, or an answer without the run.
    """
    from osmosis_ai.client.session import segment
    from osmosis_ai.client.wire import Record

    detail = Record(client.get(f"/eval-runs/{segment(name)}"), "answer")
    run = detail.record("eval_run")
    config = detail.maybe_record("config")
    names: dict[str, str | None] = {"model": config.maybe_text("model_path") if config else None}
    for kind in ("dataset", "rollout"):
        found = detail.maybe_record(kind)
        names[kind] = found.maybe_text("name") if found else None
    return eval_record(run, names=names), detail


def show_eval(invocation: Invocation, name: str, *, output_root: str | None, watch: bool) -> DetailResult:
    """One evaluation with its figures; `metrics.json` is fetched where asked, and always for people.

    Raises:
        ValidationError: `output_root` is a file.
        OsmosisError: No scope, no login, or the platform's error.
    """
    from osmosis_ai.cli.output_places import refuse_file
    from osmosis_ai.client.scope import resolve_scope
    from osmosis_ai.client.session import open_client

    refuse_file(output_root)
    scope = resolve_scope(invocation.workspace)
    output = invocation.output
    with open_client(scope, warn=output.warn) as client:
        if watch:
            _watch(invocation, client, name)
        with output.working("Fetching evaluation run..."):
            record, detail = fetch_eval(client, name)
        metrics, problem = _fetch_metrics(invocation, client, record)
        path, save_problem = None, None
        if metrics is not None and (output_root is not None or output.format == "rich"):
            path, save_problem = _save_metrics(invocation, client, record, scope, output_root)
    return _detail(record, detail, scope, metrics, problem, path, save_problem)


def _watch(invocation: Invocation, client: PlatformClient, name: str) -> None:
    from osmosis_ai.cli.watching import watch

    def look() -> tuple[list[Block], str, bool]:
        record, detail = fetch_eval(client, name)
        summary = eval_summary(detail.maybe_record("results"), detail.maybe_record("config"), details=True)
        line = f"{record['name']}: {record['status']}"
        if progress := progress_text(summary.get("progress")):
            line += f", {progress}"
        if summary.get("avg_reward") is not None:
            line += f", mean reward {reward_text(summary['avg_reward'])}"
        head = _head(record, summary, None, internal=False)
        return [Fields(head, title="Evaluation Run"), _results(detail, summary)], line, is_over(record["status"])

    watch(invocation.output, look)


def _fetch_metrics(
    invocation: Invocation, client: PlatformClient, record: Mapping[str, Any]
) -> tuple[dict[str, Any] | None, str | None]:
    """The aggregates, or why there are none."""
    from osmosis_ai.client.session import segment
    from osmosis_ai.client.wire import Record

    if (record["status"] or "").lower() == "pending":
        return None, NOT_YET
    try:
        with invocation.output.working("Fetching metrics..."):
            reply = Record(client.get(f"/eval-runs/{segment(record['id'])}/metrics"), "metrics")
        reply.text("status")
        return _plain_json(_metrics_object(record, reply)), None
    except OsmosisError as error:
        if error.error_code in ("AUTH_REQUIRED", "UPGRADE_REQUIRED"):
            raise
        return None, error.message


def _metrics_object(record: Mapping[str, Any], reply: Record) -> dict[str, Any]:
    """The metrics in the shape of a run directory's metrics.json."""
    overview = reply.record("overview")
    summary: dict[str, Any] = {
        key: overview.maybe_number(key)
        for key in (
            "total_samples", "completed_samples", "graded", "passed", "failed", "skipped", "pass_rate",
            "pass_threshold", "tokens_used",
        )
    }  # fmt: skip
    if stats := reply.maybe_record("reward_stats"):
        summary["reward_stats"] = {key: stats.maybe_number(key) for key in ("mean", "median", "std", "min", "max")}
    if points := reply.records("pass_at_k"):
        summary["pass_at_k"] = [{"k": point.integer("k"), "value": point.maybe_number("value")} for point in points]
    run = {
        "id": record["id"],
        "status": record["status"],
        "name": record["name"],
        "dataset_name": record["dataset"],
        "model_name": record["model"],
        "rollout_name": record["rollout"],
        "duration_ms": overview.maybe_number("duration_ms"),
        "started_at": record["started_at"],
        "completed_at": record["completed_at"],
    }
    known = {key: value for key, value in run.items() if value is not None}
    return {"eval_run": known, "summary": {key: value for key, value in summary.items() if value is not None}}


def _save_metrics(
    invocation: Invocation, client: PlatformClient, record: Mapping[str, Any], scope: Scope, output_root: str | None
) -> tuple[Path | None, str | None]:
    """Fetch the platform's metrics.json into the run's folder."""
    from osmosis_ai.cli.output_places import run_folder
    from osmosis_ai.cli.run_downloads import fetch_metrics_file

    if output_root is None:
        folder = run_folder("evals", record["name"], record["id"], scope.base_directory)
    else:
        folder = Path(output_root)
        if folder.exists() and not folder.is_dir():
            return None, f"The metrics could not be saved: {folder} is a file, and -o names a folder."
    try:
        with invocation.output.working("Saving metrics..."):
            return fetch_metrics_file(client, record["id"], folder), None
    except (OSError, OsmosisError) as error:
        return None, f"The metrics could not be saved: {error}"


def _detail(
    record: dict[str, Any],
    detail: Record,
    scope: Scope,
    metrics: dict[str, Any] | None,
    problem: str | None,
    path: Path | None,
    save_problem: str | None,
) -> DetailResult:
    results, config = detail.maybe_record("results"), detail.maybe_record("config")
    summary = eval_summary(results, config, details=True)
    own = {key: dict(found.fields) for key, found in (("results", results), ("config", config)) if found}
    data = {
        "eval_run": {**record, **own},
        "summary": summary,
        "config": own.get("config"),
        "results": own.get("results"),
        "model": {"name": record["model"]} if record["model"] else None,
        "dataset": detail.fields.get("dataset"),
        "rollout": detail.fields.get("rollout"),
        "entrypoint": detail.maybe_text("entrypoint"),
        "commit_sha": detail.maybe_text("commit_sha"),
        "branch": detail.maybe_text("branch"),
        "env_config": detail.fields.get("env_config"),
        "resolved_secret_scopes": detail.fields.get("resolved_secret_scopes"),
        "dataset_df_stats": detail.fields.get("dataset_df_stats"),
        "metrics": metrics,
        "metrics_available": metrics is not None,
        "metrics_error": problem,
        "output_path": None if path is None else str(path),
        "save_warning": save_problem,
        **scope.extras(),
    }
    duration = metrics["eval_run"].get("duration_ms") if metrics else None
    head = _head(record, summary, duration, internal=detail.flag("is_internal_user"))
    hints = [problem] if problem else []
    if path is not None:
        hints.append(f"Metrics saved to {path_text(path)}")
    if save_problem:
        hints.append(f"⚠ {save_problem}")
    if is_dirty(record):
        hints.append(f"⚠ {_DIRTY}")
    if url := record.get("platform_url"):
        hints.append(f"View: {url}")
    blocks = [Fields(head), configuration_fields(detail), _results(detail, summary)]
    return DetailResult(_plain_json(data), blocks, title="Evaluation Run Info", hints=hints)


def _head(
    record: Mapping[str, Any], summary: Mapping[str, Any], duration_ms: float | None, *, internal: bool
) -> list[tuple[str, Cell]]:
    rows: list[tuple[str, Cell]] = [*name_rows(record, internal=internal)]
    if is_local(record):
        rows.append(("Origin", Text("Local", "accent")))
    rows.append(("Status", status_word(record["status"])))
    if progress := progress_text(summary.get("progress")):
        rows.append(("Progress", progress))
    rows += duration_row(record, duration_ms)
    if summary.get("pass_rate") is not None:
        rows.append(("Pass Rate", rate_text(summary["pass_rate"])))
    if summary.get("total_tokens") is not None:
        rows.append(("Tokens Used", f"{summary['total_tokens']:,}"))
    submitted, times = time_rows(record)
    rows += [*submitted, *times]
    labels = (("Dataset", "dataset"), ("Model", "model"), ("Rollout", "rollout"))
    return rows + [(label, record[key]) for label, key in labels if record[key]]


def _results(detail: Record, summary: Mapping[str, Any]) -> Fields:
    counts = [f"{summary[key]:,} {key}" for key in ("graded", "passed", "failed", "skipped") if key in summary]
    rows: list[tuple[str, Cell]] = [("Counts", " · ".join(counts))] if counts else []
    if "pass_threshold" in summary:
        rows.append(("Pass Threshold", f"{summary['pass_threshold']:g}"))
    results = detail.maybe_record("results")
    stats = results.maybe_record("reward_stats") if results else None
    if stats:
        shown = [(key, stats.maybe_number(key)) for key in ("mean", "std", "min", "median", "max")]
        rows.append(("Reward", " · ".join(f"{key} {reward_text(value)}" for key, value in shown if value is not None)))
        rates = {k: v for k, v in stats.mapping("pass_at_k").items() if re.fullmatch("[0-9]{1,9}", k) and _is_rate(v)}
        points = sorted((int(k), v) for k, v in rates.items())
        if points:
            rows.append(("Pass@k", " · ".join(f"pass@{k} {rate_text(value)}" for k, value in points)))
    return Fields(rows, title="Results")


def _is_rate(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def retry_eval(invocation: Invocation, name: str, *, yes: bool, secrets_file: str | None) -> OperationResult:
    """Run the failed and skipped samples of an ended evaluation again.

    Raises:
        Cancelled: The user said no.
        ValidationError: It is a local run; the message has the command that retries it.
        OsmosisError: No scope, no login, nobody to ask, or the platform's error.
    """
    from osmosis_ai.client.scope import resolve_scope
    from osmosis_ai.client.session import open_client, segment
    from osmosis_ai.client.wire import Record
    from osmosis_ai.workspace.secrets import read_secrets_file, resolve_secrets

    scope = resolve_scope(invocation.workspace)
    output = invocation.output
    file_values = read_secrets_file(secrets_file) if secrets_file else {}
    path = f"/eval-runs/{segment(name)}/retry"
    with open_client(scope, warn=output.warn) as client:
        if not yes:
            output.confirm(f'Retry evaluation run "{name}"?', default=False, summary={"Name": name})
        client.hide(*file_values.values())
        with output.working("Retrying evaluation run..."):
            try:
                answer, names = client.post(path), ()
            except OsmosisError as error:
                answer, names = {}, _asked_for(error)
        if names:
            values = resolve_secrets(
                names,
                file_values=file_values,
                environ=os.environ,
                ask=output.ask_hidden if output.interactive else None,
            )
            client.hide(*values.values())
            with output.working("Retrying evaluation run..."):
                answer = client.post(path, {"secrets": values})
    reply = Record(answer, "answer")
    count = reply.integer("retryable_samples", 0)
    shown = reply.text("name")
    what = f"{plural(count, 'sample')} of it run again" if count else "it starts over"
    url = reply.maybe_text("platform_url")
    return OperationResult(
        operation="eval.retry",
        resource={
            "id": reply.text("id"),
            "name": shown,
            "status": reply.text("status"),
            "workflow_id": reply.text("workflow_id"),
            "retryable_samples": count,
            "platform_url": url,
            **scope.extras(),
        },
        message=f'Retry of evaluation run "{shown}" is submitted: {what}.',
        next_steps=[f"Watch it: osmosis eval info {shlex.quote(shown)} --watch", *([f"View: {url}"] if url else [])],
    )


def _asked_for(error: OsmosisError) -> tuple[str, ...]:
    """The names whose values a retry must be given again.

    Raises:
        ValidationError: It is a local run.
        OsmosisError: The error itself, when it asks for nothing.
    """
    local = error.details.get("local_run")
    if isinstance(local, Mapping):
        config = local.get("config_path") or "configs/eval/<config>.toml"
        command = ["osmosis", "eval", "run", str(config)]
        if local.get("eval_run_name"):
            command += ["--name", str(local["eval_run_name"])]
        raise ValidationError(
            "A local evaluation is retried on the machine that made it, with:\n"
            f"  {shlex.join([*command, '--retry-failed', '--upload'])}"
        ) from None
    names = error.details.get("run_secret_names")
    if not isinstance(names, list) or not names:
        raise error
    if not all(isinstance(name, str) and name for name in names):
        raise PlatformError("The platform sent an answer that this client cannot read: run_secret_names.") from None
    return tuple(names)
