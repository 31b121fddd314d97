import json
import os
import subprocess

import pytest
from osmosis_ai.client.credentials import Credential
from osmosis_ai.client.renames import github_token, rename_hint
from osmosis_ai.client.scope import GitScope, find_git_scope, named_scope, resolve_git_scope, resolve_scope
from osmosis_ai.client.session import PlatformClient
from osmosis_ai.errors import OsmosisError, ValidationError, WorkspaceRequiredError
from osmosis_cli import make_workspace
from stub_api import Answer, StubApi


@pytest.fixture(autouse=True)
def no_platform(monkeypatch):
    monkeypatch.delenv("OSMOSIS_PLATFORM_URL", raising=False)


def test_the_scope_is_the_repository_around_or_the_named_workspace(tmp_path, monkeypatch):
    workspace = make_workspace(tmp_path / "ws")
    monkeypatch.chdir(workspace / "data")
    scope = resolve_scope(None)
    assert scope.headers() == {"X-Osmosis-Git": "acme/demo-repo"}
    assert scope.extras() == {
        "git": {"identity": "acme/demo-repo", "remote_url": "https://github.com/Acme/Demo-Repo.git"},
        "workspace_directory": str(workspace.resolve()),
    }
    assert scope.base_directory == workspace.resolve()
    named = resolve_scope(" läb ")
    assert named.headers() == {"X-Osmosis-Workspace": "läb"}
    assert named.extras() == {"workspace": {"name": "läb"}}
    assert named.base_directory == workspace / "data"


def test_a_linked_work_tree_and_a_folder_below_are_the_same_repository(tmp_path):
    workspace = make_workspace(tmp_path / "ws")
    git = ["git", "-C", str(workspace), "-c", "user.name=t", "-c", "user.email=t@example.com"]
    for name in ("rollouts", "configs/training", "configs/eval", "data"):
        (workspace / name / ".gitkeep").touch()
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "c"], check=True)
    subprocess.run([*git, "worktree", "add", "-q", str(tmp_path / "linked")], check=True)
    assert resolve_git_scope(tmp_path / "linked/data").identity == "acme/demo-repo"
    assert resolve_git_scope(tmp_path / "linked").work_tree == (tmp_path / "linked").resolve()


def test_what_is_missing_is_said_in_order(tmp_path):
    with pytest.raises(WorkspaceRequiredError):
        resolve_git_scope(tmp_path)
    subprocess.run(["git", "init", "-q", str(tmp_path / "bare")], check=True)
    with pytest.raises(ValidationError, match="rollouts/"):
        resolve_git_scope(tmp_path / "bare")
    with pytest.raises(ValidationError, match="origin"):
        resolve_git_scope(make_workspace(tmp_path / "no-origin", origin=None))
    assert find_git_scope(tmp_path / "no-origin") is None
    assert find_git_scope(tmp_path) is None


def test_short_forms_of_the_user_are_written_out(tmp_path, monkeypatch):
    (tmp_path / "gitconfig").write_text('[url "git@github.com:"]\n\tinsteadOf = "gh:"\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    assert resolve_git_scope(make_workspace(tmp_path / "ws", origin="gh:Acme/Lab")).identity == "acme/lab"
    with pytest.raises(ValidationError):
        resolve_git_scope(make_workspace(tmp_path / "other", origin="xy:Acme/Lab"))


@pytest.mark.parametrize("platform", [None, "https://platform.osmosis.ai/"])
def test_production_takes_github_only_and_other_platforms_take_every_host(tmp_path, monkeypatch, platform):
    workspace = make_workspace(tmp_path / "ws", origin="https://git.example.com/Team/Lab.git")
    if platform:
        monkeypatch.setenv("OSMOSIS_PLATFORM_URL", platform)
    with pytest.raises(ValidationError, match=r"github\.com"):
        resolve_git_scope(workspace)
    monkeypatch.setenv("OSMOSIS_PLATFORM_URL", "http://127.0.0.1:8080")
    assert resolve_git_scope(workspace).identity == "git.example.com/team/lab"


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "a\x00", "日本", "a\u2028b", "a\x7f"])
def test_names_that_no_header_can_carry_are_refused(name):
    with pytest.raises(ValidationError, match="--workspace"):
        named_scope(name)


def tool(folder, name, text):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """A folder of programs that stand in front of the real ones."""
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    return folder


@pytest.mark.parametrize(
    ("remote", "mended"),
    [
        ("https://github.com/acme/old.git", "https://github.com/Acme/New.git"),
        ("ssh://git@github.com/acme/old.git", "git@github.com:Acme/New.git"),
    ],
)
def test_a_renamed_repository_comes_with_the_command_that_mends_origin(tmp_path, tools, remote, mended):
    answer = json.dumps({"full_name": "Acme/New"})
    tool(tools, "gh", f"[ \"$*\" = 'api repos/acme/old' ] && echo '{answer}'")
    scope = GitScope("acme/old", remote, tmp_path)
    with StubApi({"GET /api/cli/x": Answer({"code": "GIT_REPOSITORY_NOT_CONNECTED", "error": "e"}, 404)}) as stub:
        with PlatformClient(Credential("t", stub.url, "file"), scope, lambda *_: None) as client:
            with pytest.raises(OsmosisError) as caught:
                client.get("/x")
    assert f"git remote set-url origin {mended}" in caught.value.message


def test_no_hint_where_nothing_was_renamed_or_nobody_knows(tmp_path, tools):
    scope = GitScope("acme/old", "https://github.com/acme/old.git", tmp_path)
    for text in ('echo \'{"full_name": "Acme/Old"}\'', "echo nonsense", "echo '[]'", "exit 1"):
        tool(tools, "gh", text)
        assert rename_hint(scope) == ""
    elsewhere = GitScope("git.example.com/a/b", "https://git.example.com/a/b.git", tmp_path)
    tool(tools, "gh", 'echo \'{"full_name": "Acme/New"}\'')
    assert rename_hint(elsewhere) == ""


def test_the_credential_helper_of_git_is_asked_without_a_prompt(tmp_path, tools):
    assert github_token() is None
    tool(tools, "git-credential-mine", "cat >/dev/null; echo username=u; echo password=gh-token")
    (tmp_path / "gitconfig").write_text("[credential]\n\thelper = mine\n")
    assert github_token() == "gh-token"
