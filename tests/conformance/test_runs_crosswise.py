"""Runs made by one package serve the other: rollouts, run folders, resuming, uploads."""

import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from osmosis_ai.consts import PACKAGE_VERSION
from published import CONFORMANCE, ROOT, VENV, child_environment, needs_published
from stub_platform import StubPlatform
from stub_provider import Behaviour, StubProvider

pytestmark = needs_published

ROWS = ("ok", "fail boom", "ask hello", "skip")
ASKED = [{"role": "user", "content": "hello"}]
CONFIG = """\
[experiment]
rollout = "plain"
entrypoint = "main.py"
model_path = "openai/text:done"
dataset = "rows"

[evaluation]
batch_size = 4

[secrets]
required = []
"""
OURS = Path(sys.executable).with_name("osmosis")
THEIRS = VENV / "bin/osmosis"


@pytest.fixture(scope="module")
def stub():
    with StubProvider() as provider:
        yield provider


def make_workspace(root: Path, environment: str) -> Path:
    for folder in ("rollouts/plain", "configs/eval", "configs/training", "data"):
        (root / folder).mkdir(parents=True)
    shutil.copy(CONFORMANCE / "rollouts/plain/main.py", root / "rollouts/plain/main.py")
    project = (CONFORMANCE / f"environments/{environment}.toml").read_text().replace("@ROOT@", str(ROOT))
    (root / "rollouts/plain/pyproject.toml").write_text(project)
    (root / "configs/eval/plain.toml").write_text(CONFIG)
    rows = [json.dumps({"user_prompt": text, "ground_truth": "done"}) + "\n" for text in ROWS]
    (root / "data/rows.jsonl").write_text("".join(rows))
    (root / ".gitignore").write_text(".osmosis/\n.venv/\nuv.lock\n")
    for command in (
        ["init", "--quiet", "--initial-branch", "main"],
        ["remote", "add", "origin", "https://github.com/Lab/Adder.git"],
        ["add", "--all"],
        ["-c", "user.name=a", "-c", "user.email=a@example.test", "commit", "--quiet", "--message", "start"],
    ):
        subprocess.run(["git", *command], cwd=root, check=True)
    return root


