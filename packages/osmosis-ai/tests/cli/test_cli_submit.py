import json
import subprocess
from pathlib import Path

import pytest
from osmosis_cli import Terminal, environment, make_workspace, osmosis
from stub_api import Answer, StubApi

API = "/api/cli"
CONFIG = """\
[experiment]
rollout = "alpha"
entrypoint = "main.py"
model_path = "openai/gpt-5-mini"
dataset = "d1"
branch = "main"
"""
SUBMITTED = {"id": "r_1", "name": "calm-fox", "status": "pending", "created_at": "2026-11-02T00:00:00Z"}
SUBMIT = ("train", "submit", "configs/training/a.toml")


def stored(*pairs: tuple[str, str]) -> dict:
    items = [{"id": name, "name": name, "scope": scope} for name, scope in pairs]
    return {"environment_secrets": items, "total_count": len(items), "has_more": False, "next_offset": None}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    work = make_workspace(tmp_path / "w")
    (work / "rollouts/alpha").mkdir()
    (work / "rollouts/alpha/main.py").write_text("x = 1\n")
    (work / "configs/training/a.toml").write_text(CONFIG)
    (work / "configs/eval/a.toml").write_text(f"{CONFIG}[evaluation]\nlimit = 3\n[secrets]\nrequired = []\n")
    return work


@pytest.fixture
def stub():
    routes = {
        f"POST {API}/training-runs": SUBMITTED,
        f"POST {API}/eval-runs": SUBMITTED,
        f"POST {API}/benchmark-runs": {**SUBMITTED, "workflow_id": "w", "task_count": 2},
        f"GET {API}/environment-secrets": stored(),
    }
    with StubApi(routes) as stub:
        yield stub


def env(stub: StubApi, home: Path, **extra: str) -> dict[str, str]:
    return environment(home, **stub.environment(), **extra)


def need(work: Path, *names: str) -> None:
    (work / "configs/training/a.toml").write_text(f"{CONFIG}[secrets]\nrequired = {list(names)}\n")


def warnings(done) -> list[str]:
    return [line["warning"]["code"] for line in done.objects if "warning" in line]


def test_what_is_not_pushed_is_a_warning_in_every_format(work: Path, stub: StubApi, tmp_path: Path):
    commit = ["git", "-c", "user.name=a", "-c", "user.email=a@x", "commit", "-q", "--allow-empty", "-m", "a"]
    subprocess.run(commit, cwd=work, check=True)
    (work / "configs/training/a.toml").write_text(CONFIG.replace('branch = "main"\n', ""))
    done = osmosis("--json", *SUBMIT, "--yes", cwd=work, env=env(stub, tmp_path))
    assert done.json["status"] == "success"
    assert warnings(done) == ["UNCOMMITTED_CHANGES", "NO_UPSTREAM", "SOURCE_NOT_PINNED"]
    done = osmosis("--plain", *SUBMIT, "--yes", cwd=work, env=env(stub, tmp_path))
    assert "warning: There are uncommitted changes" in done.stderr
    refused = osmosis("--json", *SUBMIT, cwd=work, env=env(stub, tmp_path)).error
    assert refused["code"] == "INTERACTIVE_REQUIRED"
    assert len(refused["details"]["warnings"]) == 3


def test_a_dry_run_shows_the_request_without_values_and_sends_nothing(work: Path, stub: StubApi, tmp_path: Path):
    need(work, "A_KEY", "B_KEY")
    stub.routes[f"GET {API}/environment-secrets"] = stored(("B_KEY", "workspace"))
    done = osmosis("--json", *SUBMIT, "--dry-run", cwd=work, env=env(stub, tmp_path, A_KEY="hush"))
    assert (done.json["status"], done.json["operation"]) == ("noop", "train.submit")
    request = done.json["resource"]["request"]
    assert (request["method"], request["path"]) == ("POST", "/api/cli/training-runs")
    assert request["body"]["secrets"] == {"required": ["A_KEY", "B_KEY"], "provided": {"A_KEY": "[given here]"}}
    assert "hush" not in done.stdout + done.stderr
    for command in (("eval", "submit", "configs/eval/a.toml"), SUBMIT):
        done = osmosis("--plain", *command, "--dry-run", cwd=work, env=env(stub, tmp_path, A_KEY="hush"))
        assert done.status == 0
        assert "experiment_config" in done.stdout
    assert not [call for call in stub.calls if call.startswith("POST")]


