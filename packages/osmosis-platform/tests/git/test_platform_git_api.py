"""Rollouts, the repository and webhooks over HTTP, with a real worker behind them; and creation killed at named places."""

import hashlib
import hmac
import os
import subprocess
import sys
import threading
import time

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from osmosis_platform.api.app import create_app
from osmosis_platform.db.repositories.audit import AuditRepository
from osmosis_platform.db.repositories.jobs import JobRepository
from osmosis_platform.db.repositories.repositories import RepositoryIndex
from osmosis_platform.db.tables.git import repositories
from osmosis_platform.domain.job import PLATFORM
from osmosis_platform.git import hosting, plumbing
from osmosis_platform.jobs.queue import enqueue
from osmosis_platform.jobs.worker import Worker
from real_git import TEMPLATE_ROLLOUTS, git

REPOSITORY = "/api/v1/workspaces/lab/repository"


# Most of it is the same on every database; what writes in new ways is tried on both.
BOTH = pytest.mark.parametrize("database_url", ["sqlite", "postgresql"], indirect=True)


@pytest.fixture
def client(services):
    services.vault.check(services.database)  # as every start of the platform does
    object.__setattr__(services, "settings", services.settings.model_copy(update={"allow_private_remotes": True}))
    return TestClient(create_app(services))


@pytest.fixture
def worker(services):
    stop = threading.Event()
    thread = threading.Thread(target=Worker(services, queues=("cpu",)).run, args=(stop,), daemon=True)
    thread.start()
    yield
    stop.set()
    thread.join(20)


def bearer(lab, who, **more):
    return {"Authorization": f"Bearer {lab.tokens[who]}", **more}


def rollouts(client, lab, who="viewer", scope="lab/lab", **query):
    return client.get("/api/cli/rollouts", params=query, headers=bearer(lab, who, **{"X-Osmosis-Git": scope}))


def settled(client, lab, wanted=("success", "failed")):
    """The newest sync, once it has ended."""
    deadline = time.monotonic() + 30
    while True:
        newest = client.get(f"{REPOSITORY}/syncs", headers=bearer(lab, "viewer")).json()["syncs"][0]
        if newest["status"] in wanted:
            return newest
        assert time.monotonic() < deadline, newest
        time.sleep(0.05)


@BOTH
def test_rollouts_are_listed_as_the_client_reads_them(client, lab):
    body = rollouts(client, lab).json()
    assert (body["total_count"], body["has_more"], body["next_offset"]) == (len(TEMPLATE_ROLLOUTS), False, None)
    first = body["rollouts"][0]
    assert first["name"] == "lookup-local-loop" and first["repo_full_name"] == "lab/lab"
    assert first["last_synced_commit_sha"] == lab.branches()["main"]
    assert first["created_at"].endswith("Z") and first["last_synced_at"].endswith("Z")
    page = rollouts(client, lab, limit=len(TEMPLATE_ROLLOUTS), offset=2).json()
    assert [one["name"] for one in page["rollouts"]] == TEMPLATE_ROLLOUTS[2:]
    assert rollouts(client, lab, limit=1).json()["next_offset"] == 1


def test_our_own_clients_identity_of_a_clone_leads_to_the_workspace(client, lab):
    assert rollouts(client, lab, scope="127.0.0.1:8700/git/lab/lab").json()["total_count"] == len(TEMPLATE_ROLLOUTS)


def test_a_page_that_cannot_be_is_a_400(client, lab):
    for query in [{"limit": 51}, {"limit": 0}, {"offset": -1}, {"limit": "x"}, {"branch": ""}]:
        assert rollouts(client, lab, **query).status_code == 400, query


def test_a_branch_that_is_not_there_is_named(client, lab):
    answer = rollouts(client, lab, branch="no/such branch")
    assert (answer.status_code, answer.json()["code"]) == (404, "BRANCH_NOT_FOUND")


def test_strangers_see_no_rollouts(client, lab):
    assert rollouts(client, lab, "stranger").status_code in (403, 404)


