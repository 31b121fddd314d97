"""kill -9 of the supervisor, the rollout server or both, at any moment: nothing is lost, nothing runs twice, nothing stays."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import evaluation_workspace as ew
import pytest
from stub_provider import StubProvider

SCRIPT = Path(ew.__file__)
ITEMS = 14


@pytest.fixture(scope="module")
def environ():
    with StubProvider(record=False) as provider:
        yield os.environ | provider.environ() | {"XDG_CACHE_HOME": str(ew.CACHE)}


def server_processes(workspace: Path) -> list[int]:
    """Rollout servers of the workspace (and their watchers) that still run."""
    needle = str(workspace / "rollouts/loop/main.py").encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if needle in (entry / "cmdline").read_bytes():
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                found += [int(entry.name)] if state not in "ZX" else []
        except OSError:
            continue
    return found


def start(workspace: Path, environ: dict[str, str]) -> subprocess.Popen:
    with (workspace / "stderr.txt").open("w") as errors:
        return subprocess.Popen(
            [sys.executable, str(SCRIPT), str(workspace)], env=environ, stdout=subprocess.PIPE, stderr=errors
        )


def events(workspace: Path) -> list[dict]:
    path = workspace / ".osmosis/evals/r/events.jsonl"
    lines = path.read_bytes().split(b"\n") if path.exists() else [b""]
    return [json.loads(line) for line in lines[:-1]]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_every_item_ends_with_one_verdict(tmp_path, environ, seed):
    choose = random.Random(seed)
    prompts = [choose.choice(["say", "sleep 0.1", "sleep 0.3"]) + (f" {i}" if i % 3 else "") for i in range(ITEMS)]
    prompts = [p if not p.startswith("sleep") else " ".join(p.split()[:2]) for p in prompts]
    workspace = ew.make_workspace(
        tmp_path, [{"user_prompt": p, "ground_truth": p} for p in prompts], capacity=choose.choice([1, 3, 8])
    )
    seen: list[dict] = []
    kills = 0
    for _ in range(6):
        victim = choose.choice(["supervisor", "server", "both"]) if kills < 2 else None
        run = start(workspace, environ)
        if victim is not None:
            time.sleep(choose.uniform(0.2, 2.6))
            kills += 1
            if victim != "server":
                run.kill()
            if victim != "supervisor":
                record = workspace / ".osmosis/evals/r/server.json"
                try:
                    os.kill(json.loads(record.read_text())["pid"], signal.SIGKILL)
                except (OSError, ValueError):
                    pass  # it does not run yet, or no longer
        told, _ = run.communicate(timeout=60)
        recorded = events(workspace)
        assert recorded[: len(seen)] == seen, "a durable verdict changed"
        seen = recorded
        if run.returncode == 0:
            break
        if victim != "server" and choose.random() < 0.5:  # else the next start comes while the orphan still runs
            deadline = time.monotonic() + 15
            while server_processes(workspace) and time.monotonic() < deadline:
                time.sleep(0.05)
            assert not server_processes(workspace)
    assert run.returncode == 0, told.decode() + (workspace / "stderr.txt").read_text()[-3000:]
    keys = [(event["row_index"], event["run_index"]) for event in seen]
    assert sorted(keys) == [(row, 0) for row in range(ITEMS)]
    assert {event["status"] for event in seen} == {"success"}
    assert len({event["rollout_id"] for event in seen}) == ITEMS
    run_dir = workspace / ".osmosis/evals/r"
    index = [json.loads(line) for line in (run_dir / "index.jsonl").read_text().splitlines()]
    assert [line["rollout_id"] for line in index] == [
        event["rollout_id"] for event in sorted(seen, key=lambda event: event["row_index"])
    ]
    assert all(line["trajectory_filename"] == "trajectory.json" for line in index)
    assert json.loads((run_dir / "metrics.json").read_text())["eval_run"]["status"] == "finished"
    assert not (run_dir / "server.json").exists()
    deadline = time.monotonic() + 15
    while server_processes(workspace) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not server_processes(workspace)


def test_uv_ends_with_its_supervisor(tmp_path, environ):
    with socket.socket() as silent:  # a package index that never answers
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        workspace = ew.make_workspace(tmp_path)
        project = workspace / "rollouts/loop/pyproject.toml"
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/simple"
        project.write_text(f'{project.read_text()}\n[tool.uv]\nindex-url = "{url}"\n')
        env = {name: value for name, value in environ.items() if name != "UV_OFFLINE"}
        run = start(workspace, env)
        deadline = time.monotonic() + 20
        while not (found := uv_processes(project.parent)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert found
        run.kill()
        run.wait()
        deadline = time.monotonic() + 15
        while uv_processes(project.parent) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not uv_processes(project.parent)


def uv_processes(folder: Path) -> list[int]:
    """uv processes (`uv pip install`) that work in a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if b"pip" in words and (entry / "cwd").readlink() == folder:
                found.append(int(entry.name))
        except OSError:
            continue
    return found
