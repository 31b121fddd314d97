"""Benchmark runs: the table of them, and one in detail with its agents and totals."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from osmosis_ai.cli.dates import ABSENT, date_cell
from osmosis_ai.cli.figures import count_text, dollars_text, duration_text, rate_text
from osmosis_ai.cli.listing import Listing
from osmosis_ai.cli.results import Cell, Column, DetailResult, Fields, Lines
from osmosis_ai.cli.run_details import duration_row, name_rows, secrets_text, time_rows, who_cell
from osmosis_ai.cli.run_records import benchmark_progress, benchmark_run_record, progress_text
from osmosis_ai.cli.statuses import status_token, status_word

if TYPE_CHECKING:
    from osmosis_ai.cli.root import Invocation
    from osmosis_ai.client.session import PlatformClient
    from osmosis_ai.client.wire import Record

RUN_COLUMNS = (
    Column("Name", keep=True), Column("Status"), Column("Progress", right=True), Column("Best Pass@1", right=True),
    Column("Submitted"),
)  # fmt: skip
_COLUMNS = (
    Column("Name", keep=True), Column("Status"), Column("Progress", right=True), Column("Benchmark"),
    Column("Agents", right=True), Column("Best Pass@1", right=True), Column("Submitted"), Column("Submitted By"),
)  # fmt: skip
_MANY_TRIALS = 100  # enough that a tenth of a percent means something


def _item(item: Record) -> dict[str, Any]:
    record = benchmark_run_record(item)
    return {**record, "progress": benchmark_progress(record)}


def run_row(record: Mapping[str, Any]) -> Sequence[Cell]:
    """A run under `RUN_COLUMNS`."""
    progress = benchmark_progress(record)
    best = record["best_pass_at_1"]
    return (
        record["name"] or record["id"],
        status_token(record["status"]),
        f"{progress['completed']:,} / {progress['total']:,}" if progress else ABSENT,
        ABSENT if best is None else rate_text(best),
        date_cell(record["created_at"]),
    )


def _row(record: Mapping[str, Any]) -> Sequence[Cell]:
    name, status, progress, best, submitted = run_row(record)
    benchmark = record["benchmark_name"] or ABSENT
    return name, status, progress, benchmark, str(record["agent_count"]), best, submitted, who_cell(record)


BENCHMARK_RUNS = Listing(
    path="/benchmark-runs",
    key="benchmark_runs",
    record=_item,
    columns=_COLUMNS,
    row=_row,
    empty="There are no benchmark runs yet. Submit one: osmosis benchmark submit CONFIG",
    title="Benchmark Runs",
)


def fetch_run(client: PlatformClient, name: str) -> tuple[dict[str, Any], Record]:
    """One run: its record, with progress and best pass rate filled in from the details, and the whole answer.

    Raises:
        OsmosisError: The platform's error, or an answer without the run.
    """
    from osmosis_ai.client.session import segment
    from osmosis_ai.client.wire import Record

    detail = Record(client.get(f"/benchmark-runs/{segment(name)}"), "answer")
    record = benchmark_run_record(detail.record("benchmark_run"), detail.maybe_record("configuration"))
    if progress := detail.maybe_record("progress"):
        record["ingested_results"] = progress.integer("ingested", 0)
        record["expected_results"] = progress.integer("expected", 0)
    if record["best_pass_at_1"] is None:
        rates = [
            rate
            for metrics in detail.records("agent_metrics")
            if (found := metrics.maybe_record("pass_at_1")) and (rate := found.maybe_number("value")) is not None
        ]
        record["best_pass_at_1"] = max(rates, default=None)
    return record, detail


def show_run(invocation: Invocation, name: str) -> DetailResult:
    """One benchmark run.

    Raises:
        OsmosisError: No scope, no login, or the platform's error.
    """
    from osmosis_ai.client.scope import resolve_scope
    from osmosis_ai.client.session import open_client
    from osmosis_ai.client.wire import finite

    scope = resolve_scope(invocation.workspace)
    output = invocation.output
    with open_client(scope, warn=output.warn) as client, output.working("Fetching benchmark run..."):
        record, detail = fetch_run(client, name)
    data = {
        "benchmark_run": record,
        "configuration": detail.fields.get("configuration"),
        "agents": detail.items("agents"),
        "progress": benchmark_progress(record),
        "totals": detail.fields.get("totals"),
        "agent_metrics": detail.items("agent_metrics"),
        **scope.extras(),
    }
    shown = record["name"] or record["id"]
    hints = [f"View: {record['platform_url']}"] if record.get("platform_url") else []
    hints.append(f"Outputs: osmosis benchmark runs download {shlex.quote(shown)}")
    blocks = [
        Fields(_head(record, internal=detail.flag("is_internal_user"))),
        _configuration(detail),
        Lines(_agents(detail), title="Agents"),
        _totals(detail),
    ]
    return DetailResult(finite(data), blocks, title="Benchmark Run Info", hints=hints)


def _head(record: Mapping[str, Any], *, internal: bool) -> list[tuple[str, Cell]]:
    rows: list[tuple[str, Cell]] = [*name_rows(record, internal=internal), ("Status", status_word(record["status"]))]
    if record["benchmark_name"]:
        rows.append(("Benchmark", record["benchmark_name"]))
    if progress := progress_text(benchmark_progress(record)):
        rows.append(("Progress", progress))
    rows += duration_row(record)
    if record["best_pass_at_1"] is not None:
        rows.append(("Best Pass@1", rate_text(record["best_pass_at_1"])))
    rows.append(("Agents", str(record["agent_count"])))
    submitted, times = time_rows(record)
    return [*rows, *submitted, *times]


def _configuration(detail: Record) -> Fields:
    found = detail.maybe_record("configuration")
    if found is None:
        return Fields([], title="Configuration")
    rows: list[tuple[str, Cell]] = []
    source = ": ".join(filter(None, (found.maybe_text("source_type"), found.maybe_text("source_ref"))))
    if source:
        rows.append(("Source", source))
    for label, key in (("Version", "resolved_version"), ("Digest", "resolved_digest")):
        if text := found.maybe_text(key):
            rows.append((label, text))
    for label, key in (("Tasks", "task_filters"), ("Settings", "config")):
        if value := found.mapping(key):
            rows.append((label, _settings(value)))
    if secrets := secrets_text(found.mapping("resolved_secret_scopes")):
        rows.append(("Secrets", secrets))
    return Fields(rows, title="Configuration")


def _settings(values: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{key}={value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for key, value in sorted(values.items())
        if value is not None
    )


def _agents(detail: Record) -> list[str]:
    """One line an agent, with what was measured of it."""
    measured = {metrics.maybe_text("benchmark_run_agent_id"): metrics for metrics in detail.records("agent_metrics")}
    lines = []
    for position, agent in enumerate(detail.records("agents")):
        number = agent.integer("agent_index", position) + 1
        model = next(filter(None, map(agent.maybe_text, ("model_display_name", "model", "model_ref"))), None)
        parts = [agent.maybe_text("harness") or "default", model, agent.maybe_text("status")]
        metrics = measured.get(agent.maybe_text("id"))
        parts += _agent_figures(agent, metrics)
        if variables := agent.mapping("environment_variables"):
            parts.append("env " + ", ".join(f"{name}={value}" for name, value in sorted(variables.items())))
        lines.append(f"Agent {number}: {' · '.join(filter(None, parts))}")
    return lines


def _agent_figures(agent: Record, metrics: Record | None) -> list[str]:
    parts = []
    tasks = None
    if metrics is not None:
        tasks = metrics.maybe_int("n_tasks")
        rank = metrics.maybe_int("rank")
        parts += [f"#{rank}"] if rank is not None else []
        if first := metrics.maybe_record("pass_at_1"):
            parts.append(f"pass@1 {rate_words(first)}")
        if deepest := metrics.records("pass_at_k"):
            parts.append(f"pass@{deepest[-1].integer('k')} {rate_words(deepest[-1])}")
    sums = agent.maybe_record("aggregates")
    if sums is None:
        return parts
    cost, seconds, tokens = (
        sums.maybe_number(key) for key in ("reported_cost_usd", "mean_duration_seconds", "tokens_per_task")
    )
    if cost is not None:
        parts.append(f"{dollars_text(cost / tasks)}/task" if tasks else dollars_text(cost))
    if seconds is not None:
        parts.append(f"{duration_text(seconds)}/task")
    if tokens is not None:
        parts.append(f"{count_text(round(tokens))} tokens/task")
    return parts


def rate_words(rate: Record | None) -> str:
    """A rate with its interval, in percent: `75.0% (60.0 to 86.0)`; whole percents below 100 trials with an interval."""
    value = rate.maybe_number("value") if rate else None
    if rate is None or value is None:
        return ABSENT
    low, high = rate.maybe_number("ci_low"), rate.maybe_number("ci_high")
    if low is None or high is None:
        return rate_text(value)
    digits = 1 if (rate.maybe_int("n") or 0) >= _MANY_TRIALS else 0
    return f"{100 * value:.{digits}f}% ({100 * low:.{digits}f} to {100 * high:.{digits}f})"


def _totals(detail: Record) -> Fields:
    totals = detail.maybe_record("totals")
    if totals is None:
        return Fields([], title="Results")
    rows: list[tuple[str, Cell]] = []
    outcomes = [(key, totals.maybe_int(key)) for key in ("passed", "failed", "errored", "cancelled")]
    if any(count is not None for _, count in outcomes):
        rows.append(("Outcomes", ", ".join(f"{count:,} {key}" for key, count in outcomes if count is not None)))
    for label, key in (("Input Tokens", "total_input_tokens"), ("Output Tokens", "total_output_tokens")):
        if (count := totals.maybe_int(key)) is not None:
            rows.append((label, f"{count:,}"))
    if (cost := totals.maybe_number("total_cost_usd")) is not None:
        rows.append(("LLM Cost", dollars_text(cost)))
    return Fields(rows, title="Results")
