"""Syncs on both databases: what is found, what is written down, and that hostile repositories are only data."""

import subprocess

import pytest
from osmosis_platform.db.repositories.repositories import RepositoryRepository
from osmosis_platform.db.repositories.rollouts import RolloutRepository
from osmosis_platform.db.repositories.syncs import SyncRepository
from osmosis_platform.db.repositories.workspaces import WorkspaceRepository
from osmosis_platform.errors import InvalidRequestError, MissingError
from osmosis_platform.git import hosting, plumbing, sync
from osmosis_platform.git.sync import resolve, sync_now
from real_git import GIT_ENVIRONMENT, TEMPLATE_ROLLOUTS, git

BOTH = pytest.mark.parametrize("database_url", ["sqlite", "postgresql"], indirect=True)


def commit(path, files, *, branch="main", message="Change", links=(), submodules=(), parent=True):
    """Makes a commit in a bare repository with fast-import, so that any name and mode is possible."""
    stream = [f"commit refs/heads/{branch}\ncommitter Ada <ada@example.com> 1700000000 +0000\n".encode()]
    stream.append(b"data %d\n%s\n" % (len(message.encode()), message.encode()))
    if parent and subprocess.run(
        ["git", "--git-dir", path, "rev-parse", "-q", "--verify", f"refs/heads/{branch}"],
        env=GIT_ENVIRONMENT, capture_output=True,
    ).returncode == 0:  # fmt: skip
        stream.append(f"from refs/heads/{branch}^0\n".encode())
    for name, content in files.items():
        content = content.encode() if isinstance(content, str) else content
        stream.append(f'M 100644 inline "{name}"\n'.encode() + b"data %d\n%s\n" % (len(content), content))
    for name, target in links:
        stream.append(f'M 120000 inline "{name}"\ndata {len(target)}\n{target}\n'.encode())
    for name in submodules:
        stream.append(f'M 160000 {"1" * 40} "{name}"\n'.encode())
    git("--git-dir", path, "fast-import", "--quiet", "--force", input=b"".join(stream))
    return git("--git-dir", path, "rev-parse", f"refs/heads/{branch}")


def found(lab, branch="main"):
    with lab.services.database.read() as work:
        items, _ = RolloutRepository(work).page(lab.workspace_id, lab.repository.id, branch, limit=50, offset=0)
    return {item.name: item for item in items}


def run_sync(lab, trigger="manual"):
    return sync_now(lab.services, lab.workspace_id, lab.repository.id, trigger)


@BOTH
def test_a_new_workspace_has_the_templates_rollouts(lab):
    rollouts = found(lab)
    assert sorted(rollouts) == TEMPLATE_ROLLOUTS
    assert rollouts["multiply-local-loop"].description == "Multiply two numbers with a tool: a plain loop."
    assert rollouts["multiply-local-loop"].repo_full_name == "lab/lab"
    assert rollouts["multiply-local-loop"].commit_sha == lab.branches()["main"]


@BOTH
def test_history_tells_commit_author_message_and_count(lab):
    sha = commit(lab.path, {"rollouts/extra/main.py": "x = 1\n"}, message="Add extra\n\nBody")
    done = run_sync(lab)
    assert (done.status, done.commit_sha, done.branch) == ("success", sha, "main")
    assert done.rollout_count == len(TEMPLATE_ROLLOUTS) + 1
    assert (done.author, done.message) == ("Ada", "Add extra")
    assert done.finished_at >= done.started_at
    with lab.services.database.read() as work:
        history, total = SyncRepository(work).page(lab.workspace_id, lab.repository.id, limit=50, offset=0)
    assert [one.trigger for one in history] == ["manual", "connect"]
    assert total == 2


@BOTH
def test_an_id_outlives_changes_and_a_rollout_that_went_is_inactive(lab):
    before = found(lab)["multiply-local-loop"]
    commit(lab.path, {"rollouts/multiply-local-loop/pyproject.toml": '[project]\ndescription = "New words"\n'})
    run_sync(lab)
    after = found(lab)["multiply-local-loop"]
    assert (after.id, after.created_at, after.description) == (before.id, before.created_at, "New words")
    git("--git-dir", lab.path, "fast-import", "--quiet", "--force", input=(
        "commit refs/heads/main\ncommitter Ada <ada@example.com> 1700000000 +0000\ndata 1\nx\n"
        "from refs/heads/main^0\nD rollouts/multiply-local-loop\n"
    ))  # fmt: skip
    run_sync(lab)
    assert "multiply-local-loop" not in found(lab)
    with lab.services.database.read() as work:
        gone = RolloutRepository(work).find(lab.workspace_id, lab.repository.id, "main", before.id)
    assert gone is not None and gone.active is False


