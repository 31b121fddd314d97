"""The credential helper: what the real git gets from it, from where, and what it does not get."""

import json
import os
import shlex
import subprocess

import pytest
from osmosis_ai.client.git_login import Question, helper
from osmosis_cli import OSMOSIS, environment

HERE = "http://127.0.0.1:8700"


@pytest.fixture
def logged_in(tmp_path):
    """A machine with a stored login of one platform, token `stored`."""
    folder = tmp_path / ".config/osmosis"
    folder.mkdir(parents=True)
    user = {"id": "u", "email": "a@b.example"}
    login = {"expires_at": "2099-01-01T00:00:00+00:00", "user": user, "token_store": "file", "access_token": "stored"}
    (folder / "credentials.json").write_text(json.dumps({"version": 2, "platforms": {HERE: {"version": 2, **login}}}))
    return environment(tmp_path)


def fill(env, *options, host="127.0.0.1:8700", protocol="http", platform=HERE):
    """What `git credential fill` answers with our helper alone."""
    value = "!" + shlex.join([str(OSMOSIS), "--platform", platform, "auth", "git-credential", *options])
    done = subprocess.run(
        ["git", "-c", "credential.helper=", "-c", f"credential.helper={value}", "credential", "fill"],
        env=env | {"GIT_TERMINAL_PROMPT": "0"}, input=f"protocol={protocol}\nhost={host}\n\n",
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    values = dict(line.split("=", 1) for line in done.stdout.splitlines())
    return values.get("password"), done.stderr


def test_the_file_comes_before_the_variable_and_that_before_the_stored_login(tmp_path, logged_in):
    file = tmp_path / "token"
    file.write_text("from-file\n")
    variable = logged_in | {"OSMOSIS_TOKEN": "from-variable", "OSMOSIS_TOKEN_PLATFORM_URL": f"{HERE}/"}
    assert fill(variable, "--token-file", str(file))[0] == "from-file"
    assert fill(variable)[0] == "from-variable"
    assert fill(logged_in)[0] == "stored"
    file.unlink()
    password, said = fill(logged_in, "--token-file", str(file))
    assert password == "stored" and str(file) in said


def test_a_variable_that_is_bound_elsewhere_or_nowhere_stays_here(logged_in):
    assert (
        fill(logged_in | {"OSMOSIS_TOKEN": "x", "OSMOSIS_TOKEN_PLATFORM_URL": "https://other.example"})[0] == "stored"
    )
    assert fill(logged_in | {"OSMOSIS_TOKEN": "x"})[0] == "stored"


@pytest.mark.parametrize(
    ("protocol", "host"),
    [("https", "127.0.0.1:8700"), ("http", "127.0.0.1"), ("http", "github.com:8700"), ("http", "127.0.0.1:8700.evil"),
     ("http", "127.0.0.1:8700@evil"), ("http", "evil/127.0.0.1:8700")],
)  # fmt: skip
def test_no_other_place_gets_anything(logged_in, protocol, host):
    assert fill(logged_in, protocol=protocol, host=host)[0] is None


def test_another_name_is_answered_only_where_it_was_given(logged_in):
    known = ("--known-as", "http://github.com:8700")
    assert fill(logged_in, *known, host="github.com:8700")[0] == "stored"
    assert fill(logged_in, *known, host="github.com")[0] is None
    assert fill(logged_in, *known, host="github.com:8700", protocol="https")[0] is None


def test_without_a_login_it_says_how_to_get_one(tmp_path):
    password, said = fill(environment(tmp_path))
    assert password is None
    assert f"osmosis --platform {HERE} auth login" in said


def test_a_platform_in_the_open_gets_no_token(logged_in):
    open_platform = "http://platform.example"
    env = logged_in | {"OSMOSIS_TOKEN": "x", "OSMOSIS_TOKEN_PLATFORM_URL": open_platform}
    password, said = fill(env, host="platform.example", platform=open_platform)
    assert password is None and "non-HTTPS" in said


def test_what_git_stores_or_erases_changes_nothing(tmp_path, logged_in):
    file = tmp_path / ".config/osmosis/credentials.json"
    before = file.read_bytes()
    for operation in ("store", "erase", "anything"):
        done = subprocess.run(
            [OSMOSIS, "--platform", HERE, "auth", "git-credential", operation], env=logged_in,
            input="protocol=http\nhost=127.0.0.1:8700\npassword=stored\n", capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert file.read_bytes() == before


def test_a_question_may_hold_anything():
    assert Question.parse("") == Question("", "")
    assert Question.parse("host=a=b\nwwwauth[]=Basic\n\ncapability[]=state\nprotocol=https\nnothing") == Question(
        "https", "a=b"
    )
    assert not Question("http", "[::1").is_about(HERE)
    assert Question("https", "Osmosis.Example:443").is_about("https://osmosis.example/base")


def test_the_setting_names_this_very_program_by_its_path():
    words = shlex.split(helper("https://osmosis.example").removeprefix("!"))
    assert words[0] == str(OSMOSIS) and os.access(words[0], os.X_OK)
    assert words[1:] == ["--platform", "https://osmosis.example", "auth", "git-credential"]
