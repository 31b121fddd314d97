"""What a training will take, before it starts: rollouts, tokens and time, from recorded or assumed speeds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from osmosis_ai.errors import OsmosisError
from osmosis_ai.evaluation.atomic import json_bytes, write_atomic

from osmosis_trainer.loop.config import TrainingConfig
from osmosis_trainer.loop.lines import read_lines
from osmosis_trainer.loop.order import DataOrder

_SPEEDS = ".speeds.json"
# Steps at the end of a training whose speed is recorded.
_RECORDED = 20


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """What a training will take.

    Attributes:
        rows: Rows trained on.
        validation_rows: Rows held out.
        rows_per_step: Of a full step.
        steps: Of the whole training.
        done: Steps trained before.
        rollouts: Still to be carried out, validation included, refills not.
        refill_rollouts: At most so many more.
        tokens: Expected to be drawn; None where nothing is known yet.
        seconds: Expected; None where nothing is known yet.
        cost_usd: Of the model's calls: the engine runs here.
    """

    rows: int
    validation_rows: int
    rows_per_step: int
    steps: int
    done: int
    rollouts: int
    refill_rollouts: int
    tokens: int | None
    seconds: float | None
    cost_usd: float = 0.0


def make_plan(
    config: TrainingConfig,
    order: DataOrder,
    held_out: Sequence[int],
    *,
    steps: int,
    done: int,
    root: Path,
    engine: str,
    base: str,
) -> TrainingPlan:
    """Plan what is left of a training."""
    left = range(done, steps)
    rows = sum(len(order.step_rows(step)) for step in left)
    training = rows * config.n_samples_per_prompt
    passes = 0
    if held_out and left:
        due = {0} if done == 0 else set()
        due |= {step + 1 for step in left if config.eval_interval and (step + 1) % config.eval_interval == 0}
        passes = len(due | {steps})
    rollouts = training + passes * len(held_out) * config.validation_samples
    speed = _speeds(root).get(f"{engine} {base}")
    tokens = seconds = None
    if isinstance(speed, dict):
        length = min(float(speed["tokens_per_rollout"]), float(config.max_response_length))
        tokens = int(rollouts * length)
        seconds = rollouts * float(speed["seconds_per_rollout"])
    return TrainingPlan(
        rows=len(order.rows),
        validation_rows=len(held_out),
        rows_per_step=order.size,
        steps=steps,
        done=done,
        rollouts=rollouts,
        refill_rollouts=int(config.refill_limit * rows) * config.n_samples_per_prompt,
        tokens=tokens,
        seconds=seconds,
    )


def record_speed(root: Path, engine: str, base: str, run_dir: Path) -> None:
    """Remember how fast a training's last steps were, for the next plan; losing it does not matter."""
    lines = [line for line in read_lines(run_dir / "metrics.jsonl") if line.get("kind") == "training"][-_RECORDED:]
    samples = sum(line.get("samples", 0.0) for line in lines)
    if not samples:
        return
    speeds = _speeds(root)
    speeds[f"{engine} {base}"] = {
        "tokens_per_rollout": sum(line.get("response_length", 0.0) * line["samples"] for line in lines) / samples,
        "seconds_per_rollout": sum(line.get("step_s", 0.0) for line in lines) / samples,
    }
    try:
        write_atomic(root / _SPEEDS, json_bytes(speeds), durable=False)
    except OsmosisError:
        return


def _speeds(root: Path) -> dict[str, Any]:
    try:
        found = json.loads((root / _SPEEDS).read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
