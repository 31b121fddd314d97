"""What `client-env` gives to clients: no secret in it, no request past the platform, clones that work without it."""

import json
import os
import shlex
import subprocess

import pytest
from osmosis_platform.errors import InvalidRequestError
from osmosis_platform.ops.client_environment import ClientEnvironment, client_environment
from osmosis_platform.settings import Settings

HERE = "http://127.0.0.1:8701"
NAMED = "http://github.com:8701"


def shell(lines, command, **env):
    """What a command prints in a shell that has read the lines."""
    script = "\n".join([*lines, command])
    values = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_TERMINAL_PROMPT": "0"} | env
    return subprocess.run(["sh", "-c", script], env=values, capture_output=True, text=True, timeout=60)


def clone(folder, origin):
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    subprocess.run(["git", "-C", str(folder), "remote", "add", "origin", origin], check=True)
    return folder


def config(folder, *arguments):
    answer = subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, env={"PATH": os.environ["PATH"]}
    )
    return answer.stdout.splitlines()


@pytest.fixture
def token_file(tmp_path):
    path = tmp_path / "a token"
    path.write_text("osm_secret\n")
    return path


@pytest.mark.parametrize("portable", [False, True])
def test_the_lines_hold_no_token_and_set_it_all_the_same(tmp_path, token_file, portable):
    lines = client_environment(Settings(data_dir=tmp_path), url=HERE, token_file=token_file, portable=portable).lines()
    assert "osm_secret" not in "\n".join(lines)
    assert shell(lines, 'echo "$OSMOSIS_TOKEN $OSMOSIS_TOKEN_PLATFORM_URL"').stdout == f"osm_secret {HERE}\n"
    filled = shell(lines, f"echo url={NAMED} | git credential fill")
    assert "password=osm_secret\n" in filled.stdout, filled.stderr


@pytest.mark.parametrize("portable", [False, True])
def test_a_token_for_another_platform_is_not_given_to_git(tmp_path, portable):
    lines = client_environment(Settings(data_dir=tmp_path), url=HERE, portable=portable).lines()
    for asked in (NAMED, HERE, "https://github.com"):
        filled = shell(lines, f"echo url={asked} | git credential fill", OSMOSIS_TOKEN="for-another")
        assert "for-another" not in filled.stdout


def test_the_portable_helper_reads_the_logins_of_the_published_client(tmp_path):
    folder = tmp_path / ".config/osmosis"
    folder.mkdir(parents=True)
    (folder / "credentials.json").write_text(json.dumps({"platforms": {HERE: {"access_token": "stored"}}}))
    lines = ClientEnvironment(HERE, portable=True).lines()
    assert "password=stored\n" in shell(lines, f"echo url={NAMED} | git credential fill", HOME=str(tmp_path)).stdout
    other = ClientEnvironment("http://127.0.0.1:8702", portable=True).lines()
    filled = shell(other, "echo url=http://github.com:8702 | git credential fill", HOME=str(tmp_path))
    assert "stored" not in filled.stdout


def test_nothing_leaves_for_the_real_name_when_the_proxy_is_passed_by():
    lines = ClientEnvironment(HERE).lines()
    done = shell(lines, "git ls-remote https://github.com/lab/lab.git", NO_PROXY="*", no_proxy="*")
    assert done.returncode != 0 and "Failed to connect to github.com port 8701" in done.stderr


@pytest.mark.parametrize(
    ("url", "proxy"),
    [
        ("https://osmosis.example", "https://osmosis.example:443"),
        ("http://127.0.0.1", "http://127.0.0.1:80"),
        ("http://[::1]:8700", "http://[::1]:8700"),
    ],
)
def test_the_proxy_is_named_with_its_port(url, proxy):
    settings = dict(ClientEnvironment(url).git_settings())
    assert [value for key, value in settings.items() if key.endswith(".proxy")] == [proxy]


@pytest.mark.parametrize(
    "origin",
    [f"{HERE}/git/Lab/lab.git", "https://github.com/Lab/lab.git", "git@github.com:Lab/lab.git", f"{HERE}/git/Lab/lab/"],
)
def test_a_clone_is_set_up_once_whatever_its_origin(tmp_path, origin):
    folder = clone(tmp_path / "clone", origin)
    for _ in range(2):
        ClientEnvironment(HERE).write_into(folder)
    assert config(folder, "remote", "get-url", "origin")[0].rstrip("/") == f"{NAMED}/Lab/lab.git"
    assert config(folder, "config", "remote.origin.url") == [origin]
    helpers = config(folder, "config", "--get-all", f"credential.{NAMED}.helper")
    assert helpers[0] == "" and len(helpers) == 2
    elsewhere = ["ls-remote", "--get-url", "https://github.com/other/repo.git"]
    assert config(folder, *elsewhere) == ["https://github.com/other/repo.git"]  # GitHub stays GitHub


@pytest.mark.parametrize("origin", ["https://gitlab.com/a/b/c.git", "http://127.0.0.1:9999/git/lab/lab.git", "/srv/x"])
def test_a_clone_of_somewhere_else_is_left_alone(tmp_path, origin):
    folder = clone(tmp_path / "clone", origin)
    before = (folder / ".git/config").read_bytes()
    with pytest.raises(InvalidRequestError):
        ClientEnvironment(HERE).write_into(folder)
    assert (folder / ".git/config").read_bytes() == before
    with pytest.raises(InvalidRequestError):
        ClientEnvironment(HERE).write_into(tmp_path / "nothing here")


def test_files_that_cannot_be_read_are_named(tmp_path):
    for option in ("token_file", "authority"):
        with pytest.raises(InvalidRequestError, match="no-such-file"):
            client_environment(Settings(data_dir=tmp_path), url=HERE, **{option: tmp_path / "no-such-file"})
    with pytest.raises(InvalidRequestError):
        client_environment(Settings(data_dir=tmp_path), url="ftp://x")


def test_odd_paths_survive_the_shell(tmp_path):
    odd = tmp_path / "it's $HOME; `id`"
    odd.write_text("osm_odd")
    lines = client_environment(Settings(data_dir=tmp_path), url=HERE, token_file=odd).lines()
    assert shell(lines, "echo $OSMOSIS_TOKEN").stdout == "osm_odd\n"
    assert "password=osm_odd" in shell(lines, f"echo url={NAMED} | git credential fill").stdout
    assert shlex.split(lines[0]) == ["export", f"OSMOSIS_PLATFORM_URL={HERE}"]