def test_one_rollout_by_name_or_id(client, lab):
    place = "/api/v1/workspaces/lab/rollouts"
    listed = client.get(place, headers=bearer(lab, "viewer")).json()["rollouts"][0]
    for key in (listed["name"], listed["id"]):
        shown = client.get(f"{place}/{key}", headers=bearer(lab, "viewer")).json()
        assert (shown["id"], shown["branch"], shown["active"]) == (listed["id"], "main", True)
    assert client.get(f"{place}/nope", headers=bearer(lab, "viewer")).status_code == 404


def test_a_hosted_repository_is_shown_with_its_clone_url(client, lab, services):
    shown = client.get(REPOSITORY, headers=bearer(lab, "viewer")).json()
    assert shown["clone_url"] == f"{services.settings.base_url}/git/lab/lab.git"
    assert (shown["kind"], shown["identity"], shown["webhook_url"]) == ("hosted", "lab/lab", None)
    branches = client.get(f"{REPOSITORY}/branches", headers=bearer(lab, "viewer")).json()["branches"]
    assert branches == [{"name": "main", "commit_sha": lab.branches()["main"], "is_default": True}]


def test_a_sync_by_hand_goes_through_the_queue(client, lab, worker):
    begun = client.post(f"{REPOSITORY}/sync", headers=bearer(lab, "member"))
    assert (begun.status_code, begun.json()["status"]) == (202, "pending")
    ended = settled(client, lab)
    assert (ended["id"], ended["status"], ended["rollout_count"]) == (
        begun.json()["id"],
        "success",
        len(TEMPLATE_ROLLOUTS),
    )
    assert client.post(f"{REPOSITORY}/sync", headers=bearer(lab, "viewer")).status_code == 403


