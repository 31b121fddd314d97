"""Logins and remembered clones of the published client 0.3.8 and of ours: either reads what the other wrote."""

import json
import subprocess

import pytest
from osmosis_ai.client.clones import remembered_clone
from osmosis_cli import OSMOSIS, environment
from published import ROOT, VENV, needs_published
from stub_api import Answer, StubApi

pytestmark = needs_published

PUBLISHED = VENV / "bin/osmosis"
ACCOUNT = {
    "user": {"id": "u1", "email": "ada@example.com", "name": None},
    "token_id": "tok_1",
    "expires_at": "2099-01-01T00:00:00Z",
}


def run(binary, *arguments, env):
    done = subprocess.run([binary, "--json", *arguments], env=env, cwd=env["HOME"], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("store", ["file", "keyring"])
@pytest.mark.parametrize(("writer", "reader"), [(OSMOSIS, PUBLISHED), (PUBLISHED, OSMOSIS)], ids=["ours", "published"])
def test_a_login_of_one_client_serves_the_other(tmp_path, writer, reader, store):
    routes = {"GET /api/cli/verify": ACCOUNT, "DELETE /api/cli/tokens/tok_1": Answer(status=204)}
    with StubApi(routes) as stub:
        env = environment(
            tmp_path,
            OSMOSIS_PLATFORM_URL=stub.url,
            OSMOSIS_TOKEN_STORE=store,
            PYTHON_KEYRING_BACKEND="file_keyring.FileKeyring",
            FILE_KEYRING=str(tmp_path / "keyring.json"),
            PYTHONPATH=str(ROOT / "tests/support"),
        )
        assert run(writer, "auth", "login", "--token", "pat-1", env=env)["resource"]["token_store"] == store
        data = run(reader, "auth", "whoami", env=env)["data"]
        assert (data["effective_source"], data["persistent_login"]) == (store, True)
        assert stub.asked[-1].headers["authorization"] == "Bearer pat-1"
        assert run(reader, "auth", "logout", "--yes", env=env)["resource"]["revoked"] is True
    assert not (tmp_path / ".config/osmosis/credentials.json").exists()
    if store == "keyring":
        assert json.loads((tmp_path / "keyring.json").read_text()) == {}


def test_a_clone_the_published_wizard_remembered_is_found(tmp_path, monkeypatch):
    """The file as the published wizard writes it (seen on a pseudo-terminal)."""
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".config/osmosis"
    folder.mkdir(parents=True)
    value = {"version": 1, "platforms": {"https://platform.example": {"ws_1": "/work/clone"}}}
    (folder / "workspace-directories.json").write_text(json.dumps(value))
    assert str(remembered_clone("https://platform.example", "ws_1")) == "/work/clone"
    assert remembered_clone("https://platform.example", "ws_2") is None
