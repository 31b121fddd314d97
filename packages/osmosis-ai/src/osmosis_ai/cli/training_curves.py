"""The metrics of a training as curves: from `metrics.jsonl`, or step by step while it runs.

Owns: which metrics people see first and what they are called. Which metrics there are is the trainer's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from osmosis_ai.cli.graph import Point, Series
from osmosis_ai.cli.results import Graphs, Plot
from osmosis_ai.errors import ValidationError

METRICS_FILE = "metrics.jsonl"
TRAINING_REWARD = "training_reward"
VALIDATION_REWARD = "validation_reward"
TITLES: Mapping[str, str] = {
    TRAINING_REWARD: "Training Reward",
    VALIDATION_REWARD: "Validation Reward",
    "model_entropy": "Model Entropy",
    "response_length": "Response Length",
    "total_length": "Total Length",
    "truncation_ratio": "Truncation Ratio",
    "loss": "Loss",
    "grad_norm": "Gradient Norm",
    "logprob_gap_max": "Log-prob Gap",
    "tokens_per_s": "Tokens per Second",
}
"""Metrics that are shown as graphs, in this order, with their titles."""

EXPORTED: Mapping[str, str] = {"model_entropy": "entropy"}
"""Names that the published export of a training's metrics has for some."""


class Curves:
    """What a training has measured so far, a series for each metric."""

    def __init__(self, records: Iterable[Mapping[str, Any]] = ()) -> None:
        self._series: dict[str, dict[int, float]] = {}
        self._times: dict[tuple[str, int], float] = {}
        self.step = 0
        for record in records:
            self.add(record)

    def add(self, record: Mapping[str, Any]) -> None:
        """Take one line of the metrics; of two lines for a step the later one counts.

        What a validation pass says beside its reward is kept apart from the step's own figures, as `validation/<name>`.
        """
        step = record.get("step")
        if isinstance(step, bool) or not isinstance(step, int):
            return
        validation = record.get("kind") == "validation"
        if not validation:
            self.step = max(self.step, step)
        for name, value in _numbers(record):
            if name in ("step", "time"):
                continue
            shown = f"validation/{name}" if validation and name != VALIDATION_REWARD else name
            self._series.setdefault(shown, {})[step] = value
            if isinstance(time := record.get("time"), int | float):
                self._times[shown, step] = float(time)

    @property
    def names(self) -> list[str]:
        """Every metric there is, those with a title first."""
        return [*(name for name in TITLES if name in self._series), *sorted(self._series.keys() - TITLES.keys())]

    def points(self, name: str) -> list[Point]:
        """A metric by rising step; none when it was never measured."""
        return sorted(self._series.get(name, {}).items())

    def time(self, name: str, step: int) -> float | None:
        """When a value was measured, seconds since 1970; None when that is not known."""
        return self._times.get((name, step))

    def values(self, name: str) -> list[float]:
        """A metric's values by rising step."""
        return [value for _, value in self.points(name)]

    def last(self, name: str) -> float | None:
        """A metric's newest value."""
        points = self.points(name)
        return points[-1][1] if points else None

    def until(self, step: int) -> Curves:
        """The same without what came after a step."""
        kept = Curves()
        kept._series = {
            name: {at: value for at, value in series.items() if at <= step} for name, series in self._series.items()
        }
        kept._series = {name: series for name, series in kept._series.items() if series}
        kept._times = {key: time for key, time in self._times.items() if key[1] <= step}
        kept.step = min(self.step, step)
        return kept

    def __bool__(self) -> bool:
        """Whether anything was measured."""
        return bool(self._series)


def read_curves(run_dir: Path) -> Curves:
    """The metrics of a run's directory; a line that is being written right now is left out.

    Raises:
        ValidationError: A complete line is no JSON object; its number is named.
    """
    path = run_dir / METRICS_FILE
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return Curves()
    records = []
    for number, line in enumerate(lines[:-1], 1):
        try:
            record = json.loads(line) if line.strip() else {}
        except ValueError:
            record = None
        if not isinstance(record, dict):
            raise ValidationError(f"{path} is damaged: line {number} is no JSON object. Delete that line to go on.")
        records.append(record)
    return Curves(records)


def reward_plot(curves: Curves, *, height: int = 12, title: str = "") -> Plot:
    """Training and validation reward over steps."""
    training = Series("training reward", curves.points(TRAINING_REWARD))
    validation = Series("validation reward", curves.points(VALIDATION_REWARD), "points")
    return Plot((training, validation), ("accent", "good"), title=title, height=height)


def metric_graphs(curves: Curves, title: str = "") -> Graphs:
    """The titled metrics as sparklines; one that was never measured says so."""
    return Graphs([(shown, curves.values(name)) for name, shown in TITLES.items()], title=title)


def _numbers(record: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, float]]:
    """The numbers of a record, those of tables inside it under dotted names."""
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}{name}", float(value)
