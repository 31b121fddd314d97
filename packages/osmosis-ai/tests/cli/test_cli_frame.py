import os
import subprocess
import sys
import types
from pathlib import Path

import click
import pytest
from osmosis_ai.cli import program
from osmosis_ai.cli.output import Cancelled
from osmosis_ai.cli.results import DetailResult, Fields, OperationResult
from osmosis_ai.cli.tree import Entry
from osmosis_ai.consts import PACKAGE_VERSION
from osmosis_ai.errors import ConflictError
from osmosis_cli import OSMOSIS, environment, make_workspace, osmosis


@pytest.fixture
def frame(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    """Runs a throw-away command inside the real frame, in this process."""

    def run(callback, *arguments: str) -> tuple[int, str, str]:
        module = types.ModuleType("osmosis_ai.cli.commands.throwaway")
        module.command = click.command("throwaway")(callback)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setitem(program.TREE, "throwaway", Entry("Test.", "throwaway"))  # type: ignore[arg-type]
        status = program.run([*arguments, "throwaway"])
        out, err = capfd.readouterr()
        return status, out, err

    return run


def test_the_version_is_text_in_every_format(tmp_path: Path):
    for arguments in (["-V"], ["--version"], ["--json", "--version"], ["--plain", "-V"]):
        done = osmosis(*arguments, cwd=tmp_path)
        assert (done.status, done.stdout, done.stderr) == (0, f"osmosis-ai {PACKAGE_VERSION}\n", "")


@pytest.mark.parametrize("name", ["osmosis", "osmosis-ai", "osmosis_ai"])
def test_help_shows_the_name_it_was_called_by(tmp_path: Path, name: str):
    done = subprocess.run([OSMOSIS.with_name(name), "eval", "-h"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith(f"Usage: {name} eval ")


def test_the_root_and_a_group_without_a_command_show_help(tmp_path: Path):
    for arguments in ([], ["--plain"], ["eval"], ["eval", "--help"], ["--json", "eval", "--help"]):
        done = osmosis(*arguments, cwd=tmp_path)
        assert done.status == 0
        assert done.stdout.startswith("Usage: osmosis")
        assert done.stderr == ""


@pytest.mark.parametrize(("arguments", "command"), [(["--json"], "<root>"), (["--json", "eval"], "eval")])
def test_json_gets_an_object_where_people_get_help(tmp_path: Path, arguments: list[str], command: str):
    done = osmosis(*arguments, cwd=tmp_path)
    assert done.status == 2
    assert done.error["code"] == "VALIDATION"
    assert done.objects[0]["command"] == command


@pytest.mark.parametrize(
    ("arguments", "command", "said"),
    [
        (["bogus"], "bogus", "No such command 'bogus'."),
        (["evla"], "evla", "Did you mean 'eval'?"),
        (["eval", "rnu"], "eval rnu", "Did you mean 'run'?"),
        (["help"], "help", "--help"),
        (["--nope", "eval", "run"], "<root>", "--nope"),
        (["eval", "run", "--nope"], "eval run", "--nope"),
        (["eval", "run"], "eval run", "CONFIG_PATH"),
        (["eval", "run", "a.toml", "extra"], "eval run", "extra"),
        (["eval", "run", "a.toml", "--max-in-flight", "x"], "eval run", "--max-in-flight"),
        (["eval", "rubric"], "eval rubric", "--data"),
        (["dataset", "validate", "--platform", "x"], "dataset validate", "--platform"),
        (["deploy"], "deploy", "No such command"),
    ],
)
def test_usage_errors_end_with_2_and_name_what_is_wrong(tmp_path: Path, arguments, command, said):
    done = osmosis(*arguments, "--json", cwd=tmp_path)
    assert done.status == 2
    assert done.objects[-1]["command"] == command
    assert done.error["code"] == "VALIDATION"
    assert said in done.error["message"]
    text = osmosis(*arguments, cwd=tmp_path)
    assert (text.status, text.stdout) == (2, "")
    assert text.stderr.startswith("Error: ")
    assert "--help'." in text.stderr.splitlines()[-1]


def test_format_options_count_anywhere_before_two_dashes(tmp_path: Path):
    for arguments in (["--json", "eval", "bogus"], ["eval", "--json", "bogus"], ["eval", "bogus", "--json"]):
        assert osmosis(*arguments, cwd=tmp_path).error["code"] == "VALIDATION"
    after = osmosis("eval", "run", "--", "--json", "x", cwd=tmp_path)
    assert after.stderr.startswith("Error: ")


@pytest.mark.parametrize("first", ["json", "plain"])
def test_two_formats_conflict_and_the_first_one_tells(tmp_path: Path, first: str):
    second = {"json": "plain", "plain": "json"}[first]
    done = osmosis(f"--{first}", "eval", f"--{second}", "run", "x.toml", cwd=tmp_path)
    assert done.status == 1
    if first == "json":
        assert done.objects == [
            {
                "schema_version": 1,
                "command": "eval run",
                "cli_version": PACKAGE_VERSION,
                "error": {"code": "VALIDATION", "message": done.error["message"], "details": {}},
            }
        ]
    else:
        assert done.stderr.startswith("Error: Conflicting output formats: --plain and --json")


def test_a_blank_workspace_is_refused(tmp_path: Path):
    done = osmosis("--json", "--workspace", "  ", "eval", "run", "x.toml", cwd=tmp_path)
    assert done.status == 1
    assert "--workspace" in done.error["message"]


def test_outside_a_repository_commands_say_what_they_need(tmp_path: Path):
    done = osmosis("--json", "rollout", "init", "alpha", cwd=tmp_path)
    assert (done.status, done.error["code"]) == (1, "WORKSPACE_REQUIRED")
    text = osmosis("rollout", "init", "alpha", cwd=tmp_path)
    assert text.stderr.startswith("Error: Run this command from an Osmosis workspace")
    assert f"{tmp_path} is in no Git repository" in text.stderr and "`git init`" in text.stderr


def test_a_result_is_one_object_text_or_plain_lines(tmp_path: Path):
    for name, arguments in (("a", ["--json"]), ("b", ["--plain"]), ("c", [])):
        make_workspace(tmp_path / name)
        done = osmosis(*arguments, "rollout", "init", "alpha", cwd=tmp_path / name)
        assert (done.status, done.stderr) == (0, "")
        if arguments == ["--json"]:
            assert done.json["operation"] == "rollout.init"
            assert done.json["resource"]["files"][0] == "rollouts/alpha/main.py"
        else:
            assert done.stdout.startswith("Initialized rollout 'alpha'.\n")
            assert "\x1b" not in done.stdout


def test_a_value_that_is_not_json_becomes_an_internal_error(frame):
    status, out, err = frame(lambda: DetailResult({"rate": float("nan")}, []), "--json")
    assert (status, out) == (1, "")
    assert '"code": "INTERNAL"' in err
    assert '"exception_type": "ValueError"' in err


def test_an_unforeseen_exception_is_named_and_shown_on_request(frame, monkeypatch):
    def broken():
        raise ZeroDivisionError("secret detail")

    status, out, err = frame(broken, "--json")
    assert (status, out) == (1, "")
    assert err.count("\n") == 1
    assert '"exception_type": "ZeroDivisionError"' in err
    assert "secret detail" not in err
    monkeypatch.setenv("OSMOSIS_DEBUG", "1")
    _, _, err = frame(broken, "--json")
    assert "Traceback" in err
    assert "secret detail" in err


def test_an_error_made_on_purpose_has_no_traceback(frame, monkeypatch):
    monkeypatch.setenv("OSMOSIS_DEBUG", "1")

    def conflict():
        raise ConflictError("Something is in the way.", details={"paths": ["a"]})

    status, _, err = frame(conflict, "--json")
    assert status == 1
    assert err.count("\n") == 1
    assert '"code": "CONFLICT"' in err
    assert '"details": {"paths": ["a"]}' in err


def test_ctrl_c_ends_with_130(frame):
    def interrupted():
        raise KeyboardInterrupt

    assert frame(interrupted)[0] == 130


def test_a_declined_question_ends_well(frame):
    def declined():
        raise Cancelled

    assert frame(declined)[:2] == (0, "Cancelled.\n")
    assert frame(declined, "--plain")[:2] == (0, "")


def test_a_partial_operation_ends_with_1(frame):
    assert frame(lambda: OperationResult("test.do", "partial", message="Half."))[0] == 1
    assert frame(lambda: OperationResult("test.do", "noop", message="Nothing."))[0] == 0
    assert frame(lambda: OperationResult("test.do", message="Below.", exit_status=1))[0] == 1


def test_files_that_refuse_are_user_errors(frame, tmp_path: Path):
    status, _, err = frame(lambda: (tmp_path / "none" / "file").write_text("x"), "--json")
    assert status == 1
    assert '"code": "VALIDATION"' in err
    assert "none/file: No such file or directory" in err


def test_text_from_outside_cannot_steer_the_terminal(frame):
    def show():
        return DetailResult({}, [Fields([("Name", "a\x1b[31mb\tc\nd\u202e")])])

    for arguments in ([], ["--plain"]):
        _, out, _ = frame(show, *arguments)
        assert "\x1b" not in out
        assert "\\x1b[31mb" in out
    assert frame(show, "--plain")[1] == "Name: a\\x1b[31mb c d\\u202e\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_odd_locales_never_break_output(tmp_path: Path, encoding: str):
    make_workspace(tmp_path / "wörk")
    env = environment(tmp_path, PYTHONIOENCODING=encoding, LC_ALL="POSIX")
    done = subprocess.run([OSMOSIS, "rollout", "init", "alpha"], cwd=tmp_path / "wörk", env=env, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    as_json = subprocess.run(
        [OSMOSIS, "--json", "rollout", "init", "alpha", "-f"], cwd=tmp_path / "wörk", env=env, capture_output=True
    )
    assert "wörk" in as_json.stdout.decode("utf-8")


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path):
    done = subprocess.run(f"'{OSMOSIS}' --help | true", shell=True, cwd=tmp_path, capture_output=True)
    assert done.stderr == b""


def test_closed_streams_are_no_error(tmp_path: Path):
    for redirect in (">&-", "2>&-", "<&-", ">&- 2>&- <&-"):
        done = subprocess.run(f"'{OSMOSIS}' eval {redirect}", shell=True, cwd=tmp_path, capture_output=True)
        assert (done.returncode, done.stderr) == (0, b""), redirect


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_behind_stdout_is_told(tmp_path: Path):
    done = subprocess.run(f"'{OSMOSIS}' --json eval -h > /dev/full", shell=True, cwd=tmp_path, capture_output=True)
    assert done.returncode == 1
    assert b"No space left on device" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(("debug", "lines"), [("0", 0), ("1", 2)])
def test_other_packages_say_nothing_on_our_streams(debug: str, lines: int):
    script = (
        "import logging, warnings; from osmosis_ai.cli.quiet import quiet_libraries; quiet_libraries();"
        "logging.getLogger('litellm').warning('retrying'); warnings.warn('deprecated')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "OSMOSIS_DEBUG": debug}, capture_output=True, text=True
    )
    assert (done.returncode, len(done.stderr.splitlines())) == (0, lines)
