"""What a newcomer meets first: each error names the thing, the place and the remedy, and nothing that is secret."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest
from osmosis_cli import OSMOSIS, environment, make_workspace, osmosis
from stub_api import Answer, StubApi


def test_a_root_option_after_the_command_is_told_its_place(tmp_path: Path):
    done = osmosis("--json", "dataset", "list", "--platform", "http://x", cwd=tmp_path)
    assert done.status == 2
    assert "osmosis --platform ... dataset list" in done.error["message"]
    done = osmosis("secret", "list", "--workspace=lab", cwd=tmp_path)
    assert "osmosis --workspace ... secret list" in done.stderr


def test_a_repository_without_origin_is_named_with_both_ways_out(tmp_path: Path):
    work = make_workspace(tmp_path / "w", origin=None)
    message = osmosis("--json", "dataset", "list", cwd=work).error["message"]
    assert str(work) in message
    assert "git remote add origin" in message
    assert "--workspace NAME" in message


@pytest.mark.parametrize(
    ("origin", "shown"),
    [
        ("https://ada:hunter2@gitlab.com/a/b.git?x=hunter2", "https://gitlab.com/a/b.git"),
        ("https://ada:hun/ter2@gitlab.com/a/b.git", "https://..."),
        ("git@gitlab.com:a/b.git", "gitlab.com:a/b.git"),
        ("/srv/git/b.git", "/srv/git/b.git"),
    ],
)
def test_an_unsuitable_origin_is_shown_without_its_login(tmp_path: Path, origin: str, shown: str):
    work = make_workspace(tmp_path / "w", origin=origin)
    message = osmosis("--json", "dataset", "list", cwd=work).error["message"]
    assert f"{work} has the origin '{shown}'" in message
    assert "ter2" not in message


def test_a_git_folder_that_leads_nowhere_is_not_called_no_repository(tmp_path: Path):
    (tmp_path / ".git").write_text("gitdir: /nowhere\n")
    message = osmosis("--json", "dataset", "list", cwd=tmp_path).error["message"]
    assert "not a git repository: /nowhere" in message
    assert "git init" not in message


def test_doctor_names_the_folder_that_is_in_no_repository(tmp_path: Path):
    assert f"{tmp_path} is in no Git repository" in osmosis("--json", "doctor", cwd=tmp_path).error["message"]


def test_a_platform_that_does_not_answer_says_where_its_address_comes_from(tmp_path: Path):
    env = environment(tmp_path, OSMOSIS_TOKEN="tok", OSMOSIS_TOKEN_PLATFORM_URL="http://127.0.0.1:9")
    for command in (("auth", "whoami"), ("--workspace", "lab", "dataset", "list")):
        error = osmosis("--json", "--platform", "http://127.0.0.1:9", *command, cwd=tmp_path, env=env).error
        assert "OSMOSIS_PLATFORM_URL" in error["message"]


def test_completion_without_a_shell_says_the_command(tmp_path: Path):
    message = osmosis("--json", "completion", "install", cwd=tmp_path).error["message"]
    assert "osmosis completion install --shell bash|zsh|fish" in message


def test_half_a_character_from_the_platform_is_replaced(tmp_path: Path):
    account = {"user": {"id": "u", "email": "a\ud800da@example.com", "name": None}, "token_id": "t"}
    with StubApi({"GET /api/cli/verify": Answer(account)}) as stub:
        env = environment(tmp_path, OSMOSIS_PLATFORM_URL=stub.url, OSMOSIS_TOKEN_STORE="file")
        done = osmosis("--plain", "auth", "login", "--token", "pat-1", cwd=tmp_path, env=env)
    assert done.status == 0
    assert "a\ufffdda@example.com" in done.stdout + done.stderr
    assert "pat-1" in (tmp_path / ".config/osmosis/credentials.json").read_text()


def test_a_token_that_is_not_accepted_is_not_called_a_saved_login(tmp_path: Path):
    with StubApi({"GET /api/cli/verify": Answer({"code": "TOKEN_INVALID"}, 401)}) as stub:
        env = environment(tmp_path, OSMOSIS_PLATFORM_URL=stub.url)
        error = osmosis("--json", "auth", "login", "--token", "pat-1", cwd=tmp_path, env=env).error
        url = stub.url
    assert error["code"] == "AUTH_REQUIRED"
    assert f"{url} does not accept the token of --token" in error["message"]
    assert "pat-1" not in error["message"]


def test_a_workspace_that_is_refused_is_named(tmp_path: Path):
    refused = Answer({"error": "x", "code": "WORKSPACE_SCOPE_HEADER_ACCESS_DENIED"}, 403)
    with StubApi({"GET /api/cli/datasets": refused}) as stub:
        env = environment(tmp_path, **stub.environment())
        error = osmosis("--json", "--workspace", "nope", "dataset", "list", cwd=tmp_path, env=env).error
    assert "the workspace 'nope'" in error["message"]


@pytest.mark.parametrize("code", ["NOT_SERVED", "GIT_REPOSITORY_NOT_CONNECTED"])
@pytest.mark.parametrize(
    "command", [("open", "x"), ("model", "info", "x"), ("model", "info", "a/x"), ("eval", "info", "x")]
)
def test_what_was_never_looked_for_is_not_called_missing(tmp_path: Path, command: tuple[str, ...], code: str):
    work = make_workspace(tmp_path / "w")
    with StubApi() as stub:
        stub.answer = lambda asked: Answer({"error": "not here yet", "code": code}, 404)  # ty: ignore[invalid-assignment]
        done = osmosis("--json", *command, cwd=work, env=environment(tmp_path, **stub.environment()))
    message = done.error["message"]
    assert ("not here yet" in message) == (code == "NOT_SERVED")
    assert "See the names" not in message
    assert "not found" not in message
    assert "There is no run" not in message


def test_a_remedy_that_the_platform_gives_is_not_given_twice(tmp_path: Path):
    said = "There is no dataset 'x'. `osmosis dataset list` shows what there is."
    with StubApi({"GET /api/cli/datasets/x": Answer({"error": said, "code": "NOT_FOUND"}, 404)}) as stub:
        env = environment(tmp_path, **stub.environment())
        done = osmosis("--json", "--workspace", "lab", "dataset", "info", "x", cwd=tmp_path, env=env)
    assert done.error["message"].count("osmosis dataset list") == 1


def test_doctor_takes_the_hosts_that_the_platform_takes(tmp_path: Path):
    with StubApi({"GET /api/cli/verify": {"workspace": {"id": "ws_1", "name": "lab", "role": "owner"}}}) as stub:
        work = make_workspace(tmp_path / "w", origin=f"{stub.url}/git/lab/lab.git")
        env = environment(tmp_path, **stub.environment())
        report = osmosis("--json", "doctor", "--fix", cwd=work, env=env).json["resource"]
        asked = stub.asked[-1].headers["x-osmosis-git"]
    assert report["git"]["identity"] == asked == f"{stub.url.removeprefix('http://')}/git/lab/lab"
    assert report["workspace"]["name"] == "lab"
    assert "warning" not in report["git"]


def test_a_fault_of_the_platform_is_told_with_the_id_under_which_its_log_has_it(tmp_path: Path):
    fault = Answer({"error": "The platform failed."}, 500, headers={"X-Request-Id": "rq_1"})
    with StubApi({"GET /api/cli/datasets": fault}) as stub:
        env = environment(tmp_path, **stub.environment())
        error = osmosis("--json", "--workspace", "lab", "dataset", "list", cwd=tmp_path, env=env).error
        stub.routes["GET /api/cli/datasets"] = Answer({"error": "No."}, 500, headers={"X-Request-Id": "a b"})
        other = osmosis("--json", "--workspace", "lab", "dataset", "list", cwd=tmp_path, env=env).error
    assert error["message"] == "The platform failed. (request rq_1)"
    assert other["message"] == "No."


@pytest.mark.parametrize(
    ("command", "routes"),
    [
        (
            ("model", "info", "m"),
            {
                "GET /api/cli/models/m": {
                    "id": "l", "model_name": "m'; rm -rf ~; '", "base_model": "b", "deployment_status": "active",
                    "inference_model": "b:m'; rm -rf ~; '", "created_at": "2026-11-01T10:00:00Z",
                }
            },
        ),
        (("dataset", "info", "d"), {"GET /api/cli/datasets/d": {"id": "d", "file_name": "d; rm -rf ~", "status": "error"}}),
        (
            ("train", "info", "t"),
            {
                "GET /api/cli/training-runs/t": {"training_run": {"id": "t", "name": "t", "status": "finished"}},
                "GET /api/cli/training-runs/t/checkpoints": {
                    "checkpoints": [{"id": "c", "checkpoint_name": "c; rm -rf ~", "checkpoint_step": 1}]
                },
            },
        ),
    ],
)  # fmt: skip
def test_commands_to_copy_hold_names_of_others_as_one_word(tmp_path: Path, command: tuple[str, ...], routes: dict):
    with StubApi(routes) as stub:
        env = environment(tmp_path, **stub.environment())
        done = osmosis("--plain", "--workspace", "lab", *command, cwd=tmp_path, env=env)
    assert done.status == 0, done.stderr
    commands = [line.partition("osmosis ")[2] for line in done.stdout.splitlines() if "osmosis " in line]
    assert commands
    for line in commands:
        assert "rm" not in shlex.split(line)
    curl = done.stdout.partition("curl")[2].partition("\n\n")[0]
    assert "rm" not in shlex.split(curl)


def test_tables_stay_straight_in_a_locale_that_has_no_wide_characters(tmp_path: Path):
    dataset = {"id": "d", "file_name": "数学", "status": "uploaded", "creator_name": "ada"}
    with StubApi({"GET /api/cli/datasets/d": dataset}) as stub:
        env = environment(tmp_path, **stub.environment(), LANG="C", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
        done = osmosis("--workspace", "lab", "dataset", "info", "d", cwd=tmp_path, env=env)
    rows = [line for line in done.stdout.splitlines() if line.startswith("|")]
    assert "????" in done.stdout
    assert len({len(row) for row in rows}) == 1


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("dataset", "info", ""), "is blank"),
        (("open", " "), "is blank"),
        (("secret", "set", "A_KEY", "--env", ""), "--env needs the name"),
        (("eval", "upload", "."), "holds no local run"),
        (("eval", "upload", "/"), "holds no local run"),
        (("train", "view", "."), "holds no training"),
        (("eval", "run", "configs/eval/a.toml", "--rows", "5-3"), "ends before it starts"),
        (("eval", "run", "configs/eval/a.toml", "--name", "../x"), "'../x' cannot be the name"),
        (("train", "run", "configs/training/a.toml", "--rows", "a"), "cannot be read"),
        (("eval", "info", "e", "-o", ".git/config"), "is a file; -o names the folder"),
        (("eval", "download", "e", "-o", ".git/config/deeper"), "is a file; -o names the folder"),
        (("benchmark", "runs", "download", "e", "-o", ".git/config"), "is a file; -o names the folder"),
    ],
)
def test_values_that_cannot_work_are_refused_before_anything_is_asked(tmp_path: Path, command, said: str):
    work = make_workspace(tmp_path / "w")
    with StubApi() as stub:
        done = osmosis("--json", *command, cwd=work, env=environment(tmp_path, **stub.environment()))
        assert stub.asked == []
    assert (done.status, done.error["code"]) in ((1, "VALIDATION"), (1, "NOT_FOUND"))
    assert said in done.error["message"]


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["--json", "template", "list"]])
def test_a_full_disk_is_an_error_and_no_noise_of_the_interpreter(tmp_path: Path, arguments: list[str]):
    with open("/dev/full", "w") as full:
        command = [str(OSMOSIS), *arguments]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, env=environment(tmp_path), text=True)
    assert done.returncode == 1
    assert "No space left" in done.stderr
    assert "Exception" not in done.stderr


def test_a_blank_platform_is_not_the_production_platform(tmp_path: Path):
    error = osmosis("--json", "--platform", "", "auth", "whoami", cwd=tmp_path).error
    assert (error["code"], error["message"]) == ("VALIDATION", "--platform requires the URL of a platform.")


def test_the_command_after_a_literal_end_of_options_is_named(tmp_path: Path):
    assert osmosis("--json", "--", "auth", "whoami", cwd=tmp_path).stderr.count('"command": "auth whoami"') == 1


@pytest.mark.parametrize("named", [False, True])
def test_a_dotenv_file_that_only_lies_here_cannot_make_git_run_programs(tmp_path: Path, named: bool):
    work = make_workspace(tmp_path / "w")
    (work / "evil").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (work / "evil").chmod(0o755)
    (work / ".env").write_text(
        f"GIT_CONFIG_COUNT=1\nGIT_CONFIG_KEY_0=core.fsmonitor\nGIT_CONFIG_VALUE_0={work}/evil\nOTHER=1\n"
    )
    (work / "rollouts/alpha").mkdir()
    (work / "rollouts/alpha/main.py").write_text("")
    config = '[experiment]\nrollout = "alpha"\nentrypoint = "main.py"\nmodel_path = "m"\ndataset = "d"\n'
    (work / "configs/training/a.toml").write_text(config)
    options = ("--env-file", ".env") if named else ()
    env = environment(tmp_path, OSMOSIS_TOKEN="tok")
    done = osmosis("--json", *options, "train", "submit", "configs/training/a.toml", "--dry-run", cwd=work, env=env)
    assert done.status == 0, done.stderr
    codes = [line["warning"]["code"] for line in done.objects]
    assert codes.count("DOTENV_LINE_SKIPPED") == (0 if named else 3)
    assert (tmp_path / "ran").exists() is named


@pytest.mark.parametrize("kind", [(), ("--kind", "training")])
def test_a_pipe_that_nobody_writes_is_no_config(tmp_path: Path, kind: tuple[str, ...]):
    os.mkfifo(tmp_path / "a.toml")
    error = osmosis("--json", "config", "validate", "a.toml", *kind, cwd=tmp_path).error
    assert error["code"] == "VALIDATION" and "is a pipe" in error["message"]


def test_the_next_command_of_an_empty_list_stays_in_the_named_workspace(tmp_path: Path):
    with StubApi({"GET /api/cli/datasets": {"datasets": [], "total_count": 0}}) as stub:
        env = environment(tmp_path, **stub.environment())
        done = osmosis("--workspace", "my lab", "dataset", "list", cwd=tmp_path, env=env)
    assert "osmosis --workspace 'my lab' dataset upload" in done.stdout


@pytest.mark.parametrize("options", [(), ("--plain",)])
def test_names_of_others_steer_no_terminal_in_hints_either(tmp_path: Path, options: tuple[str, ...]):
    evil = {"id": "d", "file_name": "\x1b[2J\u202eevil", "status": "error"}
    with StubApi({"GET /api/cli/datasets/d": evil}) as stub:
        env = environment(tmp_path, **stub.environment())
        done = osmosis(*options, "--workspace", "lab", "dataset", "info", "d", cwd=tmp_path, env=env)
    assert "osmosis dataset logs" in done.stdout
    assert not {"\x1b", "\u202e"} & set(done.stdout)