def osmosis(command: Path, workspace: Path, *arguments: str, **environ: str) -> dict:
    """Run `osmosis --json ...` of one package in the workspace; its result."""
    environment = child_environment(
        workspace.parent / "home",
        PATH=f"{VENV / 'bin'}:{os.environ['PATH']}",  # the published client looks for uv there
        UV_CACHE_DIR=uv_cache_dir(),  # the warm one, not one under the test's home
        UV_PYTHON=getattr(sys, "_base_executable", sys.executable),
        XDG_CACHE_HOME=str(ROOT / ".cache/tests"),
        **environ,
    )
    done = subprocess.run(
        [command, "--json", *arguments],
        cwd=workspace, env=environment, capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip
    assert done.stdout.count("\n") == 1, (done.stdout, done.stderr)
    return json.loads(done.stdout)


@cache
def uv_cache_dir() -> str:
    return subprocess.run([VENV / "bin/uv", "cache", "dir"], capture_output=True, text=True, check=True).stdout.strip()


def evaluate(command: Path, workspace: Path, stub, name: str, *options: str) -> dict:
    arguments = ("eval", "run", "configs/eval/plain.toml", "--dataset-file", "data/rows.jsonl", "--name", name, "--yes")
    return osmosis(command, workspace, *arguments, *options, **stub.environ())


def upload(command: Path, workspace: Path, name: str) -> tuple[dict, StubPlatform]:
    with StubPlatform() as platform:
        answer = osmosis(
            command, workspace, "eval", "upload", name,
            OSMOSIS_PLATFORM_URL=platform.url, OSMOSIS_TOKEN=platform.token, OSMOSIS_TOKEN_PLATFORM_URL=platform.url,
        )  # fmt: skip
    return answer, platform


@pytest.fixture(scope="module")
def our_run(stub, tmp_path_factory):
    """A workspace in which our `eval run` drove a rollout that pins the published SDK: (workspace, answer)."""
    workspace = make_workspace(tmp_path_factory.mktemp("ours") / "workspace", "published")
    return workspace, evaluate(OURS, workspace, stub, "run-a")


@pytest.fixture(scope="module")
def their_run(stub, tmp_path_factory):
    """A workspace in which the published `eval run` drove a rollout that has our SDK: (workspace, answer)."""
    workspace = make_workspace(tmp_path_factory.mktemp("theirs") / "workspace", "ours")
    return workspace, evaluate(THEIRS, workspace, stub, "run-a")


@pytest.fixture(params=["our_run", "their_run"])
def any_run(request):
    return request.getfixturevalue(request.param)


def folder(workspace: Path) -> Path:
    return workspace / ".osmosis/evals/run-a"


def contents(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def served_versions(workspace: Path) -> set[str]:
    found = folder(workspace).glob("rollout_trials/*/trajectory.json")
    return {json.loads(path.read_text())["agent"]["version"] for path in found}


def check_results(answer: dict) -> None:
    assert answer["status"] == "success"
    resource = answer["resource"]
    assert (resource["total_work_items"], resource["succeeded"], resource["failed"], resource["skipped"]) == (
        4,
        2,
        1,
        1,
    )
    metrics = resource["metrics"]
    assert (metrics["graded"], metrics["passed"], metrics["failed"], metrics["skipped"]) == (2, 2, 1, 1)
    assert metrics["pass_rate"] == pytest.approx(2 / 3)
    assert metrics["reward_stats"]["mean"] == 1.0
    assert metrics["tokens_used"] > 0
    failed = [row for row in resource["failed_rows"] if row["error_type"] is not None]
    assert [(row["row_index"], row["error_type"]) for row in failed] == [(1, "agent_error")]


def test_our_runner_drives_the_published_rollout_server(our_run):
    workspace, answer = our_run
    check_results(answer)
    assert served_versions(workspace) == {"0.3.8"}


def test_the_published_runner_drives_our_rollout_server(their_run):
    workspace, answer = their_run
    check_results(answer)
    assert served_versions(workspace) == {PACKAGE_VERSION}


def test_a_rollout_that_names_a_range_gets_the_sdk_that_started_the_run(stub, tmp_path):
    workspace = make_workspace(tmp_path / "workspace", "open")
    check_results(evaluate(OURS, workspace, stub, "run-a"))
    assert served_versions(workspace) == {PACKAGE_VERSION}
    assert not (workspace / "rollouts/plain/uv.lock").exists()
    assert not (workspace / "rollouts/plain/.venv").exists()


@pytest.mark.parametrize("command", [OURS, THEIRS], ids=["ours", "theirs"])
def test_each_upload_accepts_a_run_of_either(any_run, command):
    workspace, _ = any_run
    answer, platform = upload(command, workspace, "run-a")
    assert answer["status"] == "success", answer
    assert platform.finalized
    (declared,) = platform.declarations
    assert declared["run"]["name"] == "run-a"
    assert declared["run"]["experiment_config"]["dataset"]["selected_source_rows"] == "0-3"
    assert declared["run"]["evaluation_config"] == {"n": 1, "pass_threshold": 1.0}
    kinds = sorted(re.sub(r"[0-9a-f]{32}", "ID", path) for path in platform.objects)
    artifact, trajectory = "rollout_trials/ID/artifacts/note.txt", "rollout_trials/ID/trajectory.json"
    assert kinds == sorted(["index.jsonl", "logs.txt", "progress.json", *[artifact] * 3, *[trajectory] * 3])


def test_both_uploads_declare_the_same(any_run):
    workspace, _ = any_run
    declared = [upload(command, workspace, "run-a")[1].declarations[0] for command in (OURS, THEIRS)]
    assert declared[0] == declared[1]


def test_the_published_upload_accepts_attempts_selected_rows_and_faults_of_the_provider(tmp_path):
    """What only ours writes (attempts.jsonl, call records, causes) does not disturb it."""
    workspace = make_workspace(tmp_path / "workspace", "open")
    config = workspace / "configs/eval/plain.toml"
    config.write_text(config.read_text().replace("batch_size = 4", "batch_size = 4\nn = 2"))
    with StubProvider() as broken:
        broken.answer_with(lambda body: Behaviour("status", status=503) if body["messages"] == ASKED else None)
        answer = evaluate(OURS, workspace, broken, "run-a", "--rows", "0,2-3")
    resource = answer["resource"]
    assert (resource["total_work_items"], resource["failed"], resource["skipped"]) == (6, 2, 2)
    assert {cause["fault"] for cause in resource["causes"]} == {"infrastructure"}
    assert (folder(workspace) / "attempts.jsonl").exists()
    answer, platform = upload(THEIRS, workspace, "run-a")
    assert answer["status"] == "success", answer
    assert platform.finalized
    (declared,) = platform.declarations
    assert declared["run"]["experiment_config"]["dataset"]["selected_source_rows"] == "0,2-3"
    assert declared["run"]["evaluation_config"] == {"n": 2, "pass_threshold": 1.0}


def test_each_resumes_a_finished_run_of_the_other_without_touching_it(any_run, stub):
    workspace, made = any_run
    before = contents(folder(workspace))
    for command in (OURS, THEIRS):
        answer = evaluate(command, workspace, stub, "run-a")
        assert answer["status"] == "success", answer
        assert (answer["resource"]["dispatched"], answer["resource"]["resumed"]) == (0, 4)
        assert answer["resource"]["local_run_id"] == made["resource"]["local_run_id"]
        if command == OURS:  # ours comes first: a no-op changes nothing; 0.3.8 rewrites its snapshots
            changed = {path for path, data in contents(folder(workspace)).items() if before.get(path) != data}
            assert changed <= {"logs.txt"}
    assert contents(folder(workspace))["events.jsonl"] == before["events.jsonl"]


def test_ours_compares_and_shows_a_run_of_theirs(our_run, their_run, tmp_path):
    workspace = tmp_path / "workspace"
    shutil.copytree(their_run[0], workspace)
    shutil.copytree(folder(our_run[0]), workspace / ".osmosis/evals/run-b")
    compared = osmosis(OURS, workspace, "eval", "compare", "run-a", "run-b")
    assert compared["data"]["rows"] == 3
    assert compared["data"]["flips"] == []
    assert (
        compared["data"]["a"]["counts"] == compared["data"]["b"]["counts"] == {"graded": 2, "skipped": 1, "failed": 1}
    )
    items = osmosis(OURS, workspace, "eval", "view", "run-a")["items"]
    assert sorted((item["row_index"], item["status"]) for item in items) == [
        (0, "success"), (1, "failed"), (2, "success"), (3, "skipped"),
    ]  # fmt: skip
    shown = osmosis(OURS, workspace, "eval", "view", "run-a", "--row", "2")["data"]
    assert [step["message"] for step in shown["trajectory"]["steps"]] == ["ask hello", "done"]


@pytest.mark.parametrize(("made", "command"), [("our_run", THEIRS), ("their_run", OURS)])
def test_failed_rows_are_rerun_by_the_other(made, command, stub, tmp_path, request):
    workspace = tmp_path / "workspace"
    shutil.copytree(request.getfixturevalue(made)[0], workspace, symlinks=True)
    answer = evaluate(command, workspace, stub, "run-a", "--retry-failed")
    assert answer["resource"]["dispatched"] == 2  # the failed one and the skipped one
    check_results(answer)
    lines = [json.loads(line) for line in (folder(workspace) / "events.jsonl").read_text().splitlines()]
    assert [line["row_index"] for line in lines[-2:]] in ([1, 3], [3, 1])
    assert upload(THEIRS, workspace, "run-a")[1].finalized
