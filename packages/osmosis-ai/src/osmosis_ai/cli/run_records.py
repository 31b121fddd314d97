"""The records of managed runs as results carry them: exact keys, made from what the platform sent.

Owns: the shapes of training, evaluation and benchmark runs and their progress. How they are drawn, their commands know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from osmosis_ai.client.wire import Record

WAITING = ("pending", "queued")
TERMINAL = ("finished", "failed", "stopped", "crashed", "killed", "unknown", "completed", "error", "cancelled")


def is_over(status: str | None) -> bool:
    """Whether a run of any kind has ended."""
    return (status or "").lower() in TERMINAL


def training_record(run: Record, refs: Record) -> dict[str, Any]:
    """A training run.

    Args:
        run: Its own fields.
        refs: The object that holds `model`, `dataset` and `rollout`: the run itself in lists, its parent in details.
    """
    record: dict[str, Any] = {"id": run.text("id"), "name": run.maybe_text("name"), "status": run.maybe_text("status")}
    for kind, names in (("model", ("model_name", "name")), ("dataset", ("file_name", "name")), ("rollout", ("name",))):
        found = refs.maybe_record(kind)
        record[f"{kind}_id"] = found.maybe_text("id") if found else None
        record[f"{kind}_name"] = _first_text(found, names)
    record |= _people_and_times(run)
    numbers = {
        "current_step": run.maybe_number("current_step"),
        "total_steps": run.maybe_number("total_steps"),
        "reward": run.maybe_number("reward"),
    }
    return record | _known({"platform_url": run.maybe_text("platform_url"), **numbers})


def training_summary(record: Mapping[str, Any]) -> dict[str, Any]:
    """Latest reward and progress of a training record, as far as they are known."""
    steps = progress_of(record.get("current_step"), record.get("total_steps"), "steps")
    return _known({"reward": record.get("reward"), "progress": steps})


def eval_record(run: Record, *, names: Mapping[str, str | None]) -> dict[str, Any]:
    """An evaluation run.

    Args:
        run: Its own fields.
        names: `model`, `dataset` and `rollout` by name.
    """
    times = _people_and_times(run)
    return {
        "id": run.text("id"),
        "name": run.maybe_text("name"),
        "status": run.maybe_text("status"),
        "created_at": times["created_at"],
        "started_at": times["started_at"],
        "completed_at": times["completed_at"],
        **names,
        "creator_name": times["creator_name"],
        "creator_email": times["creator_email"],
        **_known({"platform_url": run.maybe_text("platform_url")}),
        **origin_of(run),
    }


def eval_names(item: Record) -> dict[str, str | None]:
    """Names of the model, dataset and rollout of a list item."""
    keys = {"model": ("name", "model_name"), "dataset": ("name", "file_name"), "rollout": ("name",)}
    return {kind: _first_text(item.maybe_record(kind), names) for kind, names in keys.items()}


def origin_of(run: Record) -> dict[str, Any]:
    """Where a run was executed, when the platform says so: `origin` and its Git provenance. Additive to the contract."""
    return _known({"origin": run.maybe_text("origin"), "provenance": run.fields.get("provenance")})


def is_local(record: Mapping[str, Any]) -> bool:
    """Whether a run was made on somebody's machine and uploaded."""
    return record.get("origin") in ("local", "local_import", "import")


def is_dirty(record: Mapping[str, Any]) -> bool:
    """Whether a local run's code had uncommitted changes."""
    provenance = record.get("provenance")
    return isinstance(provenance, Mapping) and provenance.get("git_dirty") is True


def eval_summary(results: Record | None, config: Record | None, *, details: bool) -> dict[str, Any]:
    """Figures of an evaluation as far as they are known.

    Args:
        results: The platform's `results`.
        config: The run's config; its `n` is part of the progress.
        details: Whether the figures that only details show are wanted.
    """
    if results is None:
        return {}
    summary = {
        "avg_reward": results.maybe_number("score"),
        "pass_rate": results.maybe_number("pass_rate"),
        **{key: results.maybe_number(key) for key in ("graded", "passed", "failed", "skipped")},
    }
    rows = results.maybe_int("sampled_rows")
    n = (config.maybe_int("n") if config else None) or 1
    summary["progress"] = progress_of(
        results.maybe_number("total_runs"), rows * n if rows else None, "samples", wide=True
    )
    if details:
        summary |= {
            "pass_threshold": results.maybe_number("pass_threshold"),
            "total_tokens": results.maybe_number("total_tokens"),
            "dataset_rows": results.maybe_number("total_dataset_rows"),
            "resumed_count": results.maybe_number("resumed_count"),
        }
    return _known(summary)


def benchmark_run_record(run: Record, configuration: Record | None = None) -> dict[str, Any]:
    """A benchmark run; what its own fields lack comes from `benchmark` or the configuration."""
    benchmark = run.maybe_record("benchmark")
    found = {
        key: run.maybe_text(f"benchmark_{key}")
        or (benchmark.maybe_text(key) if benchmark else None)
        or (configuration.maybe_text(f"benchmark_{key}") if configuration else None)
        for key in ("id", "name")
    }
    return {
        "id": run.text("id"),
        "name": run.maybe_text("name") or run.maybe_text("benchmark_run_name"),
        "status": run.maybe_text("status"),
        "benchmark_id": found["id"],
        "benchmark_name": found["name"] or "",
        "agent_count": run.integer("agent_count", 0),
        "best_pass_at_1": run.maybe_number("best_pass_at_1"),
        "ingested_results": run.integer("ingested_results", 0),
        "expected_results": run.integer("expected_results", 0),
        **_people_and_times(run),
        **_known({"platform_url": run.maybe_text("platform_url")}),
    }


def benchmark_progress(record: Mapping[str, Any]) -> dict[str, Any] | None:
    """Results that arrived, of those expected."""
    return progress_of(record["ingested_results"], record["expected_results"] or None, "results")


def progress_of(
    completed: float | None, total: float | None, unit: str, *, wide: bool = False
) -> dict[str, Any] | None:
    """Progress as results carry it; None while the total is unknown.

    Args:
        completed: How many are done.
        total: Of how many.
        unit: `steps`, `samples` or `results`.
        wide: A total that was exceeded grows; else what exceeds it is cut off.
    """
    if total is None or total <= 0:
        return None
    done = max(0, completed or 0)
    return {"completed": done if wide else min(done, total), "total": max(total, done) if wide else total, "unit": unit}


def progress_text(progress: Mapping[str, Any] | None) -> str:
    """`5 / 20 steps (25%)`; empty without progress."""
    if not progress:
        return ""
    completed, total = progress["completed"], progress["total"]
    return f"{completed:,} / {total:,} {progress['unit']} ({int(100 * completed / total)}%)"


def _people_and_times(run: Record) -> dict[str, Any]:
    keys = ("creator_name", "creator_email", "created_at", "started_at", "completed_at")
    return {key: run.maybe_text(key) for key in keys}


def _first_text(record: Record | None, keys: tuple[str, ...]) -> str | None:
    return next((text for key in keys if (text := record.maybe_text(key))), None) if record else None


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