@BOTH
def test_each_branch_has_rollouts_of_its_own(lab):
    commit(lab.path, {"rollouts/only-here/README.md": "# only-here\n\nDoes one\nthing.\n\nMore.\n"}, branch="try/it")
    done = run_sync(lab, "push")
    assert (done.branch, done.rollout_count) == ("try/it", 1)
    assert {name: item.description for name, item in found(lab, "try/it").items()} == {"only-here": "Does one thing."}
    assert "only-here" not in found(lab)
    git("--git-dir", lab.path, "branch", "-D", "try/it")
    run_sync(lab)
    assert found(lab, "try/it") == {}
    assert set(lab.branches()) == {"main"}


def test_links_submodules_and_odd_names_are_not_rollouts(lab, services):
    commit(
        lab.path,
        {
            "rollouts/good/main.py": "",
            "rollouts/with space/main.py": "",
            "rollouts/new\\nline/main.py": "",
            "rollouts/ro_01m8nga39pfvz9m12m8kq0txa9/main.py": "",
            "rollouts/-dash/main.py": "",
            "rollouts/.hidden/main.py": "",
            f"rollouts/{'n' * 200}/main.py": "",
            "rollouts/README.md": "",
        },
        branch="odd",
        links=[("rollouts/link", "/etc"), ("rollouts/good/README.md", "/etc/passwd")],
        submodules=["rollouts/module"],
    )
    done = run_sync(lab)
    assert done.status == "success"
    assert list(found(lab, "odd")) == ["good"]
    assert found(lab, "odd")["good"].description is None


def test_a_branch_without_rollouts_or_with_a_file_there_has_none(lab):
    commit(lab.path, {"README.md": "x"}, branch="bare")
    commit(lab.path, {"rollouts": "a file"}, branch="file")
    commit(lab.path, {}, branch="linked", links=[("rollouts", "../elsewhere")])
    assert run_sync(lab).status == "success"
    assert [found(lab, branch) for branch in ("bare", "file", "linked")] == [{}, {}, {}]


def test_broken_descriptions_are_no_failure(lab):
    commit(
        lab.path,
        {
            "rollouts/a/pyproject.toml": b"\xff\xfe[[[",
            "rollouts/b/pyproject.toml": "[project]\ndescription = 3\n",
            "rollouts/c/README.md": "x\0y " * 400,
            "rollouts/d/pyproject.toml": "a = " + "[" * 20_000,
            "rollouts/e/README.md": "#" * (70 << 10),
            "rollouts/f/README.md": "# Title\n![badge](x)\n\n```\ncode\n```\n",
            "rollouts/g/pyproject.toml": f"[project]\nx = {'9' * 5000}\n",
        },
        branch="broken",
    )
    assert run_sync(lab).status == "success"
    texts = {name: item.description for name, item in found(lab, "broken").items()}
    assert set(texts) == set("abcdefg")
    assert "\0" not in texts["c"] and len(texts["c"]) <= 500
    assert all(texts[name] is None for name in "abdeg")


@BOTH
def test_ten_thousand_branches_are_recorded_and_one_more_is_a_stated_limit(lab):
    head = commit(lab.path, {"rollouts/one/main.py": ""}, branch="one")
    refs = [f"create refs/heads/b{n:05} {head}\n" for n in range(9_998)]
    git("--git-dir", lab.path, "update-ref", "--stdin", input="".join(refs))
    done = run_sync(lab)
    assert done.status == "success"
    assert len(lab.branches()) == 10_000
    assert set(found(lab, "b09997")) == {"one"}
    git("--git-dir", lab.path, "update-ref", "refs/heads/one-more", head)
    failed = run_sync(lab)
    assert (failed.status, failed.error_code) == ("failed", "TOO_MANY_BRANCHES")
    assert "10000 branches" in failed.error_message


def test_too_many_rollouts_are_a_stated_limit(lab):
    commit(lab.path, {f"rollouts/r{n}/a": "" for n in range(501)}, branch="many")
    failed = run_sync(lab)
    assert (failed.status, failed.error_code) == ("failed", "TOO_MANY_ROLLOUTS")


@BOTH
def test_a_poll_that_finds_nothing_new_leaves_no_trace(lab):
    run_sync(lab, "poll")
    with lab.services.database.read() as work:
        assert SyncRepository(work).page(lab.workspace_id, lab.repository.id, limit=9, offset=0)[1] == 1


@BOTH
def test_a_sync_that_was_killed_is_told_as_failed_by_the_next(lab):
    with lab.services.database.write() as work:
        dead = SyncRepository(work).add(lab.workspace_id, lab.repository.id, "push", status="syncing")
    run_sync(lab)
    with lab.services.database.read() as work:
        told = SyncRepository(work).get(lab.workspace_id, dead.id)
    assert (told.status, told.error_code) == ("failed", "SYNC_INTERRUPTED")


