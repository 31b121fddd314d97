import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import evaluation_workspace as ew
import pytest
from osmosis_ai.cli.evaluate import choose_policy
from osmosis_ai.errors import ValidationError
from osmosis_cli import OSMOSIS, Terminal, environment, osmosis
from stub_provider import Behaviour, StubProvider

RUN = ("eval", "run", "configs/eval/loop.toml", "--dataset-file", "data/rows.jsonl")


@pytest.fixture(scope="module")
def stub():
    with StubProvider() as provider:
        yield provider


@pytest.fixture
def env(stub, tmp_path: Path) -> dict[str, str]:
    return environment(tmp_path, XDG_CACHE_HOME=str(ew.CACHE), **stub.environ())


def rows(*prompts: str, label: str | None = None) -> list[dict]:
    return [{"user_prompt": prompt, "ground_truth": label or prompt} for prompt in prompts]


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_run_in_json_is_one_object_with_every_published_key(env, tmp_path: Path):
    work = ew.make_workspace(tmp_path / "w", [*rows("one", "two"), *rows("three", label="else"), *rows("raise now")])
    done = osmosis("--json", *RUN, "--name", "r", "-y", cwd=work, env=env)
    assert (done.status, done.stderr) == (0, "")
    result = done.json
    assert list(result) == ["schema_version", "status", "operation", "resource", "message"]
    assert (result["status"], result["operation"]) == ("success", "eval.run")
    resource = result["resource"]
    assert {
        "run_name": "r",
        "output_path": str(work / ".osmosis/evals/r"),
        "dataset_source": "explicit",
        "total_work_items": 4,
        "dispatched": 4,
        "succeeded": 3,
        "failed": 1,
        "skipped": 0,
        "resumed": 0,
        "cancelled": 0,
        "workspace_directory": str(work),
    }.items() <= resource.items()
    assert resource["metrics"]["pass_rate"] == 0.5
    assert len(resource["local_run_id"]) == 32
    failed = resource["failed_rows"][0]
    assert (failed["row_index"], failed["source_row_index"], failed["run_index"]) == (3, 3, 0)
    assert (failed["fault"], failed["message"]) == ("agent", "no idea")
    assert failed["rollout_dir"].endswith(failed["rollout_id"])
    assert resource["causes"] == [{"fault": "agent", "code": failed["error_type"], "message": "no idea", "count": 1}]


def test_a_redirected_run_tells_stages_and_items_on_stderr_and_the_result_on_stdout(env, tmp_path: Path):
    work = ew.make_workspace(tmp_path / "w", [*rows("one"), *rows("raise now"), *rows("two", label="unset")])
    for arguments in ([], ["--plain"]):
        name = f"r{len(arguments)}"
        done = osmosis(*arguments, *RUN, "--name", name, "-y", cwd=work, env=env)
        assert done.status == 0
        assert "→ Starting the rollout server\n" in done.stderr
        assert "3/3 pass 50.0% · failed 1\n" in done.stderr
        assert "\x1b" not in done.stdout + done.stderr
        assert "1 graded · 1 failed · 1 skipped" in done.stdout
        assert "1 of 2 rollouts passed." in done.stdout
        assert f"osmosis eval view {name}" in done.stdout
        assert "--retry-failed" in done.stdout
        assert "no idea" in done.stdout


def test_verbose_shows_log_lines_instead_of_stages(env, tmp_path: Path):
    work = ew.make_workspace(tmp_path / "w", rows("one"))
    done = osmosis(*RUN, "-y", "--verbose", cwd=work, env=env)
    assert done.status == 0
    assert "→" not in done.stderr
    assert "[server] ready" in done.stderr


def test_a_provider_that_refuses_the_key_mid_run_stops_it_with_a_remedy(env, stub, tmp_path: Path):
    work = ew.make_workspace(tmp_path / "w", rows("one", "two", "three"))
    stub.answer_with(lambda body: Behaviour("status", status=401))
    try:
        done = osmosis(*RUN, "--name", "r", "-y", cwd=work, env=env)
    finally:
        stub.answer_with(None)
    said = " ".join(done.stdout.split())
    assert done.status == 1
    assert "0 of 3 work items have a verdict. Check the provider's key" in said
    assert "--name r" in said, "the command that goes on"


