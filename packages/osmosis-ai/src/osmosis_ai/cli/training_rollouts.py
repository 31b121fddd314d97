"""What became of a training's rollouts, from its `rollouts.jsonl`: how they ended, why some failed, validation passes."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from osmosis_ai.cli.results import Text
from osmosis_ai.evaluation.report import Cause, group_causes
from osmosis_ai.evaluation.statistics import Estimate, mean, rate_estimate, t_estimate
from osmosis_ai.evaluation.verdict import Fault

ROLLOUTS_FILE = "rollouts.jsonl"
_WORDS = {"graded": "graded", "skipped": "skipped", "long_prompt": "with too long a prompt"}


@dataclass(frozen=True, slots=True)
class RolloutFacts:
    """What `rollouts.jsonl` says.

    Attributes:
        kinds: How many ended graded, skipped, with a long prompt, or failed (under that one word).
        causes: Failures that are alike, the most frequent first.
        validation: Mean reward over rows with its 95 % interval, by the steps trained before the pass.
        trained_rows: Rows that were trained on.
        validation_rows: Rows that were validated on.
    """

    kinds: Mapping[str, int]
    causes: tuple[Cause, ...]
    validation: Mapping[int, Estimate]
    trained_rows: frozenset[int]
    validation_rows: frozenset[int]

    @property
    def outcomes(self) -> Text:
        """`2,548 graded · 12 failed`; a warning unless all are graded."""
        words = [f"{self.kinds[kind]:,} {word}" for kind, word in _WORDS.items() if self.kinds.get(kind)]
        words += [f"{self.kinds['failed']:,} failed"] if self.kinds.get("failed") else []
        return Text(" · ".join(words) or "none", None if set(self.kinds) <= {"graded"} else "warn")


def read_rollouts(run_dir: Path) -> RolloutFacts:
    """Read the rollouts of a training; a line that is being written right now is left out."""
    kinds: Counter[str] = Counter()
    causes: Counter[tuple[Fault, str, str]] = Counter()
    rows: dict[str, set[int]] = {"training": set(), "validation": set()}
    rewards: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for record in _records(run_dir / ROLLOUTS_FILE):
        kind = str(record.get("kind"))
        kinds[kind if kind in _WORDS else "failed"] += 1
        if (phase := record.get("phase")) in rows:
            rows[phase].add(int(record["row"]))
        # what an agent makes of a refused prompt is not its failure
        if kind != "long_prompt" and isinstance(error := record.get("error"), dict):
            causes[Fault(error["fault"]), str(error.get("code")), str(error.get("message"))] += 1
        reward = record.get("reward")
        if phase == "validation" and isinstance(reward, int | float):
            rewards[int(record["step"])][int(record["row"])].append(float(reward))
    return RolloutFacts(
        kinds=dict(kinds),
        causes=group_causes(causes),
        validation={step: _estimate(rewards[step]) for step in sorted(rewards)},
        trained_rows=frozenset(rows["training"]),
        validation_rows=frozenset(rows["validation"]),
    )


def _estimate(rows: Mapping[int, list[float]]) -> Estimate:
    means = [mean(values) for values in rows.values()]
    rates = all(reward in (0.0, 1.0) for values in rows.values() for reward in values)
    return rate_estimate(means) if rates else t_estimate(means)


def _records(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        stream = path.open("rb")
    except FileNotFoundError:
        return
    with stream:
        for line in stream:
            if line.endswith(b"\n"):
                yield json.loads(line)
