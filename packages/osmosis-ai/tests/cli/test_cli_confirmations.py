"""Each confirmation on a pseudo-terminal: yes does it; no, Escape and Ctrl-C do nothing and end with status 0."""

from pathlib import Path

import pytest
from osmosis_cli import Terminal, environment, make_workspace
from stub_api import Answer, Asked, StubApi

API = "/api/cli"
RUN = {"id": "r_1", "name": "otter", "status": "running", "created_at": "2026-11-01T10:00:00Z"}
ENDED = {**RUN, "status": "finished"}
SUBMITTED = {**RUN, "status": "pending", "workflow_id": "w", "task_count": 2, "retryable_samples": 2}
CONFIG = '[experiment]\nrollout = "alpha"\nentrypoint = "main.py"\nmodel_path = "m"\ndataset = "d"\nbranch = "main"\n'
BENCHMARK = (
    '[experiment]\nbenchmark = "tb"\n[[agents]]\n[agents.model]\n'
    'type = "provider"\nmodel = "gpt-5"\napi_key_secret = "A_KEY"\n'
)
BIG = {"files": [{"path": "metrics.json", "size": 200 * 1024**2}, {"path": "summary.csv", "size": 200 * 1024**2}]}
ROUTES = {
    f"POST {API}/training-runs/otter/stop": {},
    f"POST {API}/eval-runs/otter/stop": {},
    f"GET {API}/benchmark-runs/otter": {"benchmark_run": RUN},
    f"POST {API}/benchmark-runs/r_1/stop": {"id": "r_1", "name": "otter", "status": "stopping"},
    f"POST {API}/eval-runs/otter/retry": SUBMITTED,
    f"GET {API}/eval-runs/otter": {"eval_run": ENDED},
    f"GET {API}/eval-runs/r_1/samples/manifest": {**BIG, "totals": {}},
    f"GET {API}/benchmark-runs/r_1/outputs/manifest": {**BIG, "totals": {}},
    f"GET {API}/environment-secrets": {
        "environment_secrets": [{"id": "s", "name": "A_KEY", "scope": "user"}], "total_count": 1,
    },
    f"DELETE {API}/environment-secrets": {},
    f"POST {API}/training-runs": SUBMITTED,
    f"POST {API}/eval-runs": SUBMITTED,
    f"POST {API}/benchmark-runs": SUBMITTED,
}  # fmt: skip
COMMANDS = {
    "train stop otter": True,
    "eval stop otter": True,
    "benchmark runs stop otter": True,
    "eval retry otter": True,
    "secret delete A_KEY": True,
    "train submit configs/training/a.toml": True,
    "eval submit configs/eval/a.toml": True,
    "benchmark submit b.toml": True,
    "dataset upload data/m.jsonl": False,
    "dataset upload data/m.jsonl --overwrite": False,
    "eval download otter --type metrics": False,
    "benchmark runs download otter --type summary": False,
}
"""Each with whether it succeeds here once it is allowed; the others fail on objects that the stub does not have."""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    work = make_workspace(tmp_path / "w")
    (work / "rollouts/alpha").mkdir()
    (work / "rollouts/alpha/main.py").write_text("")
    (work / "configs/training/a.toml").write_text(CONFIG)
    (work / "configs/eval/a.toml").write_text(f"{CONFIG}[secrets]\nrequired = []\n")
    (work / "b.toml").write_text(BENCHMARK)
    (work / "data/m.jsonl").write_text('{"user_prompt": "q", "ground_truth": "a"}\n' * 4)
    return work


def changes(stub: StubApi) -> list[Asked]:
    return [asked for asked in stub.asked if asked.method != "GET"]


@pytest.mark.parametrize("keys", ["y\r", "n\r", "\x1b", "\x03"], ids=["yes", "no", "escape", "ctrl-c"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_confirmation(work: Path, tmp_path: Path, command: str, keys: str):
    with StubApi({name: Answer(answer) for name, answer in ROUTES.items()}) as stub:
        env = environment(tmp_path, **stub.environment())
        with Terminal(*command.split(), cwd=work, env=env) as terminal:
            terminal.expect("/n]" if "submit" in command or command.endswith("jsonl") else "/N]")
            assert not changes(stub)
            terminal.send(keys)
            status = terminal.finish()
        if keys == "y\r":
            assert changes(stub)
            assert (status == 0) is COMMANDS[command], terminal.text
        else:
            assert (status, changes(stub)) == (0, [])
            assert "Cancelled." in terminal.text
