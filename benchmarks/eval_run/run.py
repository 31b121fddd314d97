"""What `osmosis eval run` costs, ours beside the published package 0.3.8, in turn on the same workspace and stub model.

    .venv/bin/python benchmarks/eval_run/run.py [--small 20] [--large 220] [--repeat 3] [--ours-only] [--json FILE]

CPU seconds are those of the whole process tree (CLI, gateway, rollout server; not the stub model), so other load on
the machine moves them little. Slope = CPU a rollout; fixed = the rest. Ratios are ours / published, smaller is better.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OURS = ROOT / ".venv/bin/osmosis"
PUBLISHED = ROOT / ".cache/published-0.3.8/bin/osmosis"

MAIN = """\
import os
import httpx
import uvicorn
from osmosis_ai.rollout import AgentWorkflow, Grader, LocalBackend, get_rollout_context
from osmosis_ai.rollout.server import create_rollout_server


class Trivial(AgentWorkflow):
    async def run(self, ctx):
        rollout = get_rollout_context()
        reply = await client.post(
            rollout.chat_completions_url + "/chat/completions",
            headers={"Authorization": f"Bearer {rollout.api_key}"},
            json={"model": "policy", "messages": ctx.prompt},
        )
        reply.raise_for_status()
        return [*ctx.prompt, reply.json()["choices"][0]["message"]]


class Exact(Grader):
    async def grade(self, ctx):
        ctx.set_reward(1.0)


client = httpx.AsyncClient(timeout=60, trust_env=False)
app = create_rollout_server(backend=LocalBackend(workflow=Trivial, grader=Exact))
if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ["_OSMOSIS_ROLLOUT_PORT"]), log_level="warning")
"""
PYPROJECT = '[project]\nname = "trivial"\nversion = "0"\nrequires-python = ">=3.12"\ndependencies = ["osmosis-ai[server]>=0.3.4,<0.4", "httpx"]\n'
CONFIG = '[experiment]\nrollout = "trivial"\nentrypoint = "main.py"\nmodel_path = "openai/stub"\ndataset = "rows"\n[evaluation]\nbatch_size = 4\n[secrets]\nrequired = []\n'


@dataclass
class Cost:
    """One run of one program over `rows` rows."""

    rows: int
    cpu_s: float
    wall_s: float
    peak_mb: float


def make_workspace(folder: Path, rows: int) -> None:
    """A Git work tree with the trivial rollout and a dataset of `rows` rows."""
    for name in ("rollouts/trivial", "configs/training", "configs/eval", "data"):
        (folder / name).mkdir(parents=True)
    (folder / "rollouts/trivial/main.py").write_text(MAIN)
    (folder / "rollouts/trivial/pyproject.toml").write_text(PYPROJECT)
    (folder / "configs/eval/trivial.toml").write_text(CONFIG)
    with (folder / "data/rows.jsonl").open("w") as out:
        for row in range(rows):
            out.write(json.dumps({"user_prompt": f"Say hello to guest {row}.", "ground_truth": "hello"}) + "\n")
    subprocess.run(["git", "init", "-q", folder], check=True)


def run(binary: Path, folder: Path, rows: int, name: str, environ: dict[str, str]) -> Cost:
    """One evaluation of the first `rows` rows; raises with the program's own words when it fails."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    command = [binary, "eval", "run", "configs/eval/trivial.toml", "--dataset-file", "data/rows.jsonl"]
    command += ["--rows", f"0-{rows - 1}", "--name", name, "--yes", "--json"]
    done = subprocess.run([str(part) for part in command], cwd=folder, env=environ, capture_output=True, text=True)
    wall, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        sys.exit(f"{binary} failed ({done.returncode}):\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    succeeded = json.loads(done.stdout)["resource"]["succeeded"]
    assert succeeded == rows, f"{binary}: {succeeded} of {rows} rows succeeded"
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(rows, cpu, wall, after.ru_maxrss / 1024)


def main() -> None:
    """Measure both, print a table, optionally write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", type=int, default=20)
    parser.add_argument("--large", type=int, default=220)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--ours-only", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    programs = {"ours": OURS} if options.ours_only else {"ours": OURS, "published": PUBLISHED}
    for binary in programs.values():
        if not binary.exists():
            sys.exit(
                f"{binary} is missing: run scripts/test --quick (ours) and scripts/published-venv (published) once"
            )

    scratch = Path(tempfile.mkdtemp(prefix="osmosis-bench-"))
    stub = subprocess.Popen(
        [sys.executable, ROOT / "tests/support/stub_provider.py", "--port", "0"], stdout=subprocess.PIPE, text=True
    )
    base_url = stub.stdout.readline().split()[-1]
    environ = {k: v for k, v in os.environ.items() if k not in ("PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV")}
    environ |= {
        "OPENAI_BASE_URL": base_url,
        "OPENAI_API_BASE": base_url,
        "OPENAI_API_KEY": "sk-stub-key-for-benchmarks",
    }
    environ |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "UV_PYTHON": sys.executable, "UV_COMPILE_BYTECODE": "1"}
    environ["PATH"] = f"{ROOT / '.tools/bin'}:{environ['PATH']}"
    costs: dict[str, list[tuple[Cost, Cost]]] = {name: [] for name in programs}
    try:
        for name in programs:
            make_workspace(scratch / name, options.large)
            run(programs[name], scratch / name, 2, "warm-up", environ)
        for turn in range(options.repeat):
            for name, binary in programs.items():
                pair = [run(binary, scratch / name, n, f"r{turn}-{n}", environ) for n in (options.small, options.large)]
                costs[name].append((pair[0], pair[1]))
                print(
                    f"  turn {turn + 1} {name}: " + ", ".join(f"{c.rows} rows {c.cpu_s:.2f} CPU s" for c in pair),
                    file=sys.stderr,
                )
    finally:
        stub.terminate()
        shutil.rmtree(scratch, ignore_errors=True)

    figures = {}
    for name, pairs in costs.items():
        slopes = [(large.cpu_s - small.cpu_s) / (large.rows - small.rows) * 1000 for small, large in pairs]
        fixed = [small.cpu_s - slope / 1000 * small.rows for slope, (small, _) in zip(slopes, pairs, strict=True)]
        figures[name] = {
            "cpu_ms_a_rollout": statistics.median(slopes),
            "fixed_cpu_s": statistics.median(fixed),
            "wall_s_large": statistics.median(large.wall_s for _, large in pairs),
            "peak_process_mb": max(large.peak_mb for _, large in pairs),
        }
    machine = f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}"
    print(f"{'':24}" + "".join(f"{name:>12}" for name in figures) + (f"{'ratio':>10}" if len(figures) == 2 else ""))
    for key in next(iter(figures.values())):
        row = [figures[name][key] for name in figures]
        ratio = f"{row[0] / row[1]:10.2f}" if len(row) == 2 and row[1] else ""
        print(f"{key:24}" + "".join(f"{value:12.2f}" for value in row) + ratio)
    print(f"{options.small} and {options.large} rows, median of {options.repeat}; {machine}")
    if options.json:
        runs = {name: [[asdict(cost) for cost in pair] for pair in pairs] for name, pairs in costs.items()}
        options.json.write_text(json.dumps({"machine": machine, "figures": figures, "runs": runs}, indent=2) + "\n")


if __name__ == "__main__":
    main()
