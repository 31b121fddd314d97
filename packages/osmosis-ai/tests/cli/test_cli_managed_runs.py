import json
from pathlib import Path

import pytest
from osmosis_cli import Terminal, environment, make_workspace, osmosis
from stub_api import Answer, Asked, StubApi

API = "/api/cli"
RUN = {"id": "tr_1", "name": "otter", "status": "running", "created_at": "2026-11-01T10:00:00Z"}
METRICS = {
    "status": "running",
    "overview": {"duration_ms": 1000},
    "metrics": [
        {
            "metric_key": "rollout/raw_reward",
            "title": "Training Reward",
            "data_points": [{"step": step, "value": step / 10, "timestamp": 1790000000000} for step in (2, 1, 3)],
        }
    ],
}
EVAL = {"id": "ev_1", "name": "lynx", "status": "finished", "created_at": "2026-11-01T10:00:00Z"}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return make_workspace(tmp_path / "w")


@pytest.fixture
def stub():
    with StubApi() as stub:
        yield stub


def env(stub: StubApi, home: Path) -> dict[str, str]:
    return environment(home, **stub.environment(), TZ="UTC")


def training(*states: dict) -> list[Answer]:
    return [Answer({"training_run": {**RUN, **state}}) for state in states]


def test_a_training_is_watched_until_it_has_ended(work: Path, stub: StubApi, tmp_path: Path):
    stub.routes = {
        f"GET {API}/training-runs/otter": [
            *training({"current_step": 1, "total_steps": 3}),
            Answer({"error": "a moment"}, 503),
            *training({"status": "finished", "current_step": 3, "total_steps": 3, "reward": 0.5}),
        ],
        f"GET {API}/training-runs/tr_1/metrics": METRICS,
        f"GET {API}/training-runs/otter/checkpoints": {"checkpoints": []},
    }
    done = osmosis("--plain", "train", "info", "otter", "--watch", cwd=work, env=env(stub, tmp_path))
    assert done.status == 0
    told = [line for line in done.stderr.splitlines() if line.startswith("otter:")]
    assert told == [
        "otter: running, 1 / 3 steps (33%)",
        "otter: finished, 3 / 3 steps (100%), reward 0.5",
    ]
    assert "Status: Finished" in done.stdout


def test_an_evaluation_is_watched_in_place_on_a_terminal(work: Path, stub: StubApi, tmp_path: Path):
    results = {"total_runs": 2, "sampled_rows": 4, "score": 0.5}
    stub.routes = {
        f"GET {API}/eval-runs/lynx": [
            Answer({"eval_run": {**EVAL, "status": "running"}, "results": results}),
            Answer({"eval_run": EVAL, "results": {**results, "total_runs": 4}}),
        ],
        f"GET {API}/eval-runs/ev_1/metrics": {"status": "finished", "overview": {}},
    }
    with Terminal("eval", "info", "lynx", "--watch", cwd=work, env=env(stub, tmp_path)) as terminal:
        terminal.expect("2 / 4 samples (50%)")
        assert terminal.finish() == 0
        assert "4 / 4 samples (100%)" in terminal.text


def test_metrics_are_drawn_on_a_wide_terminal_and_points_are_in_order(work: Path, stub: StubApi, tmp_path: Path):
    stub.routes = {
        f"GET {API}/training-runs/otter": {"training_run": RUN},
        f"GET {API}/training-runs/tr_1/metrics": METRICS,
        f"GET {API}/training-runs/otter/checkpoints": {"checkpoints": []},
    }
    with Terminal("train", "info", "otter", cwd=work, columns=120, env=env(stub, tmp_path)) as terminal:
        assert terminal.finish() == 0
        assert "Training Reward" in terminal.text
        assert "0.1 → 0.3" in terminal.text
    saved = json.loads((work / ".osmosis/metrics/otter_tr_1.json").read_text())
    assert [point["step"] for point in saved["metrics"][0]["data"]] == [1, 2, 3]
    assert saved["metrics"][0]["key"] == "training_reward"