def test_nothing_graded_ends_with_1_and_the_causes(env, tmp_path: Path):
    work = ew.make_workspace(tmp_path / "w", rows("raise a", "raise b"))
    done = osmosis(*RUN, "-y", "--name", "r", cwd=work, env=env)
    assert done.status == 1
    assert "Why rollouts failed" in done.stdout
    assert "Nothing was graded: all 2 rollouts failed." in done.stdout
    assert "95% interval" not in done.stdout
    as_json = osmosis("--json", *RUN, "-y", "--name", "s", cwd=work, env=env)
    assert (as_json.status, as_json.json["status"]) == (1, "partial")
    assert as_json.json["resource"]["causes"][0]["count"] == 2


def test_fail_under_is_a_gate_also_for_a_finished_run(env, tmp_path: Path):
    work = ew.make_workspace(tmp_path / "w", [*rows("one"), *rows("two", label="else")])
    below = osmosis("--json", *RUN, "-y", "--name", "r", "--fail-under", "0.6", cwd=work, env=env)
    assert (below.status, below.json["status"]) == (1, "success")
    assert "50.0%" in below.json["message"] and "--fail-under 0.6" in below.json["message"]
    assert osmosis(*RUN, "-y", "--name", "r", "--fail-under", "0.5", cwd=work, env=env).status == 0
    assert osmosis(*RUN, "-y", "--name", "r", "--fail-under", "0.6", cwd=work, env=env).status == 1


def test_a_finished_run_is_not_touched(env, tmp_path: Path):
    work = ew.make_workspace(tmp_path / "w", rows("one", "two"))
    assert osmosis(*RUN, "-y", "--name", "r", cwd=work, env=env).status == 0
    before = snapshot(work / ".osmosis/evals/r")
    again = osmosis("--json", *RUN, "-y", "--name", "r", cwd=work, env=env)
    assert (again.status, again.json["status"]) == (0, "success")
    assert (again.json["resource"]["dispatched"], again.json["resource"]["resumed"]) == (0, 2)
    text = osmosis(*RUN, "--name", "r", cwd=work, env=env)  # neither --yes nor a terminal: nothing to ask
    assert text.status == 0
    assert "Nothing to run: r is finished." in text.stdout
    assert "osmosis eval view r" in text.stdout
    assert snapshot(work / ".osmosis/evals/r") == before


def test_a_cost_limit_stops_with_the_command_to_go_on(env, tmp_path: Path):
    work = ew.make_workspace(tmp_path / "w", rows(*(f"say {n}" for n in range(8))), model="openai/gpt-5-mini")
    done = osmosis(*RUN, "-y", "--name", "r", "--max-in-flight", "1", "--max-cost", "0.00001", cwd=work, env=env)
    assert done.status == 1
    assert "Stopped: the calls since this start cost" in done.stdout
    assert "--name r" in done.stdout
    planned = osmosis(*RUN, "--name", "s", cwd=work, env=env)
    assert "Cost" in planned.stdout and "for 8 rollouts" in planned.stdout


