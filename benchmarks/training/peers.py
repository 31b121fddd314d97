"""Training and sampling beside TRL 1.16 and transformers, in one run on one machine: the ratios of issue 3.

    .venv/bin/python benchmarks/training/peers.py [--steps 40] [--json FILE]

Same model (osmosis/nano), rows, tool, reward, adapter size, learning rate, group and batch size. TRL runs its turns in
process, so our engine is measured that way too ("in process"); "product" is `osmosis train run` as users have it, with
agents in a rollout server of their own over HTTP, validation passes and checkpoints, which TRL's figure has none of.
"Time to 0.9" ends with the first of three steps whose mean sampled reward is at least 0.9. CPU seconds are of all
processes and leave out imports and loading on both sides. One thread each.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
VENV = ROOT / ".cache/trl-1.16"
NANO = ROOT / "packages/osmosis-trainer/src/osmosis_trainer/nano"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def make_peer_venv() -> Path:
    """TRL in a venv of its own, from the registry, once."""
    python = VENV / "bin/python"
    if not (VENV / ".complete").exists():
        uv = os.environ.get("UV") or (ROOT / ".tools/bin/uv" if (ROOT / ".tools/bin/uv").exists() else "uv")
        subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, VENV], check=True)
        subprocess.run(
            [uv, "pip", "install", "--quiet", "--python", python, "trl==1.16.0", "peft", "torch"], check=True
        )
        (VENV / ".complete").touch()
    return python


def reached(rewards: list[float]) -> int | None:
    """The step that ends the time to 0.9, from 1."""
    return next((i + 1 for i in range(len(rewards) - 2) if statistics.fmean(rewards[i : i + 3]) >= 0.9), None)


def ours(folder: Path, steps: int, environ: dict[str, str]) -> dict[str, float | None]:
    """One training by the product."""
    command = [sys.executable, HERE / "demo.py", "--inside", folder, "--seeds", "0", "--steps", str(steps)]
    done = subprocess.run(command, env=environ, check=True, stdout=subprocess.PIPE, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    step = found["steps_to_0.9"]
    share = step / found["steps"] if step else None
    return {
        "steps_to_0.9": step,
        "cpu_s_to_0.9": (found["cpu_s"] + found["server_cpu_s"]) * share if share else None,
        "wall_s_to_0.9": found["wall_to_0.9_s"],
        "last_reward": found["after"],
    }


async def in_process(folder: Path, steps: int) -> dict[str, float | None]:
    """One training by our engine alone, turns in this process, as TRL runs them."""
    from engine import Rollout, learn
    from osmosis_trainer.engines import open_engine

    rows = [json.loads(line)["user_prompt"] for line in (folder / "data/rows.jsonl").read_text().splitlines()]
    drawn = random.Random(0)
    engine = open_engine("numpy", NANO, base="nano")
    await engine.create_adapter("run")
    version = await engine.publish("run")
    cpu, wall = time.process_time(), time.monotonic()
    rewards: list[float] = []
    while len(rewards) < steps and reached(rewards) is None:
        groups = []
        for g, question in enumerate(drawn.sample(rows, 8)):
            a, b = (int(number) for number in re.findall(r"\d+", question))
            groups.append([Rollout(a, b, f"{len(rewards)}-{g}-{i}", question) for i in range(8)])
        await asyncio.gather(*(r.play(engine, version) for group in groups for r in group))
        rewards.append(statistics.fmean(r.reward for group in groups for r in group))
        if (await learn(engine, "run", groups, 5e-4)).groups:
            await engine.retire(version)
            version = await engine.publish("run")
    found = reached(rewards) is not None
    cpu, wall = time.process_time() - cpu, time.monotonic() - wall
    await engine.aclose()
    return {
        "steps_to_0.9": reached(rewards),
        "cpu_s_to_0.9": cpu if found else None,
        "wall_s_to_0.9": wall if found else None,
        "last_reward": statistics.fmean(rewards[-3:]),
    }


def trl(python: Path, folder: Path, steps: int, environ: dict[str, str]) -> dict[str, float | None]:
    """One training by TRL on the rows that ours trains on."""
    command = [python, HERE / "trl_peer.py", NANO, folder / "data/rows.jsonl", str(steps)]
    done = subprocess.run(
        command, env=environ, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"step"')]
    rewards = [line["reward"] for line in lines]
    step = reached(rewards)
    at = lines[step - 1] if step else None
    return {
        "steps_to_0.9": step,
        "cpu_s_to_0.9": at["cpu_s"] if at else None,
        "wall_s_to_0.9": at["wall_s"] if at else None,
        "last_reward": statistics.fmean(rewards[-3:]),
    }


async def sampling() -> float:
    """Tokens a CPU second of our engine, 64 slots, whole: queue, noise, log-probabilities, hand-over."""
    from osmosis_trainer.engine.sampler import SampleRequest
    from osmosis_trainer.engine.sampling import noise_key
    from osmosis_trainer.engines import open_engine

    engine = open_engine("numpy", NANO, base="nano")

    async def draw(name: str, index: int) -> int:
        prompt = [20 + (index * 31 + position * 7) % 380 for position in range(60)]
        request = SampleRequest(name, "nano", prompt, 64, frozenset(), noise_key=noise_key(name))
        return sum([len(piece.ids) async for piece in engine.sample(request)])

    best = 0.0
    for turn in range(4):
        cpu = time.process_time()
        drawn = sum(await asyncio.gather(*(draw(f"{turn}-{index}", index) for index in range(64))))
        if turn:
            best = max(best, drawn / (time.process_time() - cpu))
    await engine.aclose()
    return best


def main() -> None:
    """Measure, print, optionally write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    os.environ |= ONE_THREAD
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):  # set for old libraries here; they slow a current NumPy
        os.environ.pop(name, None)
    environ = dict(os.environ)
    python = make_peer_venv()
    sys.path.insert(0, str(HERE))
    from demo import make_workspace

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        make_workspace(folder, 416, 64)
        figures = {
            "in process": asyncio.run(in_process(folder, options.steps)),
            "product": ours(folder, options.steps, environ),
            "TRL": trl(python, folder, options.steps, environ),
        }
    done = subprocess.run(
        [python, HERE / "generate_peer.py", NANO], env=environ, check=True, stdout=subprocess.PIPE, text=True
    )
    tokens = {
        "ours": asyncio.run(sampling()),
        "transformers": json.loads(done.stdout.splitlines()[-1])["tokens_per_cpu_s"],
    }
    print(f"{'':24}" + "".join(f"{name:>12}" for name in figures) + f"{'TRL / in process':>18}{'TRL / product':>15}")
    for key in figures["TRL"]:
        row = [figures[name][key] for name in figures]
        print(f"{key:24}" + "".join(f"{v:12.2f}" if v is not None else f"{'never':>12}" for v in row), end="")
        if all(row) and key != "last_reward":
            print(f"{row[2] / row[0]:18.1f}{row[2] / row[1]:15.1f}", end="")
        print()
    ratio = tokens["ours"] / tokens["transformers"]
    print(
        f"sampled tokens a CPU s: ours {tokens['ours']:.0f}, transformers {tokens['transformers']:.0f}, {ratio:.1f} times"
    )
    machine = f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}"
    print(f"{options.steps} steps of 8 rows x 8 rollouts; {machine}")
    if options.json:
        options.json.write_text(
            json.dumps({"machine": machine, "training": figures, "sampling": tokens}, indent=2) + "\n"
        )


if __name__ == "__main__":
    main()
