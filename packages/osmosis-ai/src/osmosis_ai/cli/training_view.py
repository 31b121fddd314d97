"""A training's curves and figures, from the files of its run: finished, broken off, or still going on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from osmosis_ai.cli.eval_report import cause_table
from osmosis_ai.cli.figures import path_text, reward_text, value_text
from osmosis_ai.cli.results import Block, Cell, Column, DetailResult, Fields, Table, Text
from osmosis_ai.cli.training_curves import (
    EXPORTED,
    TITLES,
    TRAINING_REWARD,
    VALIDATION_REWARD,
    Curves,
    metric_graphs,
    read_curves,
    reward_plot,
)
from osmosis_ai.cli.training_rollouts import read_rollouts
from osmosis_ai.errors import NotFoundError


def view_training(run_dir: Path) -> DetailResult:
    """The result of `train view`.

    Raises:
        NotFoundError: The directory holds no training.
        ValidationError: A file of the run is damaged.
    """
    known = run_dir.parent.name == "trainings"  # one that has just begun is empty
    if not known and not any((run_dir / name).exists() for name in ("manifest.json", "metrics.jsonl", "checkpoints")):
        raise NotFoundError(
            f"{run_dir} holds no training: no manifest.json, metrics.jsonl or checkpoints. Trainings lie under"
            " .osmosis/trainings."
        )
    curves = read_curves(run_dir)
    facts = read_rollouts(run_dir)
    checkpoints = checkpoint_steps(run_dir)
    manifest = read_object(run_dir / "manifest.json") or {}
    inputs = manifest.get("inputs") or {}
    model = str(inputs.get("model_path", ""))
    fields: list[tuple[str, Cell]] = [("Run", run_dir.name)]
    fields += [("Model", f"{model} ({inputs.get('engine')})")] if model else []
    fields += [("Config", str(manifest["config_path"]))] if "config_path" in manifest else []
    fields.append(("Steps", f"{curves.step:,}"))
    if facts.kinds:
        fields.append(("Rollouts", facts.outcomes))
    fields += change_fields(curves)
    if checkpoints:
        fields.append(("Checkpoints", ", ".join(str(step) for step in checkpoints)))
    fields.append(("Output", path_text(run_dir)))
    blocks: list[Block] = [cause_table(facts.causes)] if facts.causes else []
    blocks.append(Fields(fields))
    hints: list[str] = []
    if curves:
        blocks += [reward_plot(curves, title="Reward"), metric_graphs(curves, title="Metrics"), metric_table(curves)]
    else:
        hints.append(f"{run_dir.name} has no metrics yet; they come with its first step.")
    if checkpoints:
        adapter = path_text(run_dir / "checkpoints" / f"step_{checkpoints[-1]}")
        named = model.startswith("osmosis/") and run_dir.parts[-3:-1] == (".osmosis", "trainings")
        name = f"{model}@{run_dir.name}/{checkpoints[-1]}" if named else adapter
        hints.append(f"Evaluate it: osmosis eval run <eval config> --model {name}")
    data = {
        "training_run": {
            "name": run_dir.name,
            "model_name": model or None,
            "dataset_name": (manifest.get("dataset") or {}).get("name"),
            "rollout_name": (inputs.get("rollout") or {}).get("name"),
            "created_at": manifest.get("created_at"),
            "current_step": curves.step,
            "output_path": str(run_dir),
        },
        "outcomes": dict(facts.kinds),
        "summary": summary(curves),
        "metrics": [
            {"key": EXPORTED.get(name, name), "title": TITLES.get(name, name), "data": _data(curves, name)}
            for name in curves.names
        ],
        "metrics_available": bool(curves),
        "checkpoints": [{"checkpoint_step": step} for step in checkpoints],
    }
    return DetailResult(data, blocks, title=run_dir.name, hints=hints)


def change_fields(curves: Curves) -> list[tuple[str, Cell]]:
    """First and last reward of both kinds, where there are any."""
    fields: list[tuple[str, Cell]] = []
    for label, name in (("Training Reward", TRAINING_REWARD), ("Validation Reward", VALIDATION_REWARD)):
        points = curves.points(name)
        if not points:
            continue
        (first, before), (last, after) = points[0], points[-1]
        text = f"{reward_text(before)} → {reward_text(after)}  (step {first:g} → {last:g})"
        fields.append((label, Text(text, "good" if after > before else None)))
    return fields


def summary(curves: Curves) -> dict[str, dict[str, float]]:
    """For each metric initial, latest, delta, min and max, under the names of the published export."""
    found = {}
    for name in curves.names:
        values = curves.values(name)
        found[EXPORTED.get(name, name)] = {
            "initial": values[0],
            "latest": values[-1],
            "delta": values[-1] - values[0],
            "min": min(values),
            "max": max(values),
        }
    return found


def metric_table(curves: Curves) -> Table:
    """The titled metrics in figures."""
    rows: list[Sequence[Cell]] = []
    for name, title in TITLES.items():
        if values := curves.values(name):
            rows.append([title, *(value_text(value) for value in (values[0], values[-1], min(values), max(values)))])
    columns = [Column("Metric", keep=True), *(Column(name, right=True) for name in ("First", "Last", "Least", "Most"))]
    return Table(columns, rows)


def checkpoint_steps(run_dir: Path) -> list[int]:
    """Steps whose adapters lie in the run, ascending."""
    found = []
    for path in (run_dir / "checkpoints").glob("*/adapter_config.json"):
        digits = "".join(character for character in path.parent.name if character in "0123456789")
        if digits:
            found.append(int(digits))
    return sorted(found)


def read_object(path: Path) -> Mapping[str, Any] | None:
    """A JSON object of the run, or None where there is none."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _data(curves: Curves, name: str) -> list[dict[str, Any]]:
    return [
        {"step": int(step), "value": value, "timestamp": _timestamp(curves.time(name, int(step)))}
        for step, value in curves.points(name)
    ]


def _timestamp(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