def test_an_interrupted_run_ends_with_1_and_can_go_on(env, tmp_path: Path):
    work = ew.make_workspace(tmp_path / "w", rows(*(f"sleep {n / 100 + 0.3}" for n in range(30))), capacity=2)
    with subprocess.Popen(
        [OSMOSIS, "--json", *RUN, "-y", "--name", "r"],
        cwd=work,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        journal = work / ".osmosis/evals/r/events.jsonl"
        while not (journal.exists() and journal.read_bytes().count(b"\n") >= 2):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (1, b"")
    result = json.loads(out)
    assert result["status"] == "partial"
    assert result["resource"]["halt"]["code"] == "interrupted"
    assert result["resource"]["succeeded"] + result["resource"]["failed"] < 30


def test_secrets_reach_the_rollout_and_nothing_else(env, tmp_path: Path):
    main = ew.MAIN.replace('word == "raise"', 'word == "secret"').replace('"no idea"', 'os.environ["MY_KEY"]')
    work = ew.make_workspace(tmp_path / "w", rows("secret please"), main=main, secrets='required = ["MY_KEY"]')
    missing = osmosis("--json", *RUN, "-y", cwd=work, env=env)
    assert missing.error["code"] == "INTERACTIVE_REQUIRED"
    assert missing.error["details"] == {"missing": ["MY_KEY"], "flags": ["--secrets-file"]}
    (tmp_path / "s.env").write_text("export MY_KEY='hush-hush-value'\n")
    done = osmosis("--json", *RUN, "-y", "--name", "r", "--secrets-file", str(tmp_path / "s.env"), cwd=work, env=env)
    assert done.status == 1
    assert done.json["resource"]["failed_rows"][0]["message"] == "[REDACTED]"
    assert "hush-hush" not in done.stdout + done.stderr
    for path in (work / ".osmosis/evals/r").rglob("*"):
        assert not path.is_file() or b"hush-hush" not in path.read_bytes(), path


def test_without_a_local_dataset_the_login_and_the_way_around_are_named(tmp_path: Path):
    work = ew.make_workspace(tmp_path / "w")
    bare = osmosis("--json", "eval", "run", "configs/eval/loop.toml", cwd=work)
    assert bare.error["code"] == "VALIDATION"
    assert "origin" in bare.error["message"] and "--dataset-file" in bare.error["message"]
    subprocess.run(["git", "remote", "add", "origin", "git@github.com:a/b.git"], cwd=work, check=True)
    done = osmosis("--json", "eval", "run", "configs/eval/loop.toml", cwd=work)
    assert (done.status, done.error["code"]) == (1, "AUTH_REQUIRED")
    assert "osmosis auth login" in done.error["message"] and "--dataset-file" in done.error["message"]


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (lambda work: (work / "rollouts/loop").rename(work / "rollouts/other"), "There is: other."),
        (lambda work: (work / "rollouts/loop/main.py").unlink(), "rollouts/loop/main.py"),
        (lambda work: (work / "rollouts/loop/pyproject.toml").unlink(), "pyproject.toml"),
        (lambda work: (work / "data/rows.jsonl").write_text("{broken\n"), "rows.jsonl"),
        (lambda work: (work / "data/rows.jsonl").write_text(""), "empty"),
        (lambda work: (work / "data/rows.jsonl").unlink(), "not a file"),
        (lambda work: (work / "configs/training").rmdir(), "configs/training/"),
    ],
)
def test_what_is_missing_is_said_before_anything_is_made(tmp_path: Path, broken, said: str):
    work = ew.make_workspace(tmp_path / "w")
    broken(work)
    done = osmosis("--json", *RUN, "-y", cwd=work)
    assert (done.status, done.error["code"]) == (1, "VALIDATION")
    assert said in done.error["message"]
    assert not (work / ".osmosis").exists()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--tunnel", "ngrok"], "cloudflared"),
        (["--listener-port", "0"], "--listener-port"),
        (["--rollout-port", "70000"], "--rollout-port"),
        (["--max-in-flight", "0"], "--max-in-flight"),
        (["--fail-under", "1.5"], "--fail-under"),
        (["--fail-under", "nan"], "--fail-under"),
        (["--max-cost", "0"], "--max-cost"),
        (["--max-cost", "inf"], "--max-cost"),
        (["--fresh"], "--name"),
        (["--retry-failed"], "--name"),
        (["--fresh", "--retry-failed", "--name", "x"], "--fresh"),
        (["--advertise-url", "https://x/?q", "--listener-port", "9000"], "--advertise-url"),
    ],
)
def test_flags_are_checked_before_anything_else(tmp_path: Path, flags: list[str], said: str):
    done = osmosis("--json", "eval", "run", "none.toml", *flags, cwd=tmp_path)
    assert (done.status, done.error["code"]) == (1, "VALIDATION")
    assert said in done.error["message"]


