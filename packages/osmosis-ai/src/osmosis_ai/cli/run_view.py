"""A run's rollouts as a list to choose from, and one of them in full."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from osmosis_ai.cli.figures import cause_text, count_text, dollars_text, duration_text, path_text, plural, reward_text
from osmosis_ai.cli.results import Block, Cell, Column, DetailResult, Fields, Lines, ListResult, Table, Text
from osmosis_ai.cli.trajectory_view import trajectory_blocks
from osmosis_ai.errors import NotFoundError, ValidationError
from osmosis_ai.evaluation.verdict import Outcome

if TYPE_CHECKING:
    from osmosis_ai.evaluation.journal import Entry
    from osmosis_ai.evaluation.results import RunResults
    from osmosis_ai.evaluation.verdict import Failure, Timings

_ORDER = {Outcome.FAILED: 0, Outcome.GRADED: 1, Outcome.SKIPPED: 2}
_WORDS = {Outcome.FAILED: "failed", Outcome.GRADED: "graded", Outcome.SKIPPED: "skipped"}


def list_rollouts(results: RunResults, given: str, *, failed: bool, limit: int | None) -> ListResult:
    """The rollouts of a run, failures first, then by reward from the lowest."""
    entries = [entry for entry in results.verdicts.values() if not failed or entry.outcome is Outcome.FAILED]
    entries.sort(key=lambda entry: (_ORDER[entry.outcome], entry.reward or 0.0, entry.key))
    page = entries if limit is None else entries[:limit]
    several = results.n > 1
    columns = [Column("Row", right=True), Column("Run", right=True), Column("Outcome", keep=True)]
    columns += [Column(name, right=True) for name in ("Reward", "Tokens", "Time")]
    columns += [Column("Why")]
    rows = [_list_row(results, entry, several) for entry in page]
    if not several:
        columns.pop(1)
    if page:
        attempt = f" --run {page[0].run_index}" if several else ""
        hints = [f"Read one: osmosis eval view {shlex.quote(given)} --row {_source_row(results, page[0])}{attempt}"]
    else:
        hints = [f"No rollout of {results.name} failed." if failed else f"{results.name} has no results yet."]
    return ListResult(
        items=[_item(results, entry) for entry in page],
        table=Table(columns, rows, title=f"{results.name} · {results.model}".rstrip(" ·")),
        total_count=len(entries),
        has_more=len(page) < len(entries),
        next_offset=len(page) if len(page) < len(entries) else None,
        hints=hints,
    )


def show_rollout(results: RunResults, given: str, row: int, attempt: int | None, *, failed: bool) -> DetailResult:
    """One rollout with its conversation.

    Raises:
        NotFoundError: The run has no verdict for that row and attempt.
    """
    entry = _choose(results, row, attempt, failed=failed)
    verdict = results.verdict(entry.key)
    path = results.trajectory_path(entry.key) or _trial_trajectory(results.run_dir, entry.rollout_id)
    document = _load(path)
    failure = verdict.failure if verdict is not None and verdict.failure is not None else entry.failure
    fields: list[tuple[str, Cell]] = [
        ("Run", results.name),
        ("Row", f"{row}" + (f", attempt {entry.run_index} of 0 to {results.n - 1}" if results.n > 1 else "")),
        ("Outcome", _outcome(entry, results.pass_threshold)),
    ]
    if entry.reward is not None:
        fields.append(("Reward", reward_text(entry.reward)))
    if verdict is not None and verdict.metrics:
        fields.append(("Metrics", ", ".join(f"{name} {value:g}" for name, value in verdict.metrics.items())))
    if entry.tokens is not None:
        split = ""
        if verdict is not None and verdict.prompt_tokens is not None and verdict.completion_tokens is not None:
            split = f"  ({verdict.prompt_tokens:,} prompt, {verdict.completion_tokens:,} completion)"
        fields.append(("Tokens", f"{entry.tokens:,}{split}"))
    if entry.cost_usd is not None:
        fields.append(("Cost", dollars_text(entry.cost_usd)))
    if entry.duration_ms is not None:
        timings = _timings(verdict.timings if verdict is not None else None)
        fields.append(("Duration", f"{duration_text(entry.duration_ms / 1000)}{timings}"))
    if verdict is not None and verdict.attempts > 1:
        fields.append(("Tries", str(verdict.attempts)))
    fields.append(("Rollout", entry.rollout_id))
    fields.append(("Trajectory", path_text(path) if path is not None else Text("none was written", "dim")))
    blocks: list[Block] = [Fields(fields), *_error(failure)]
    if document is not None:
        blocks += trajectory_blocks(document)
    others = [key[1] for key in results.verdicts if key[0] == entry.row_index and key != entry.key]
    hints = [f"Other attempts: osmosis eval view {shlex.quote(given)} --row {row} --run {others[0]}"] if others else []
    data: dict[str, Any] = {
        "run_name": results.name,
        **_item(results, entry),
        "failure": asdict(failure) if failure is not None else None,
        "trajectory_path": str(path) if path is not None else None,
        "trajectory": document,
    }
    return DetailResult(data, blocks, title=f"{results.name} · row {row}", hints=hints)


def _choose(results: RunResults, row: int, attempt: int | None, *, failed: bool) -> Entry:
    found = [entry for entry in results.verdicts.values() if _source_row(results, entry) == row]
    if not found:
        known = sorted({_source_row(results, entry) for entry in results.verdicts.values()})
        there = (
            f"it has {plural(len(known), 'row')} from {known[0]} to {known[-1]}" if known else "it has no results yet"
        )
        raise NotFoundError(f"Run {results.name} has no result for row {row}: {there}.")
    if failed:
        found = [entry for entry in found if entry.outcome is Outcome.FAILED]
        if not found:
            raise NotFoundError(f"No attempt at row {row} of run {results.name} failed.")
    if attempt is None:
        return found[0]
    chosen = [entry for entry in found if entry.run_index == attempt]
    if not chosen:
        known = ", ".join(str(entry.run_index) for entry in found)
        raise NotFoundError(f"Run {results.name} has no attempt {attempt} at row {row}; there is: {known}.")
    return chosen[0]


def _source_row(results: RunResults, entry: Entry) -> int:
    source = entry.source_row_index
    if source is None:
        source = results.source_row(entry.row_index)
    return entry.row_index if source is None else source


def _list_row(results: RunResults, entry: Entry, several: bool) -> list[Cell]:
    cells: list[Cell] = [str(_source_row(results, entry))]
    if several:
        cells.append(str(entry.run_index))
    cells += [
        _outcome(entry, results.pass_threshold),
        reward_text(entry.reward) if entry.reward is not None else "–",
        count_text(entry.tokens) if entry.tokens is not None else "–",
        duration_text(entry.duration_ms / 1000) if entry.duration_ms is not None else "–",
        _why(entry.failure),
    ]
    return cells


def _outcome(entry: Entry, threshold: float) -> Text:
    if entry.outcome is not Outcome.GRADED or entry.reward is None:
        return Text(_WORDS[entry.outcome], "bad" if entry.outcome is Outcome.FAILED else "warn")
    return Text("passed", "good") if entry.reward >= threshold else Text("not passed", "warn")


def _why(failure: Failure | None) -> Cell:
    if failure is None:
        return ""
    line = " ".join(failure.message.split())
    return cause_text(str(failure.fault), failure.code) + (f" · {line[:120]}" if line else "")


def _error(failure: Failure | None) -> list[Block]:
    if failure is None:
        return []
    head = Text(cause_text(str(failure.fault), failure.code), "bad")
    blocks: list[Block] = [Lines(["", head]), Lines(failure.message.split("\n"), indent=2)]
    if failure.traceback_tail:
        blocks.append(Lines([Text(line, "dim") for line in failure.traceback_tail.rstrip().split("\n")], indent=2))
    return blocks


def _timings(timings: Timings | None) -> str:
    if timings is None:
        return ""
    parts = [("queued", timings.queued_s), ("agent", timings.agent_s), ("grader", timings.grader_s)]
    shown = [f"{name} {duration_text(seconds)}" for name, seconds in parts if seconds is not None]
    return f"  ({', '.join(shown)})" if shown else ""


def _item(results: RunResults, entry: Entry) -> dict[str, Any]:
    return {
        "row_index": entry.row_index,
        "source_row_index": _source_row(results, entry),
        "run_index": entry.run_index,
        "rollout_id": entry.rollout_id,
        "status": str(entry.outcome),
        "reward": entry.reward,
        "passed": entry.reward is not None and entry.reward >= results.pass_threshold,
        "tokens": entry.tokens,
        "cost_usd": entry.cost_usd,
        "duration_ms": entry.duration_ms,
        "fault": str(entry.failure.fault) if entry.failure else None,
        "error_type": entry.failure.code if entry.failure else None,
        "message": entry.failure.message if entry.failure else None,
    }


def _trial_trajectory(run_dir: Path, rollout_id: str) -> Path | None:
    path = run_dir / "rollout_trials" / rollout_id / "trajectory.json"
    return path if path.is_file() else None


def _load(path: Path | None) -> dict[str, Any] | None:
    import json

    if path is None:
        return None
    try:
        document = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValidationError(f"{path} is not a trajectory: {error}") from None
    if not isinstance(document, dict):
        raise ValidationError(f"{path} is not a trajectory: it holds no JSON object.")
    return document
