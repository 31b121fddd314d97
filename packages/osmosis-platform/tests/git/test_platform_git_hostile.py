"""Repositories made to break a sync: names and files that git takes. They are data, and nobody else's poll stops."""

from secrets import token_hex

import pytest
from osmosis_platform.git import hosting, plumbing
from osmosis_platform.git.sync import is_behind, sync_now
from real_git import git

BOTH = pytest.mark.parametrize("database_url", ["sqlite", "postgresql"], indirect=True)
NAMES = ["a\u2028b", "a\x85b", "\u202egnp.exe", "x" * 200, "HEAD", "refs/heads/main", "-x", "';drop--", "a%00b", "ü/ü"]


def branch_at(lab, name, *, raw=None):
    """Makes a branch as a push makes it, whatever its name."""
    sha = git("--git-dir", lab.path, "rev-parse", "refs/heads/main")
    line = b"create refs/heads/" + (raw or name.encode()) + b"\0" + sha.encode() + b"\0"
    git("--git-dir", lab.path, "update-ref", "-z", "--stdin", input=line)
    return sha


@BOTH
def test_any_name_that_git_takes_is_a_branch(lab):
    expected = {name: branch_at(lab, name) for name in NAMES}
    done = sync_now(lab.services, lab.workspace_id, lab.repository.id, "push")
    assert (done.status, done.error_code) == ("success", None)
    assert expected.items() <= lab.branches().items()
    assert not is_behind(lab.services, lab.stored())


@BOTH
def test_a_branch_whose_name_no_index_takes_is_a_stated_limit(lab):
    raw = b"/".join(token_hex(100).encode() for _ in range(15))
    branch_at(lab, "", raw=raw)
    done = sync_now(lab.services, lab.workspace_id, lab.repository.id, "push")
    assert (done.status, done.error_code) == ("failed", "BRANCH_NAME_TOO_LONG")
    git("--git-dir", lab.path, "update-ref", "-z", "--stdin", input=b"delete refs/heads/" + raw + b"\0\0")
    assert sync_now(lab.services, lab.workspace_id, lab.repository.id, "push").status == "success"


def test_one_repository_that_cannot_be_read_does_not_keep_the_poll_from_the_others(lab, services, monkeypatch):
    def broken(_path):
        raise ValueError("not enough values to unpack")

    monkeypatch.setattr(plumbing, "branches", broken)
    assert hosting.reconcile(services) == 0
