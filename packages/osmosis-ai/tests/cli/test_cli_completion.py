import subprocess
from pathlib import Path

import pytest
from osmosis_cli import OSMOSIS, environment, make_workspace, osmosis


def asked(cwd: Path, **variables: str):
    return osmosis(cwd=cwd, env=environment(cwd, **variables))


def test_bash_gets_bare_words(tmp_path: Path):
    done = asked(tmp_path, _OSMOSIS_COMPLETE="complete_bash", COMP_WORDS="osmosis ev", COMP_CWORD="1")
    assert (done.status, done.stdout, done.stderr) == (0, "eval\n", "")


def test_commands_and_options_of_a_command_complete(tmp_path: Path):
    done = asked(tmp_path, _OSMOSIS_COMPLETE="complete_bash", COMP_WORDS="osmosis eval ", COMP_CWORD="2")
    assert "run\n" in done.stdout
    done = asked(tmp_path, _OSMOSIS_COMPLETE="complete_bash", COMP_WORDS="osmosis eval run --dat", COMP_CWORD="3")
    assert done.stdout == "--dataset-file\n"


def test_zsh_gets_descriptions(tmp_path: Path):
    done = asked(tmp_path, _OSMOSIS_COMPLETE="complete_zsh", _TYPER_COMPLETE_ARGS="osmosis da")
    assert done.stdout.startswith("""_arguments '*: :(("dataset":\"""")


def test_fish_asks_whether_there_is_anything(tmp_path: Path):
    base = {"_OSMOSIS_COMPLETE": "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "is-args"}
    assert asked(tmp_path, **base, _TYPER_COMPLETE_ARGS="osmosis da").status == 0
    assert asked(tmp_path, **base, _TYPER_COMPLETE_ARGS="osmosis zz").status == 1
    base["_TYPER_COMPLETE_FISH_ACTION"] = "get-args"
    assert asked(tmp_path, **base, _TYPER_COMPLETE_ARGS="osmosis da").stdout.startswith("dataset")


def test_an_unknown_request_is_told_and_runs_nothing(tmp_path: Path):
    done = asked(tmp_path, _OSMOSIS_COMPLETE="complete_tcsh")
    assert (done.status, done.stdout) == (1, "")


@pytest.mark.parametrize(("shell", "startup"), [("bash", ".bashrc"), ("zsh", ".zshrc")])
def test_install_writes_a_script_and_one_line_once(tmp_path: Path, shell: str, startup: str):
    (tmp_path / startup).write_text("alias x=y")
    first = osmosis("--json", "completion", "install", "--shell", shell, cwd=tmp_path)
    assert first.json["status"] == "success"
    text = (tmp_path / startup).read_text()
    assert text.startswith("alias x=y\n")
    again = osmosis("--json", "completion", "install", "--shell", shell, cwd=tmp_path)
    assert again.json["status"] == "noop"
    assert (tmp_path / startup).read_text() == text


def test_install_takes_the_shell_from_the_environment(tmp_path: Path):
    env = environment(tmp_path, SHELL="/usr/bin/fish")
    done = osmosis("--json", "completion", "install", cwd=tmp_path, env=env)
    assert (tmp_path / ".config/fish/completions/osmosis.fish").is_file()
    assert done.json["resource"]["shell"] == "fish"
    unknown = osmosis("--json", "completion", "install", cwd=tmp_path, env=environment(tmp_path, SHELL="/bin/tcsh"))
    assert "--shell" in unknown.error["message"]


def test_the_installed_bash_script_completes_in_bash(tmp_path: Path):
    osmosis("completion", "install", "--shell", "bash", cwd=tmp_path)
    script = (
        f"source {tmp_path}/.bashrc; COMP_WORDS=(osmosis ev); COMP_CWORD=1;"
        ' _osmosis_completion osmosis; echo "${COMPREPLY[@]}"'
    )
    env = environment(tmp_path)
    env["PATH"] = f"{OSMOSIS.parent}:{env['PATH']}"
    done = subprocess.run(["bash", "-c", script], env=env, capture_output=True, text=True, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("eval\n", "")


def test_files_are_left_to_the_shell(tmp_path: Path):
    words = {"COMP_WORDS": "osmosis dataset validate da", "COMP_CWORD": "3"}
    assert asked(tmp_path, _OSMOSIS_COMPLETE="complete_bash", **words).stdout == ""


def test_names_of_runs_complete(tmp_path: Path):
    work = make_workspace(tmp_path / "w")
    (work / ".osmosis/evals/brave-otter-7").mkdir(parents=True)
    env = environment(tmp_path, _OSMOSIS_COMPLETE="complete_bash", COMP_WORDS="osmosis eval view br", COMP_CWORD="3")
    assert osmosis(cwd=work, env=env).stdout == "brave-otter-7\n"
