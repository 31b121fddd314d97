"""What an evaluation is about to do, and what it may cost, told before anything is paid."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from osmosis_ai.cli.figures import dollars_text, path_text, plural
from osmosis_ai.cli.local_models import runs_here
from osmosis_ai.cli.results import Cell, Fields, Text
from osmosis_ai.errors import OsmosisError
from osmosis_ai.evaluation.events import read_events
from osmosis_ai.evaluation.manifest import read_manifest
from osmosis_ai.gateway.prices import shipped_prices

if TYPE_CHECKING:
    from osmosis_ai.evaluation.run import EvaluationRun, RunRequest

_SOURCES = {"explicit": "local file", "cache": "platform, cached", "download": "platform"}
_RUNS_LOOKED_AT = 30
_VERDICTS_LOOKED_AT = 500


def plan_fields(run: EvaluationRun, request: RunRequest) -> Fields:
    """The plan of a run that has something to do."""
    config = request.config
    rows: list[tuple[str, Cell]] = [
        ("Run", run.name),
        ("Rollout", config.rollout),
        ("Entrypoint", config.entrypoint),
        ("Model", config.model_path),
        ("Dataset", f"{request.dataset.name} ({_SOURCES.get(request.dataset_source, request.dataset_source)})"),
    ]
    if config.branch:
        rows.append(("Branch", config.branch))
    if config.commit_sha:
        rows.append(("Commit", config.commit_sha))
    rows.append(("Rows", f"{run.total_count // config.n:,} of {request.dataset.total_rows:,}"))
    if config.n > 1:
        rows.append(("Runs Per Row", str(config.n)))
    items = f"{run.total_count:,}"
    if run.pending_count != run.total_count:
        items += f" ({run.pending_count:,} to do, {run.total_count - run.pending_count:,} done before)"
    rows.append(("Work Items", items))
    rows.append(("Cost", cost_estimate(request.output_root, config.model_path, config.rollout, run.pending_count)))
    if request.max_cost_usd is not None:
        rows.append(("Cost Limit", dollars_text(request.max_cost_usd)))
    rows.append(("Output", path_text(run.run_dir)))
    return Fields(rows, title="Evaluation")


def cost_estimate(output_root: Path, model_path: str, rollout: str, items: int) -> Cell:
    """What so many rollouts will cost, judged by earlier runs of the same rollout and model; `unknown` without any."""
    if runs_here(model_path):
        return "$0 (the model runs on this machine)"
    prices = shipped_prices()
    if prices.price(model_path) is None and model_path.partition("/")[0] != "openrouter":
        return Text(f"unknown (no price known for {model_path})", "dim")
    for run_dir in _newest_runs(output_root):
        each = _mean_cost(run_dir, model_path, rollout)
        if each is not None:
            basis = f"{dollars_text(each)} a rollout in {run_dir.name}"
            return f"about {dollars_text(each * items)} for {plural(items, 'rollout')} ({basis})"
    return Text("unknown until a first run has shown how many tokens a rollout takes", "dim")


def _newest_runs(output_root: Path) -> Iterator[Path]:
    try:
        with os.scandir(output_root) as entries:
            found = [entry for entry in entries if entry.is_dir(follow_symlinks=False) and entry.name != ".locks"]
        found.sort(key=lambda entry: entry.stat().st_mtime, reverse=True)
    except OSError:
        return iter(())
    return (Path(entry.path) for entry in found[:_RUNS_LOOKED_AT])


def _mean_cost(run_dir: Path, model_path: str, rollout: str) -> float | None:
    """Mean cost of a rollout in an earlier run; None when it was another thing or its cost is unknown."""
    try:
        manifest = read_manifest(run_dir)
        if manifest is None or manifest.inputs.get("model_path") != model_path:
            return None
        if (manifest.inputs.get("rollout") or {}).get("name") != rollout:
            return None
        costs: list[float] = []
        for _, verdict in islice(read_events(run_dir / "events.jsonl"), _VERDICTS_LOOKED_AT):
            cost = verdict.cost_usd
            if cost is None and verdict.prompt_tokens is not None and verdict.completion_tokens is not None:
                cost = shipped_prices().estimate(model_path, verdict.prompt_tokens, verdict.completion_tokens)
            if cost is not None:
                costs.append(cost)
    except (OsmosisError, OSError, AttributeError):
        return None  # a damaged neighbour does not stop this run
    return sum(costs) / len(costs) if costs else None
