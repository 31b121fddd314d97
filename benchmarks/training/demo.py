"""The demo's training through real HTTP rollouts of the plain loop: how far it gets, what it costs, and where.

    .venv/bin/python benchmarks/training/demo.py [--seeds 0 1 2] [--steps 40] [--rows 416] [--concurrent 64]

Each seed trains osmosis/nano on the multiply task of `workspace-template` in a process of its own, 8 rows x 8 rollouts
a step, lr 5e-4, with 96 held-out rows answered greedily before, between and after. Limits (issue 3): sampled reward from
at most 0.15 to at least 0.9, greedy at least 0.95, within 240 s of two idle cores; the loop's own work at most 5% of a
step's CPU; the gateway at most 3 ms CPU a call; the process at most 400 MB. CPU seconds are what to compare on a busy
machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
HELD_OUT = 96
_LIMITS = {"before": 0.15, "after": 0.9, "greedy": 0.95, "wall_s": 240.0, "loop_share": 0.05, "rss_mb": 400.0}


def make_workspace(root: Path, rows: int, concurrent: int) -> None:
    """The template's workspace with more rows than it ships, and a rollout server that takes a whole step at once."""
    shutil.copytree(ROOT / "workspace-template", root, dirs_exist_ok=True)
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    main = root / "rollouts/multiply-local-loop/main.py"
    main.write_text(re.sub(r"max_concurrent=\d+", f"max_concurrent={concurrent}", main.read_text()))
    drawn = random.Random(11)
    with (root / "data/rows.jsonl").open("w") as stream:
        for _ in range(rows):
            a, b = drawn.randint(2, 99), drawn.randint(2, 99)
            text = drawn.choice([f"What is {a} * {b}?", f"Compute {a} times {b}.", f"Multiply {a} by {b}."])
            stream.write(json.dumps({"user_prompt": text, "ground_truth": str(a * b)}) + "\n")


def train(root: Path, seed: int, steps: int) -> dict[str, Any]:
    """One training; its figures."""
    from osmosis_ai.evaluation.dataset import open_dataset
    from osmosis_ai.workspace.training_config import load_training_config
    from osmosis_trainer.training import (
        SilentTrainingObserver,
        TrainingRequest,
        TrainingRun,
        read_metrics,
        training_options,
    )

    began = time.monotonic()
    first: list[float] = []

    class Watching(SilentTrainingObserver):
        def step(self, step: int, steps: int, values: Mapping[str, float]) -> None:
            first.append(time.monotonic() - began)

    file = load_training_config(root / "configs/training/multiply-local-loop.toml", root, training_options())
    request = TrainingRequest(
        workspace_dir=root,
        file=file,
        dataset=open_dataset(root / "data/rows.jsonl"),
        output_root=root / ".osmosis/trainings",
        name=f"seed-{seed}",
        options={"seed": seed, "max_steps": steps, "validation_rows": HELD_OUT, "eval_interval": max(1, steps // 2)},
    )
    with TrainingRun.open(request, warn=lambda code, text: print(text, file=sys.stderr)) as run:
        report = asyncio.run(run.execute({}, Watching()))
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    lines = read_metrics(report.run_dir)
    training = [line for line in lines if line["kind"] == "training"]
    rewards = [line["training_reward"] for line in training]
    rollouts = [json.loads(line) for line in (report.run_dir / "rollouts.jsonl").read_text().splitlines()]
    calls = sum(line["turns"] for line in rollouts)
    cpu = own.ru_utime + own.ru_stime
    reached = next((i for i in range(len(rewards)) if statistics.fmean(rewards[i : i + 3]) >= 0.9), None)
    return {
        "seed": seed,
        "before": rewards[0],
        "after": statistics.fmean(rewards[-3:]),
        "greedy_before": report.validation_reward[0],
        "greedy": report.validation_reward[report.steps],
        "steps": report.steps,
        "steps_to_0.9": None if reached is None else reached + 1,
        "first_step_s": first[0],
        "wall_s": time.monotonic() - began,
        "wall_to_0.9_s": None if reached is None else first[reached],
        "cpu_s": cpu,
        "server_cpu_s": children.ru_utime + children.ru_stime,
        "calls": calls,
        "cpu_ms_per_call": 1000 * cpu / calls,
        "loop_share": sum(line["loop_cpu_s"] for line in training) / cpu,
        "gap_max": max(line.get("logprob_gap_max", 0.0) for line in training),
        "rss_mb": own.ru_maxrss / 1024,
    }


def main() -> None:
    """Train each seed; print figures and whether the limits hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rows", type=int, default=416)
    parser.add_argument("--concurrent", type=int, default=64)
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside is not None:
        print(json.dumps(train(arguments.inside, arguments.seeds[0], arguments.steps)))
        return
    missed = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make_workspace(root, arguments.rows, arguments.concurrent)
        for seed in arguments.seeds:
            command = [
                sys.executable,
                __file__,
                "--inside",
                folder,
                "--seeds",
                str(seed),
                "--steps",
                str(arguments.steps),
            ]
            output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            found = json.loads(output.splitlines()[-1])
            print(json.dumps({k: round(v, 6) if isinstance(v, float) else v for k, v in found.items()}), flush=True)
            for name, limit in _LIMITS.items():
                at_least = name in ("after", "greedy")
                if (found[name] < limit) if at_least else (found[name] > limit):
                    missed.append(
                        f"seed {seed}: {name} is {found[name]:.3f}, {'at least' if at_least else 'at most'} {limit:g}"
                    )
    print("\n".join(missed) or "every limit holds")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