def test_a_config_that_is_a_directory_is_a_usage_error(tmp_path: Path):
    work = ew.make_workspace(tmp_path / "w")
    (work / "configs/eval/sub.toml").mkdir()
    done = osmosis("--json", "eval", "run", "configs/eval/sub.toml", "--dataset-file", "data/rows.jsonl", cwd=work)
    assert (done.status, done.error["code"]) == (2, "VALIDATION")


def test_an_unknown_embedded_model_is_named():
    with pytest.raises(ValidationError, match="osmosis/none"):
        choose_policy("osmosis/none", {})


def test_without_the_trainer_the_extra_is_named(tmp_path: Path):
    work = ew.make_workspace(tmp_path / "w", model="osmosis/nano")
    (tmp_path / "hide" / "osmosis_trainer").mkdir(parents=True)
    (tmp_path / "hide" / "osmosis_trainer" / "__init__.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'osmosis_trainer'\", name='osmosis_trainer')\n"
    )
    env = environment(tmp_path, PYTHONPATH=str(tmp_path / "hide"))
    done = osmosis("--json", *RUN, "-y", cwd=work, env=env)
    assert (done.status, done.error["code"]) == (1, "VALIDATION")
    assert 'pip install "osmosis-ai[local]"' in done.error["message"]
    assert done.error["details"] == {"missing_module": "osmosis_trainer", "extra": "local"}


def test_without_the_server_packages_the_extra_is_named(tmp_path: Path):
    work = ew.make_workspace(tmp_path / "w")
    script = (
        "import sys, importlib.util as u; real = u.find_spec;"
        "u.find_spec = lambda name, *a: None if name == 'uvicorn' else real(name, *a);"
        "from osmosis_ai.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "--json", *RUN, "-y"], cwd=work, capture_output=True, text=True
    )
    error = json.loads(done.stderr)["error"]
    assert (done.returncode, error["code"]) == (1, "VALIDATION")
    assert error["details"] == {"missing_module": "uvicorn", "extra": "eval"}
    assert not (work / ".osmosis").exists()


def test_the_model_that_ships_with_us_needs_no_provider(tmp_path: Path):
    work = ew.make_workspace(tmp_path / "w", rows("say 1", "say 2"), model="osmosis/nano")
    env = environment(tmp_path, XDG_CACHE_HOME=str(ew.CACHE))
    done = osmosis("--json", *RUN, "-y", cwd=work, env=env)
    assert (done.status, done.stderr) == (0, "")
    assert done.json["resource"]["succeeded"] == 2
    assert done.json["resource"]["cost_usd"] == 0


def test_the_question_is_asked_on_a_terminal_and_the_run_drawn_live(env, tmp_path: Path):
    work = ew.make_workspace(tmp_path / "w", rows(*(f"sleep 0.{n}" for n in range(1, 6))), capacity=2)
    with Terminal(*RUN, "--name", "r", cwd=work, env=env) as terminal:
        terminal.expect("Run 5 rollouts x model openai/echo? [y/N]")
        assert not (work / ".osmosis/evals/r/rollout_trials").exists() or not any(
            (work / ".osmosis/evals/r/rollout_trials").iterdir()
        )
        terminal.send("y\r")
        terminal.expect("/5 · pass")
        assert terminal.finish() == 0
        assert "5 of 5 rollouts passed." in terminal.text
        assert "\x1b[?25h" in terminal.raw  # the cursor is back


@pytest.mark.parametrize("keys", ["n\r", "\r", "\x1b", "\x03"])
def test_a_declined_run_costs_nothing(env, tmp_path: Path, keys: str):
    work = ew.make_workspace(tmp_path / "w", rows("one"))
    with Terminal(*RUN, cwd=work, env=env) as terminal:
        terminal.expect("[y/N]")
        terminal.send(keys)
        assert terminal.finish() == 0
        assert terminal.text.rstrip().endswith("Cancelled.")
        assert "→" not in terminal.text
    assert [path.name for path in (work / ".osmosis/evals").iterdir()] == [".locks"]


