import subprocess
from pathlib import Path

import pytest
from osmosis_ai.errors import ValidationError
from osmosis_ai.workspace.source_pin import plan_source


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@example.test", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone whose branch main is pushed and clean."""
    git(tmp_path, "init", "-q", "--bare", "-b", "main", "origin.git")
    folder = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "origin.git", "clone")
    (folder / "file").write_text("1")
    git(folder, "checkout", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "one")
    git(folder, "push", "-q", "-u", "origin", "main")
    return folder


def codes(
    folder: Path, *, branch: str | None = None, commit_sha: str | None = None, upstream: bool | None = None
) -> list[str]:
    plan = plan_source(folder, "acme/lab", branch=branch, commit_sha=commit_sha, upstream=lambda *_: upstream)
    return [notice.code for notice in plan.notices]


def test_a_pushed_and_pinned_tree_has_nothing_to_tell(clone: Path):
    assert codes(clone, branch="main") == []
    assert codes(clone, commit_sha=git(clone, "rev-parse", "HEAD")[:10]) == []


def test_without_a_pin_the_source_may_be_another(clone: Path):
    assert codes(clone) == ["SOURCE_NOT_PINNED"]


def test_changes_and_commits_that_are_not_pushed_are_told(clone: Path):
    (clone / "new").write_text("1")
    assert codes(clone, branch="main") == ["UNCOMMITTED_CHANGES"]
    git(clone, "add", "-A")
    git(clone, "commit", "-q", "-m", "two")
    assert codes(clone, branch="main") == ["UNPUSHED_COMMITS"]
    notice = plan_source(clone, "acme/lab", branch="main", commit_sha=None, upstream=lambda *_: None).notices[0]
    assert notice.message.startswith("1 commit is not pushed to origin/main")


def test_a_branch_that_follows_nothing_and_one_that_is_not_pushed_are_told(clone: Path):
    git(clone, "checkout", "-q", "-b", "side")
    assert codes(clone, branch="side") == ["BRANCH_NOT_FOUND", "NO_UPSTREAM"]


def test_a_repository_without_a_commit_is_no_trouble(tmp_path: Path):
    git(tmp_path, "init", "-q", "-b", "main", "empty")
    plan = plan_source(tmp_path / "empty", "acme/lab", branch="main", commit_sha=None, upstream=lambda *_: None)
    assert plan.notices == ()
    assert plan.notes[0] == "The platform fetches branch main of acme/lab."


@pytest.mark.parametrize(("answer", "found"), [(True, []), (None, ["COMMIT_NOT_FOUND"])])
def test_a_commit_that_is_not_here_is_asked_for_on_github(clone: Path, answer, found):
    assert codes(clone, commit_sha="abcdef1", upstream=answer) == found


def test_a_commit_that_is_certainly_nowhere_is_refused(clone: Path):
    with pytest.raises(ValidationError, match="There is no commit abcdef1 in acme/lab"):
        codes(clone, commit_sha="abcdef1", upstream=False)
    (clone / "file").write_text("2")
    git(clone, "commit", "-q", "-am", "two")
    with pytest.raises(ValidationError, match="push it first"):
        codes(clone, commit_sha=git(clone, "rev-parse", "HEAD"), upstream=False)


def test_a_commit_that_is_only_here_is_no_notice_while_github_is_silent(clone: Path):
    (clone / "file").write_text("2")
    git(clone, "commit", "-q", "-am", "two")
    assert codes(clone, commit_sha=git(clone, "rev-parse", "HEAD")) == ["UNPUSHED_COMMITS"]