def test_an_unnoted_push_is_found_when_disk_and_rows_are_reconciled(lab):
    sha = commit(lab.path, {"x": "y"})
    assert hosting.reconcile(lab.services) == 1
    assert lab.branches()["main"] == sha
    assert hosting.reconcile(lab.services) == 0


def test_a_used_repository_that_is_gone_is_an_error_and_is_not_made_anew(lab):
    lab.path.rename(lab.path.with_suffix(".away"))
    failed = run_sync(lab)
    assert (failed.status, failed.error_code) == ("failed", "REPOSITORY_LOST")
    assert not lab.path.exists()


@BOTH
def test_names_of_hosted_repositories_do_not_clash(lab, services):
    with services.database.write() as work:
        from osmosis_platform.db.repositories.workspaces import WorkspaceRepository

        other = WorkspaceRepository(work).add("Lab!", created_by=lab.users["owner"])
        made = hosting.create_hosted(services, work, other.id, "Lab!", lab.users["owner"])
    assert made.identity == "lab-2/lab-2"
    assert hosting.hosted_name("Ünï cødé") == "n-c-d"
    assert hosting.hosted_name("日本") == "workspace"


IDENTITIES = (
    "lab/lab",
    "Lab/LAB",
    "127.0.0.1:8700/git/lab/lab",
    "osmosis.example/base/git/lab/lab.git",
    "[::1]:8700/git/lab/lab",
)


@BOTH
def test_every_form_of_an_identity_finds_the_workspace(lab, services):
    with services.database.read() as work:
        seen = WorkspaceRepository(work).seen_by_connected
        for identity in IDENTITIES:
            (mine,) = seen(lab.users["viewer"], identity)
            assert (mine.name, mine.role, mine.repository_id) == ("lab", "viewer", lab.repository.id), identity
            assert seen(lab.users["stranger"], identity) == []


def test_an_identity_of_another_host_is_only_itself(lab, services):
    with services.database.write() as work:
        RepositoryRepository(work).change(
            lab.workspace_id, lab.repository.id, {"kind": "remote", "identity": "git.example:8443/team/lab"}
        )
    with services.database.read() as work:
        seen = WorkspaceRepository(work).seen_by_connected
        assert seen(lab.users["owner"], "git.example:8443/team/lab")
        for other in ("team/lab", "git.example/team/lab", "lab/lab", "git.example:8443/git/team/lab"):
            assert seen(lab.users["owner"], other) == []


def test_a_branch_a_commit_or_nothing_resolve_to_a_commit(lab, services):
    first = lab.branches()["main"]
    second = commit(lab.path, {"a": "b"})  # pushed and not synced: resolving syncs first
    assert resolve(services, lab.workspace_id).commit_sha == second
    assert resolve(services, lab.workspace_id, branch="main").branch == "main"
    by_commit = resolve(services, lab.workspace_id, commit_sha=first[:7].upper())
    assert (by_commit.commit_sha, by_commit.branch) == (first, None)
    assert by_commit.tree_sha == git("--git-dir", lab.path, "rev-parse", f"{first}^{{tree}}")


@pytest.mark.parametrize(
    ("words", "error", "code"),
    [
        ({"branch": "nope"}, MissingError, "BRANCH_NOT_FOUND"),
        ({"branch": "--all"}, MissingError, "BRANCH_NOT_FOUND"),
        ({"commit_sha": "0123456789"}, MissingError, "COMMIT_NOT_FOUND"),
        ({"commit_sha": "HEAD"}, InvalidRequestError, "VALIDATION"),
        ({"commit_sha": "abc"}, InvalidRequestError, "VALIDATION"),
        ({"branch": "main", "commit_sha": "0123456789"}, InvalidRequestError, "VALIDATION"),
    ],
)
def test_what_resolves_to_nothing_says_why(lab, services, words, error, code):
    with pytest.raises(error) as raised:
        resolve(services, lab.workspace_id, **words)
    assert raised.value.error_code == code


def test_a_commit_named_by_a_tree_or_blob_id_is_not_found(lab, services):
    tree = git("--git-dir", lab.path, "rev-parse", "main^{tree}")
    with pytest.raises(MissingError):
        resolve(services, lab.workspace_id, commit_sha=tree)


def test_several_commits_of_one_prefix_are_ambiguous(lab, services, monkeypatch):
    monkeypatch.setattr(plumbing, "matching_commits", lambda _path, _prefix: ["a" * 40, "a" * 39 + "b"])
    with pytest.raises(InvalidRequestError) as raised:
        sync._find_commit(lab.path, lab.repository, "aaaaaaa")
    assert raised.value.error_code == "COMMIT_AMBIGUOUS"