@BOTH
def test_a_remote_is_connected_signalled_and_disconnected(client, lab, worker, services, tmp_path):
    url = "http://127.0.0.1:1/team/app.git"  # nobody is there: what is tested is the way, not the fetch
    answer = client.post(
        f"{REPOSITORY}/connect", headers=bearer(lab, "admin"), json={"url": url, "token": "tok-123456789"}
    )
    assert answer.status_code == 201, answer.text
    connected = answer.json()
    assert (connected["kind"], connected["identity"]) == ("remote", "127.0.0.1:1/team/app")
    assert "tok-123456789" not in answer.text
    assert settled(client, lab)["error_code"] == "REMOTE_UNREACHABLE"
    assert rollouts(client, lab, scope="lab/lab").status_code == 404

    hook = connected["webhook_url"].removeprefix(services.settings.base_url)
    body = b'{"ref": "refs/heads/main"}'
    signature = hmac.new(connected["webhook_secret"].encode(), body, hashlib.sha256).hexdigest()
    for headers in (
        {"X-GitHub-Event": "push", "X-Hub-Signature-256": f"sha256={signature}"},
        {"X-Gitea-Event": "push", "X-Gitea-Signature": signature},
        {"X-Gitlab-Event": "Push Hook", "X-Gitlab-Token": connected["webhook_secret"]},
    ):
        taken = client.post(hook, content=body, headers=headers)
        assert (taken.status_code, taken.json()["status"]) == (202, "queued")
    ping = client.post(
        hook, content=body, headers={"X-GitHub-Event": "ping", "X-Hub-Signature-256": f"sha256={signature}"}
    )
    assert ping.json()["status"] == "ignored"
    for headers in (
        {},
        {"X-Hub-Signature-256": "sha256=" + "0" * 64},
        {"X-Hub-Signature-256": signature[:-1]},
        {"X-Gitlab-Token": "wrong"},
        {"X-Hub-Signature-256": "", "X-Gitlab-Token": connected["webhook_secret"]},
    ):
        refused = client.post(hook, content=body, headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (401, "WEBHOOK_SIGNATURE"), headers
    assert client.post(hook, content=body + b" ", headers={"X-Gitea-Signature": signature}).status_code == 401
    unknown = "/api/v1/webhooks/git/re_" + "0" * 26
    assert client.post(unknown, content=body).json()["code"] == "WEBHOOK_SIGNATURE"

    renewed = client.post(f"{REPOSITORY}/webhook", headers=bearer(lab, "admin")).json()["webhook_secret"]
    assert renewed != connected["webhook_secret"]
    assert client.post(hook, content=body, headers={"X-Gitea-Signature": signature}).status_code == 401

    back = client.post(f"{REPOSITORY}/disconnect", headers=bearer(lab, "admin")).json()
    assert (back["kind"], back["full_name"]) == ("hosted", "lab/lab")
    assert settled(client, lab)["status"] == "success"
    assert rollouts(client, lab).json()["total_count"] == len(TEMPLATE_ROLLOUTS)
    assert client.post(hook, content=body, headers={"X-Gitlab-Token": renewed}).status_code == 401
    with services.database.read() as work:
        actions = [entry.action for entry in AuditRepository(work).page(lab.workspace_id)]
    assert {"repository.connect", "repository.webhook", "repository.disconnect"} <= set(actions)


def test_another_remote_takes_the_place_of_one_whose_secrets_are_forgotten(client, lab, services):
    first, _ = (
        client.post(
            f"{REPOSITORY}/connect",
            headers=bearer(lab, "owner"),
            json={"url": f"http://127.0.0.1:1/team/{name}.git", "token": "tok-123456789"},
        ).json()
        for name in ("one", "two")
    )
    hook = first["webhook_url"].removeprefix(services.settings.base_url)
    assert client.post(hook, headers={"X-Gitlab-Token": first["webhook_secret"]}).status_code == 401
    with services.database.read() as work:
        row = sa.select(repositories).where(repositories.c.id == hook.rpartition("/")[2])
        left = work.execute(row).one()
    assert left.disconnected_at is not None
    assert (left.credential_kind, left.credential_ciphertext, left.webhook_ciphertext) == ("none", None, None)


def test_an_ssh_remote_gets_a_deploy_key(client, lab):
    wanted = {"url": "git@127.0.0.1:team/app.git"}
    answer = client.post(f"{REPOSITORY}/connect", headers=bearer(lab, "owner"), json=wanted).json()
    assert answer["credential_kind"] == "deploy_key"
    assert answer["deploy_public_key"].startswith("ssh-ed25519 ")
    assert "PRIVATE" not in str(answer)


@pytest.mark.parametrize(
    ("who", "body", "status"),
    [
        ("member", {"url": "https://127.0.0.1/a/b"}, 403),
        ("owner", {"url": "ftp://127.0.0.1/a/b"}, 400),
        ("owner", {"url": "https://169.254.169.254/a/b"}, 400),
        ("owner", {"url": "https://127.0.0.1/a/b", "token": "two\nlines"}, 400),
        ("owner", {"url": "git@127.0.0.1:a/b", "token": "x"}, 400),
        ("owner", {"url": "https://127.0.0.1/a/b", "username": "--x y"}, 400),
        ("owner", {"url": "https://1.1.1.1/a/b", "default_branch": "a\0b"}, 400),
        ("owner", {"url": "https://1.1.1.1/a/b", "default_branch": "-x"}, 400),
        ("owner", {"url": 3}, 400),
        ("owner", {}, 400),
    ],
)
def test_a_connection_that_cannot_be_changes_nothing(client, lab, who, body, status):
    assert client.post(f"{REPOSITORY}/connect", headers=bearer(lab, who), json=body).status_code == status
    assert client.get(REPOSITORY, headers=bearer(lab, "viewer")).json()["kind"] == "hosted"


@BOTH
def test_a_hosted_repository_is_renamed_and_the_new_name_leads_to_it(client, lab):
    changed = client.patch(REPOSITORY, headers=bearer(lab, "owner"), json={"full_name": "Acme/Agents"}).json()
    assert (changed["full_name"], changed["identity"]) == ("Acme/Agents", "acme/agents")
    assert rollouts(client, lab, scope="acme/agents").json()["total_count"] == len(TEMPLATE_ROLLOUTS)
    assert rollouts(client, lab, scope="lab/lab").status_code == 404
    token = ("any", lab.tokens["viewer"])
    place = "/git/{}.git/info/refs?service=git-upload-pack"
    assert client.get(place.format("acme/agents"), auth=token).status_code == 200
    assert client.get(place.format("lab/Agents"), auth=token).status_code == 200
    for name in ("a", "a/b/c", "../x", "a/..", "a/b.git", "a b/c", "-a/b"):
        refused = client.patch(REPOSITORY, headers=bearer(lab, "owner"), json={"full_name": name})
        assert refused.status_code == 400, name


def test_the_default_branch_must_exist(client, lab, worker):
    missing = client.patch(REPOSITORY, headers=bearer(lab, "owner"), json={"default_branch": "next"})
    assert (missing.status_code, missing.json()["code"]) == (404, "BRANCH_NOT_FOUND")
    git("--git-dir", lab.path, "branch", "next", "main")
    client.post(f"{REPOSITORY}/sync", headers=bearer(lab, "member"))
    settled(client, lab)
    changed = client.patch(REPOSITORY, headers=bearer(lab, "owner"), json={"default_branch": "next"}).json()
    assert changed["default_branch"] == "next"
    settled(client, lab)
    assert git("--git-dir", lab.path, "symbolic-ref", "HEAD") == "refs/heads/next"
    assert rollouts(client, lab).json()["total_count"] == len(TEMPLATE_ROLLOUTS)


@BOTH
def test_the_poll_notes_what_a_kill_left_unnoted_and_queues_remotes(client, lab, worker, services):
    head = git("--git-dir", lab.path, "commit-tree", "main^{tree}", "-p", "main", "-m", "Unnoted")
    git("--git-dir", lab.path, "update-ref", "refs/heads/main", head)
    with services.database.write() as work:
        job_id = enqueue(work, PLATFORM, "repository.poll", {})
    deadline = time.monotonic() + 30
    while True:
        with services.database.read() as work:
            job = JobRepository(work).get(PLATFORM, job_id)
        if job.finished_at is not None:
            break
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert (job.status, job.error, job.result) == ("finished", None, {"reconciled": 1, "queued": 0})
    assert lab.branches()["main"] == head


CREATE = """
import sys
from pathlib import Path
from osmosis_platform.db.database import Database
from osmosis_platform.db.repositories.workspaces import WorkspaceRepository
from osmosis_platform.git.hosting import create_hosted
from osmosis_platform.services import Services
from osmosis_platform.settings import Settings

data, url, user = sys.argv[1:]
services = Services(Settings(data_dir=Path(data)), Database(url))
with services.database.write() as work:
    made = WorkspaceRepository(work).add("killed", created_by=user)
    create_hosted(services, work, made.id, "killed", user)
"""


@BOTH
@pytest.mark.parametrize("place", ["git.before-create", "git.before-rename"])
def test_a_creation_that_was_killed_is_finished_by_whoever_comes_next(services, lab, database_url, place):
    arguments = [sys.executable, "-c", CREATE, str(services.settings.data_dir), database_url, lab.users["owner"]]
    done = subprocess.run(arguments, env={**os.environ, "OSMOSIS_CRASH_AT": place}, capture_output=True, timeout=60)
    assert done.returncode == -9, done.stderr
    with services.database.read() as work:
        (row,) = [one for one in RepositoryIndex(work).connected() if one.full_name == "killed/killed"]
    assert row.last_synced_at is None
    assert not hosting.place(services.settings, row.id).exists()
    assert hosting.reconcile(services) == 1
    assert set(plumbing.branches(hosting.place(services.settings, row.id))) == {"main"}
    with services.database.read() as work:
        (row,) = [one for one in RepositoryIndex(work).connected() if one.full_name == "killed/killed"]
    assert row.last_synced_at is not None


def test_a_creation_that_is_rolled_back_leaves_nothing(services, lab):
    before = sorted(hosting.root(services.settings).glob("*.git"))
    with pytest.raises(ZeroDivisionError), services.database.write() as work:
        from osmosis_platform.db.repositories.workspaces import WorkspaceRepository

        made = WorkspaceRepository(work).add("never", created_by=lab.users["owner"])
        hosting.create_hosted(services, work, made.id, "never", lab.users["owner"])
        raise ZeroDivisionError
    assert sorted(hosting.root(services.settings).glob("*.git")) == before
