"""The benchmarks of a workspace: the table of them, and one with its leaderboard and runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from osmosis_ai.cli.benchmark_runs import RUN_COLUMNS, rate_words, run_row
from osmosis_ai.cli.dates import ABSENT, age_text
from osmosis_ai.cli.figures import count_text, dollars_text, duration_text, plural
from osmosis_ai.cli.listing import Listing
from osmosis_ai.cli.results import Cell, Column, DetailResult, Fields, Table, Text
from osmosis_ai.cli.run_records import benchmark_progress, benchmark_run_record
from osmosis_ai.cli.statuses import status_word

if TYPE_CHECKING:
    from osmosis_ai.cli.root import Invocation
    from osmosis_ai.client.wire import Record

_COLUMNS = (Column("Name", keep=True), Column("Key", keep=True), Column("Last Run"), Column("Tasks", right=True))
_LEADERBOARD = (
    Column("Rank", right=True), Column("Agent"), Column("Pass@1", right=True), Column("Pass@k", right=True),
    Column("Cost/task", right=True), Column("Time/task", right=True), Column("Tokens/task", right=True),
)  # fmt: skip
_DIFFICULTIES = ("easy", "medium", "hard")


def _item(item: Record) -> dict[str, Any]:
    return {**_identity(item), **_counters(item)}


def _identity(item: Record) -> dict[str, Any]:
    key = item.text("source_ref")
    return {
        "id": item.text("id"),
        "name": item.text("name"),
        "key": key,
        "description": item.maybe_text("description"),
        "source_type": item.text("source_type"),
        "source_ref": key,
        "source_url": item.maybe_text("source_url"),
        "task_count": item.integer("task_count"),
        "category_count": item.integer("category_count"),
        "task_sets": [
            {
                "name": task_set.text("name"),
                "task_count": task_set.integer("task_count"),
                "recommended": task_set.flag("recommended"),
                "description": task_set.maybe_text("description"),
            }
            for task_set in item.records("task_sets")
        ],
        "sync_status": item.maybe_text("sync_status") or "ready",
        "synced_task_count": item.integer("synced_task_count", 0),
        "sync_error": item.maybe_text("sync_error"),
        "platform_url": item.maybe_text("platform_url"),
    }


def _counters(item: Record) -> dict[str, Any]:
    return {
        "run_count": item.integer("run_count", 0),
        "running_count": item.integer("running_count", 0),
        **{key: item.maybe_text(key) for key in ("last_run_at", "last_run_status", "last_run_name", "creator_name")},
    }


def _row(item: Mapping[str, Any]) -> Sequence[Cell]:
    last, tasks = _last_run(item)
    return item["name"], item["key"], last, tasks


def _last_run(item: Mapping[str, Any]) -> tuple[Cell, Cell]:
    """The cells of the last run and of the tasks, which tell of the sync while there is one."""
    match item["sync_status"]:
        case "pending" | "syncing":
            words = "Syncing" if item["sync_status"] == "syncing" else "Waiting to sync"
            done = f"{item['synced_task_count']:,} / {item['task_count']:,} tasks" if item["task_count"] else ""
            return Text(" · ".join(filter(None, (words, done))), "active"), ""
        case "failed":
            reason = item["sync_error"] or "the sync failed"
            return Text(f"Failed · {reason}", "bad"), Text("unavailable", "bad")
    tasks = f"{item['task_count']:,}"
    if not (item["last_run_status"] and item["last_run_at"]):
        return Text("No benchmark runs yet", "dim"), tasks
    status = status_word(item["last_run_status"])
    parts = [str(status), age_text(item["last_run_at"]), item["last_run_name"]]
    return Text(" · ".join(filter(None, parts)), status.role), tasks


BENCHMARKS = Listing(
    path="/benchmarks",
    key="benchmarks",
    record=_item,
    columns=_COLUMNS,
    row=_row,
    empty="There are no benchmarks in this workspace yet; add one on its page of benchmarks.",
    title="Benchmarks",
)


def show_benchmark(invocation: Invocation, key: str, limit: int, everything: bool) -> DetailResult:
    """One benchmark, its leaderboard and the runs of it.

    Raises:
        OsmosisError: No scope, no login, or the platform's error.
    """
    from osmosis_ai.client.scope import resolve_scope
    from osmosis_ai.client.session import open_client, segment
    from osmosis_ai.client.wire import Record, finite

    scope = resolve_scope(invocation.workspace)
    output = invocation.output
    with open_client(scope, warn=output.warn) as client:
        with output.working("Fetching benchmark..."):
            reply = Record(client.get(f"/benchmarks/{segment(key)}"), "answer")
            found = reply.record("benchmark")
            benchmark = {**_identity(found), **_rules(found)}
        with output.working("Fetching benchmark runs..."):
            page = client.pages(
                "/benchmark-runs",
                key="benchmark_runs",
                limit=limit,
                fetch_all=everything,
                params={"benchmark": benchmark["id"]},
            )
    leaderboard = [finite(dict(entry.fields)) for entry in reply.records("leaderboard")]
    records = [benchmark_run_record(run) for run in page.items]
    data = {
        "benchmark": benchmark,
        "leaderboard": leaderboard,
        "runs": [{**record, "progress": benchmark_progress(record)} for record in records],
        "runs_total_count": page.total_count,
        **scope.extras(),
    }
    note = f"Showing {len(records)} of {page.total_count} runs; --all shows every one." if page.has_more else ""
    blocks = [
        _summary(benchmark, page.total_count),
        Table(_LEADERBOARD, [_entrant(Record(entry, "leaderboard")) for entry in leaderboard], title="Leaderboard"),
        Table(RUN_COLUMNS, [run_row(record) for record in records], title="Runs", note=note),
    ]
    hints = _advice(benchmark)
    if benchmark["platform_url"]:
        hints.append(f"View: {benchmark['platform_url']}")
    if not records:
        hints.append("No runs yet. Submit one: osmosis benchmark submit CONFIG")
    return DetailResult(data, blocks, title="Benchmark Info", hints=hints)


def _rules(found: Record) -> dict[str, Any]:
    tasks = [
        {
            "name": task.text("name"),
            "category": task.maybe_text("category"),
            "difficulty": level if (level := task.fields.get("difficulty")) in _DIFFICULTIES else None,
        }
        for task in found.records("tasks")
    ]
    return {
        "runner_family": found.text("runner_family"),
        "supports_harness": found.flag("supports_harness"),
        "requires_harness": found.flag("requires_harness"),
        "default_harness": found.maybe_text("default_harness"),
        "requires_judge_model": found.flag("requires_judge_model"),
        "requires_judge_api_key": found.flag("requires_judge_api_key"),
        "judge_model_default": found.maybe_text("judge_model_default"),
        "pass_threshold": found.maybe_number("pass_threshold"),
        "categories": [
            {"name": category.text("name"), "task_count": category.integer("task_count")}
            for category in found.records("categories")
        ],
        "tasks": tasks,
        "unavailable_tasks": found.fields.get("unavailable_tasks"),
    }


def _summary(benchmark: Mapping[str, Any], runs: int) -> Fields:
    rows: list[tuple[str, Cell]] = [("Name", Text(benchmark["name"], "strong")), ("Key", benchmark["key"])]
    if benchmark["description"]:
        rows.append(("Description", benchmark["description"]))
    rows += [
        ("Source", benchmark["source_url"] or benchmark["source_ref"]),
        ("Runner", benchmark["runner_family"]),
        ("Tasks", _last_run({**benchmark, "last_run_status": None, "last_run_at": None})[1] or ABSENT),
        ("Categories", _categories(benchmark)),
    ]
    if benchmark["sync_status"] != "ready":
        rows.append(("Sync", _last_run(benchmark)[0]))
    sets = [_task_set(benchmark, task_set) for task_set in benchmark["task_sets"]]
    if sets:
        rows.append(("Named Task Sets", ", ".join(sets)))
    rows += [("Harness", _harness(benchmark)), ("LLM Judge", _judge(benchmark))]
    if benchmark["pass_threshold"] is not None:
        rows.append(("Pass Threshold", f"{benchmark['pass_threshold']:g}"))
    rows.append(("Runs", f"{runs:,}"))
    return Fields(rows)


def _advice(benchmark: Mapping[str, Any]) -> list[str]:
    """What to write in a config for this benchmark."""
    advice = [
        f'Recommended under [tasks]: task_set = "{task_set["name"]}" ({plural(task_set["task_count"], "task")})'
        for task_set in benchmark["task_sets"]
        if task_set["recommended"]
    ]
    if harness := benchmark["default_harness"]:
        advice.append(f'Published scores were measured with harness = "{harness}"; others do not compare with them.')
    return advice


def _task_set(benchmark: Mapping[str, Any], task_set: Mapping[str, Any]) -> str:
    parity_of_hle = benchmark["key"].lower() == "hle" and task_set["name"] == "parity"
    recommended = ", recommended" if task_set["recommended"] or parity_of_hle else ""
    return f"{task_set['name']} ({plural(task_set['task_count'], 'task')}{recommended})"


def _categories(benchmark: Mapping[str, Any]) -> str:
    named = ", ".join(f"{category['name']} ({category['task_count']:,})" for category in benchmark["categories"])
    return named or f"{benchmark['category_count']:,}"


def _harness(benchmark: Mapping[str, Any]) -> str:
    default = f" (default: {benchmark['default_harness']})" if benchmark["default_harness"] else ""
    if benchmark["requires_harness"]:
        return f"Required{default}"
    return f"Optional{default}" if benchmark["supports_harness"] else ABSENT


def _judge(benchmark: Mapping[str, Any]) -> str:
    if benchmark["requires_judge_model"]:
        default = benchmark["judge_model_default"]
        return f"Required (default: {default})" if default else "Required"
    return "API key only (pinned grader)" if benchmark["requires_judge_api_key"] else ABSENT


def _entrant(entry: Record) -> Sequence[Cell]:
    rank = entry.maybe_int("rank")
    agent = " · ".join(filter(None, (entry.maybe_text("harness") or "default", entry.maybe_text("model"))))
    if entry.maybe_text("task_set") == "parity":
        agent += " [parity]"
    cost, seconds, tokens = (
        entry.maybe_number(key) for key in ("cost_per_task", "mean_duration_seconds", "tokens_per_task")
    )
    deepest = entry.records("pass_at_k")
    return (
        ABSENT if rank is None else f"{rank}{'=' if entry.flag('tied') else ''}",
        agent,
        rate_words(entry.maybe_record("pass_at_1")),
        f"{rate_words(deepest[-1])} (k={deepest[-1].integer('k')})" if deepest else ABSENT,
        ABSENT if cost is None else dollars_text(cost),
        ABSENT if seconds is None else duration_text(seconds),
        ABSENT if tokens is None else count_text(math.floor(tokens)),
    )