def test_values_given_here_are_sent_although_the_look_up_fails(work: Path, stub: StubApi, tmp_path: Path):
    need(work, "A_KEY", "B_KEY")
    (tmp_path / "s.env").write_text("A_KEY='from file'\n")
    stub.routes[f"GET {API}/environment-secrets"] = Answer({"error": "down"}, 500)
    arguments = (*SUBMIT, "--yes", "--secrets-file", str(tmp_path / "s.env"))
    done = osmosis("--json", *arguments, cwd=work, env=env(stub, tmp_path, A_KEY="other", B_KEY="from env"))
    assert done.json["status"] == "success"
    assert warnings(done) == ["SECRET_LOOKUP_FAILED"]
    sent = stub.asked[-1].json["secrets"]
    assert sent == {"required": ["A_KEY", "B_KEY"], "provided": {"A_KEY": "from file", "B_KEY": "from env"}}


def test_names_without_a_value_are_told_all_at_once(work: Path, stub: StubApi, tmp_path: Path):
    need(work, "A_KEY", "B_KEY", "C_KEY")
    stub.routes[f"GET {API}/environment-secrets"] = stored(("B_KEY", "user"))
    error = osmosis("--json", *SUBMIT, "--yes", cwd=work, env=env(stub, tmp_path)).error
    assert error["code"] == "INTERACTIVE_REQUIRED"
    assert error["details"] == {"missing": ["A_KEY", "C_KEY"], "flags": ["--secrets-file"]}


def test_a_value_that_is_no_text_is_refused_by_name_and_never_altered(work: Path, stub: StubApi, tmp_path: Path):
    need(work, "A_KEY")
    done = osmosis("--json", *SUBMIT, "--yes", cwd=work, env=env(stub, tmp_path, A_KEY="sk-\udcff"))
    assert done.error["code"] == "VALIDATION" and "A_KEY" in done.error["message"]
    assert all(asked.method == "GET" for asked in stub.asked), "nothing was submitted"


def test_a_value_that_the_platform_repeats_is_cut_out(work: Path, stub: StubApi, tmp_path: Path):
    need(work, "A_KEY")
    stub.routes[f"POST {API}/training-runs"] = Answer({"error": "bad hush", "hush": {"value": "x"}}, 400)
    done = osmosis("--json", *SUBMIT, "--yes", cwd=work, env=env(stub, tmp_path, A_KEY="hush"))
    assert done.error["code"] == "VALIDATION"
    assert "hush" not in done.stderr


def test_a_date_in_advanced_is_refused_by_name(work: Path, stub: StubApi, tmp_path: Path):
    (work / "configs/training/a.toml").write_text(f"{CONFIG}[advanced]\nday = 2026-01-01\n")
    error = osmosis("--json", *SUBMIT, "--yes", cwd=work, env=env(stub, tmp_path)).error
    assert error["code"] == "VALIDATION"
    assert "date" in error["message"]


def test_a_record_without_its_fields_is_a_platform_error(work: Path, stub: StubApi, tmp_path: Path):
    stub.routes[f"POST {API}/training-runs"] = {"id": "x"}
    error = osmosis("--json", *SUBMIT, "--yes", cwd=work, env=env(stub, tmp_path)).error
    assert (error["code"], error["details"]["field"]) == ("PLATFORM_ERROR", "answer.name")


def test_a_path_may_start_here_too(work: Path, stub: StubApi, tmp_path: Path):
    done = osmosis(
        "--json", "train", "submit", "a.toml", "--yes", cwd=work / "configs/training", env=env(stub, tmp_path)
    )
    assert done.json["status"] == "success"