def test_an_uploaded_local_run_has_its_badge_and_a_dirty_one_a_warning(work: Path, stub: StubApi, tmp_path: Path):
    local = {**EVAL, "origin": "local", "provenance": {"git_dirty": True}}
    stub.routes = {
        f"GET {API}/eval-runs": {"eval_runs": [local, {**EVAL, "name": "managed"}], "total_count": 2},
        f"GET {API}/eval-runs/lynx": {"eval_run": local},
    }
    listed = osmosis("--plain", "eval", "list", cwd=work, env=env(stub, tmp_path)).stdout.splitlines()
    assert listed[0].startswith("lynx (Local, uncommitted changes)\t")
    assert listed[1].startswith("managed\t")
    shown = osmosis("--plain", "eval", "info", "lynx", cwd=work, env=env(stub, tmp_path)).stdout
    assert "Origin: Local" in shown
    assert "uncommitted changes" in shown


def test_a_download_is_resumed_and_says_what_failed(work: Path, stub: StubApi, tmp_path: Path):
    files = [
        {"path": "metrics.json", "size": 2}, {"path": "summary.jsonl", "size": 3}, {"path": "../evil", "size": 1},
    ]  # fmt: skip

    def urls(asked: Asked) -> dict:
        return {"items": [{**item, "url": f"{stub.url}/{item['path']}"} for item in asked.json["items"]]}

    stub.routes = {
        f"GET {API}/eval-runs/lynx": {"eval_run": EVAL},
        f"GET {API}/eval-runs/ev_1/samples/manifest": {"files": files, "totals": {}},
        f"POST {API}/eval-runs/ev_1/samples/download-urls": urls,
        "GET /metrics.json": Answer(data=b"{}"),
        "GET /summary.jsonl": [Answer(data=b"1"), Answer(data=b"1"), Answer(data=b"1"), Answer(data=b"123")],
    }
    download = ("--json", "eval", "download", "lynx")
    first = osmosis(*download, cwd=work, env=env(stub, tmp_path))
    assert (first.status, first.json["status"]) == (1, "partial")
    failed = first.json["resource"]["files_failed"]
    assert [failure["path"] for failure in failed] == ["../evil", "summary.jsonl"]
    second = osmosis(*download, cwd=work, env=env(stub, tmp_path)).json["resource"]
    assert (second["files_downloaded"], second["files_skipped"]) == (1, 1)
    assert (work / ".osmosis/evals/lynx/summary.jsonl").read_bytes() == b"123"
    assert not (work / ".osmosis/evals/evil").exists()


@pytest.mark.parametrize(
    "command",
    [("train", "list"), ("eval", "list"), ("benchmark", "list"), ("benchmark", "runs", "list")],
)
def test_an_empty_list_says_the_next_command(work: Path, stub: StubApi, tmp_path: Path, command):
    for path in ("training-runs", "eval-runs", "benchmarks", "benchmark-runs"):
        stub.routes[f"GET {API}/{path}"] = {"total_count": 0}
    done = osmosis(*command, cwd=work, env=env(stub, tmp_path))
    assert done.status == 0
    assert "There are no" in done.stdout
    assert osmosis("--plain", *command, cwd=work, env=env(stub, tmp_path)).stdout == ""


def test_stopping_asks_first_with_no_as_the_default(work: Path, stub: StubApi, tmp_path: Path):
    stub.routes = {f"POST {API}/training-runs/otter/stop": {}}
    with Terminal("train", "stop", "otter", cwd=work, env=env(stub, tmp_path)) as terminal:
        terminal.expect("[y/N]")
        terminal.send("\r")
        assert terminal.finish() == 0
        assert "Cancelled." in terminal.text
    assert stub.calls == []
    done = osmosis("--json", "train", "stop", "otter", "-y", cwd=work, env=env(stub, tmp_path))
    assert done.json["operation"] == "train.stop"


def test_a_malformed_record_names_its_field(work: Path, stub: StubApi, tmp_path: Path):
    stub.routes = {f"GET {API}/eval-runs": {"eval_runs": [{"name": "x"}]}}
    error = osmosis("--json", "eval", "list", cwd=work, env=env(stub, tmp_path)).error
    assert (error["code"], error["details"]["field"]) == ("PLATFORM_ERROR", "eval_runs[0].id")
