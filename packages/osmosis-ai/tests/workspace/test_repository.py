import subprocess
from pathlib import Path

import pytest
from osmosis_ai.errors import ValidationError, WorkspaceRequiredError
from osmosis_ai.workspace.repository import (
    find_origin,
    find_work_tree,
    parse_origin,
    read_git_state,
    read_origin,
    require_directories,
    without_login,
)
from osmosis_cli import make_workspace


def git(cwd: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
    subprocess.run(["git", *identity, *arguments], cwd=cwd, check=True, capture_output=True)


def test_the_work_tree_is_found_from_below(tmp_path: Path):
    root = make_workspace(tmp_path / "w")
    assert find_work_tree(root / "configs" / "eval").samefile(root)


def test_outside_a_work_tree(tmp_path: Path):
    with pytest.raises(WorkspaceRequiredError, match="workspace"):
        find_work_tree(tmp_path)


def test_without_git_the_remedy_is_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(WorkspaceRequiredError, match="install"):
        find_work_tree(tmp_path)


def test_missing_directories_are_all_listed(tmp_path: Path):
    root = make_workspace(tmp_path / "w")
    require_directories(root)
    (root / "data").rmdir()
    (root / "configs" / "training").rmdir()
    (root / "data").write_text("a file is no directory")
    with pytest.raises(ValidationError) as caught:
        require_directories(root)
    assert "- data/" in caught.value.message and "- configs/training/" in caught.value.message
    assert "- rollouts/" not in caught.value.message


@pytest.mark.parametrize(
    ("url", "identity", "shown"),
    [
        ("https://github.com/Acme/Demo-Repo.git", "acme/demo-repo", "https://github.com/Acme/Demo-Repo.git"),
        ("ssh://git@github.com:22/acme/demo", "acme/demo", "ssh://git@github.com:22/acme/demo"),
        ("git@github.com:Acme/Demo.git", "acme/demo", "ssh://git@github.com/Acme/Demo.git"),
        ("https://user:secret@GitHub.com/a/b/?x=1#y", "a/b", "https://GitHub.com/a/b/"),
        ("git://github.com/a/b.c.git", "a/b.c", "git://github.com/a/b.c.git"),
    ],
)
def test_github_origins_have_one_identity(url: str, identity: str, shown: str):
    origin = parse_origin(url)
    assert (origin.identity, origin.remote_url) == (identity, shown)
    assert "secret" not in origin.remote_url


@pytest.mark.parametrize(
    "url",
    [
        "https://gitlab.com/a/b", "https://www.github.com/a/b", "/srv/git/demo.git", "https://github.com/a",
        "https://github.com/a/b/c", "https://github.com/-a/b", "https://github.com/a%2Fb", "https://github.com/a b/c",
        "http://github.com/a/b", "https://github.com:port/a/b", "https://github.com/a/..", "https://github.com/a\\b",
    ],
)  # fmt: skip
def test_other_origins_are_refused(url: str):
    with pytest.raises(ValidationError):
        parse_origin(url)


def test_the_origin_of_a_work_tree(tmp_path: Path):
    assert read_origin(make_workspace(tmp_path / "w")).identity == "acme/demo-repo"
    without = make_workspace(tmp_path / "x", origin=None)
    assert find_origin(without) is None
    with pytest.raises(ValidationError, match="origin"):
        read_origin(without)


def test_git_state(tmp_path: Path):
    root = make_workspace(tmp_path / "w")
    assert read_git_state(tmp_path).head is None
    assert (read_git_state(root).head, read_git_state(root).branch) == (None, "main")
    (root / "a").write_text("1")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "c")
    clean = read_git_state(root)
    assert clean.head is not None and len(clean.head) == 40
    assert (clean.branch, clean.dirty) == ("main", False)
    (root / "a").write_text("2")
    assert read_git_state(root).dirty is True
    git(root, "checkout", "-q", "--detach")
    assert read_git_state(root).branch is None


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://ada:hunter2@git.example/o/r.git", "https://git.example/o/r.git"),
        ("https://ada:hunter2@git.example/o?to=http://b/c", "https://git.example/o"),
        ("https://ada:hun://ter2@git.example/o/r", "https://..."),
        ("https://ada:hun/ter2?@git.example/o/r", "https://..."),
        ("https://git.example?token=hunter2", "https://git.example"),
        ("ada:hunter2@git.example:x://o/r", "git.example:x://o/r"),
        ("git@git.example:o/r.git", "git.example:o/r.git"),
        ("git+https://git.example/o/r#egg=hunter2", "git+https://git.example/o/r"),
        ("file:///home/ada/r", "file:///home/ada/r"),
        ("../r", "../r"),
    ],
)
def test_a_url_is_shown_without_what_opens_it(url: str, shown: str):
    assert without_login(url) == shown