@pytest.mark.parametrize(("keys", "status", "sent"), [("\r", 0, True), ("n\r", 0, False), ("\x1b", 0, False)])
def test_the_question_is_asked_and_answered(work: Path, stub: StubApi, tmp_path: Path, keys, status, sent):
    with Terminal(*SUBMIT, cwd=work, env=env(stub, tmp_path)) as terminal:
        terminal.expect("Submit this training run? [Y/n]")
        assert "acme/demo-repo" in terminal.text
        terminal.send(keys)
        assert terminal.finish() == status
        assert ("submitted: calm-fox" in terminal.text) is sent
        assert ("Cancelled." in terminal.text) is not sent
    assert (f"POST {API}/training-runs" in stub.calls) is sent


def test_a_value_nobody_has_is_asked_for_hidden(work: Path, stub: StubApi, tmp_path: Path):
    need(work, "A_KEY")
    with Terminal(*SUBMIT, cwd=work, env=env(stub, tmp_path)) as terminal:
        terminal.expect("A_KEY (hidden")
        terminal.send("hush\r")
        terminal.expect("Submit this training run?")
        terminal.send("y\r")
        assert terminal.finish() == 0
        assert "hush" not in terminal.text
    assert stub.asked[-1].json["secrets"]["provided"] == {"A_KEY": "hush"}


BENCHMARK = """\
[experiment]
benchmark = "tb"
[secrets]
required = ["RUN"]
[[agents]]
[agents.model]
type = "provider"
model = "openai/gpt-5"
api_key_secret = "K"
"""


def test_keys_of_a_benchmark_must_be_stored(work: Path, stub: StubApi, tmp_path: Path):
    (work / "b.toml").write_text(BENCHMARK)
    submit = ("--json", "benchmark", "submit", "b.toml", "--yes")
    error = osmosis(*submit, cwd=work, env=env(stub, tmp_path, K="here", RUN="r")).error
    assert error["code"] == "VALIDATION"
    assert "osmosis secret set K" in error["message"]
    stub.routes[f"GET {API}/environment-secrets"] = stored(("K", "user"))
    done = osmosis(*submit, cwd=work, env=env(stub, tmp_path, K="here", RUN="r"))
    assert done.json["operation"] == "benchmark.submit"
    assert stub.asked[-1].json["secrets"] == {"required": ["RUN"], "provided": {"RUN": "r"}}
    dry = osmosis(*submit, "--dry-run", cwd=work, env=env(stub, tmp_path, RUN="r")).json
    assert json.dumps(dry).count('"r"') == 0
    assert dry["resource"]["request"]["body"]["secrets"]["provided"] == {"RUN": "[given here]"}


@pytest.mark.parametrize(
    ("answer", "lost"),
    [
        (Answer({**SUBMITTED, "id": 5}), True),
        (Answer(data=b"<html>a proxy's page</html>"), True),
        (Answer(SUBMITTED, cut_after=5), True),
        (Answer({"error": "gateway timeout"}, 504), True),
        (Answer({"error": "lr is too high"}, 400), False),
        (Answer({"error": "slow down"}, 429), False),
    ],
)
def test_a_run_whose_answer_was_lost_is_not_submitted_again_blindly(work, stub, tmp_path, answer, lost):
    stub.routes[f"POST {API}/training-runs"] = answer
    error = osmosis("--json", *SUBMIT, "--yes", cwd=work, env=env(stub, tmp_path)).objects[-1]["error"]
    assert ("Look before you submit it again: osmosis train list" in error["message"]) is lost


def test_a_platform_that_was_never_reached_has_no_run(work, tmp_path):
    unreachable = environment(
        tmp_path,
        OSMOSIS_TOKEN="tok",
        OSMOSIS_PLATFORM_URL="http://127.0.0.1:9",
        OSMOSIS_TOKEN_PLATFORM_URL="http://127.0.0.1:9",
    )
    error = osmosis("--json", *SUBMIT, "--yes", cwd=work, env=unreachable).objects[-1]["error"]
    assert "no connection could be made" in error["message"]
    assert "submit it again" not in error["message"]