def test_a_declined_resumption_keeps_the_run(env, tmp_path: Path):
    work = ew.make_workspace(tmp_path / "w", rows("raise a", "two"))
    assert osmosis(*RUN, "-y", "--name", "r", cwd=work, env=env).status == 0
    before = snapshot(work / ".osmosis/evals/r")
    declined = osmosis("--json", *RUN, "--name", "r", "--retry-failed", cwd=work, env=env)
    assert declined.error["code"] == "INTERACTIVE_REQUIRED"
    assert declined.error["details"]["summary"]["Work Items"] == "2 (1 to do, 1 done before)"
    assert snapshot(work / ".osmosis/evals/r") == before


def test_secrets_are_asked_for_unseen(env, tmp_path: Path):
    work = ew.make_workspace(tmp_path / "w", rows("one"), secrets='required = ["MY_KEY", "OTHER_KEY"]')
    with Terminal(*RUN, "-y", "--name", "r", cwd=work, env={**env, "OTHER_KEY": "from-env"}) as terminal:
        terminal.expect("MY_KEY (hidden")
        terminal.send("hush-hush\r")
        assert terminal.finish() == 0
        assert "hush" not in terminal.raw
        assert "OTHER_KEY" not in terminal.text


def test_a_finished_run_offers_a_new_one(env, tmp_path: Path):
    work = ew.make_workspace(tmp_path / "w", rows("one"))
    assert osmosis(*RUN, "-y", "--name", "r", cwd=work, env=env).status == 0
    with Terminal(*RUN, "--name", "r", cwd=work, env=env) as terminal:
        terminal.expect("Start a new run? [Y/n]")
        terminal.send("n\r")
        assert terminal.finish() == 0
        assert "Nothing to run: r is finished." in terminal.text
    with Terminal(*RUN, "--name", "r", cwd=work, env=env) as terminal:
        terminal.expect("Start a new run? [Y/n]")
        terminal.send("\r")
        terminal.expect("Run 1 rollouts")
        terminal.send("y\r")
        assert terminal.finish() == 0
    assert len([path for path in (work / ".osmosis/evals").iterdir() if path.name != ".locks"]) == 2


@pytest.mark.parametrize("quiet", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_colour_means_no_live_region_either(env, tmp_path: Path, quiet: dict[str, str]):
    work = ew.make_workspace(tmp_path / "w", rows("one", "two"))
    with Terminal(*RUN, "-y", cwd=work, env={**env, **quiet}) as terminal:
        assert terminal.finish() == 0
        assert "2/2 pass 100.0% · failed 0" in terminal.text
        assert "\x1b[3" not in terminal.raw


def test_frames_fit_the_terminal(env, tmp_path: Path):
    long = "a very long answer " * 20
    work = ew.make_workspace(tmp_path / "w", [*rows("raise " + long), *rows(long, label="else")])
    with Terminal(*RUN, "-y", "--name", "r", cwd=work, columns=60, env=env) as terminal:
        terminal.finish()
        framed = [line for line in terminal.text.split("\n") if line.startswith(("│", "╭", "─", " "))]
        framed = [line for line in framed if "osmosis eval" not in line]  # commands stay whole, to be copied
        assert framed and max(map(len, framed)) <= 60
    for columns in (30, 60, 160):
        with Terminal("eval", "view", "r", "--row", "1", cwd=work, columns=columns, env=env) as terminal:
            assert terminal.finish() == 0
            assert max(len(line) for line in terminal.text.split("\n")) <= columns


def test_ctrl_c_on_a_terminal_keeps_what_is_done(env, tmp_path: Path):
    work = ew.make_workspace(tmp_path / "w", rows(*(f"sleep {n / 100 + 0.3}" for n in range(40))), capacity=2)
    with Terminal(*RUN, "-y", "--name", "r", cwd=work, env=env) as terminal:
        terminal.expect("/40 · pass")
        terminal.send("\x03")
        assert terminal.finish() == 1
        assert "Stopped: " in terminal.text
        assert "--name r" in terminal.text
    assert os.path.exists(work / ".osmosis/evals/r/metrics.json")
