"""Connected remotes over ssh, against a real sshd: the deploy key, and the key that the host is known by."""

import threading

import pytest
from fastapi.testclient import TestClient
from osmosis_platform.api.app import create_app
from osmosis_platform.db.repositories.audit import AuditRepository
from osmosis_platform.db.repositories.repositories import RepositoryRepository
from osmosis_platform.errors import InvalidRequestError
from osmosis_platform.git import hosting
from osmosis_platform.git.host_keys import check_host_keys, fingerprints
from osmosis_platform.git.sync import sync_now
from real_git import git
from ssh_server import SshServer, needs_sshd

pytestmark = needs_sshd
ED25519 = "AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"


@pytest.fixture(scope="module")
def sshd(tmp_path_factory):
    server = SshServer(tmp_path_factory.mktemp("ssh") / "sshd")
    yield server
    server.stop()


@pytest.fixture
def private(services):
    """The platform of an administrator who allows private networks."""
    settings = services.settings.model_copy(update={"allow_private_remotes": True})
    object.__setattr__(services, "settings", settings)
    services.vault.check(services.database)
    return services


@pytest.fixture
def theirs(tmp_path):
    path = tmp_path / "app.git"
    git("init", "-q", "--bare", "-b", "trunk", path)
    content = "x = 1\n"
    git("--git-dir", path, "fast-import", "--quiet", input=(
        "commit refs/heads/trunk\ncommitter Bo <bo@example.com> 1700000000 +0000\ndata 1\nx\n"
        f"M 100644 inline rollouts/theirs/main.py\ndata {len(content)}\n{content}\n"
    ))  # fmt: skip
    return path


@pytest.fixture
def api(private, lab):
    """Calls the repository's routes as the owner."""
    client = TestClient(create_app(private), raise_server_exceptions=False)

    def call(method, path="", body=None, status=200):
        headers = {"Authorization": f"Bearer {lab.tokens['owner']}"}
        answer = client.request(method, f"/api/v1/workspaces/lab/repository{path}", json=body, headers=headers)
        assert answer.status_code == status, answer.text
        return answer.json()

    return call


def connect(api, sshd, theirs, **more):
    shown = api("POST", "/connect", {"url": sshd.url(theirs), **more}, status=201)
    assert shown["credential_kind"] == "deploy_key"
    return shown


def sync(services, lab, shown):
    return sync_now(services, lab.workspace_id, shown["id"], "manual")


def test_the_key_is_added_there_and_the_first_host_key_is_kept_and_shown(private, lab, api, sshd, theirs):
    shown = connect(api, sshd, theirs)
    assert shown["host_keys"] == []
    refused = sync(private, lab, shown)
    assert (refused.status, refused.error_code) == ("failed", "REMOTE_DENIED"), refused.error_message
    # seen before the key was added, so that both can be compared and done in one go
    assert api("GET")["host_keys"] == [f"ssh-ed25519 {sshd.fingerprint()}"]
    sshd.let_in(shown["deploy_public_key"])
    done = sync(private, lab, shown)
    assert (done.status, done.branch, done.rollout_count) == ("success", "trunk", 1), done.error_message
    with private.database.read() as work:
        entries = AuditRepository(work).page(lab.workspace_id)
    [entry] = [one for one in entries if one.action == "repository.host_key"]
    assert entry.details == {"host": "127.0.0.1", "host_keys": [f"ssh-ed25519 {sshd.fingerprint()}"]}
    for file in private.settings.data_dir.rglob("*"):
        assert not file.is_file() or b"OPENSSH PRIVATE KEY" not in file.read_bytes(), file


def test_another_host_key_is_refused_until_an_administrator_gives_it(private, lab, api, sshd, theirs):
    shown = connect(api, sshd, theirs)
    sshd.let_in(shown["deploy_public_key"])
    assert sync(private, lab, shown).status == "success"
    before = sshd.fingerprint()
    sshd.change_host_key()
    refused = sync(private, lab, shown)
    assert (refused.status, refused.error_code) == ("failed", "REMOTE_HOST_KEY"), refused.error_message
    assert "known_hosts" in refused.error_message
    assert api("GET")["host_keys"] == [f"ssh-ed25519 {before}"]  # what it shows now is not learnt
    api("PATCH", body={"known_hosts": "git.example ssh-ed25519 nonsense"}, status=400)
    changed = api("PATCH", body={"known_hosts": sshd.known_hosts()})
    assert changed["host_keys"] == [f"ssh-ed25519 {sshd.fingerprint()}"]
    assert sync(private, lab, shown).status == "success"


def test_a_host_key_given_at_the_start_is_the_only_one_taken(private, lab, api, sshd, theirs):
    shown = connect(api, sshd, theirs, known_hosts=f"[127.0.0.1]:{sshd.port} ssh-ed25519 {ED25519}")
    sshd.let_in(shown["deploy_public_key"])
    refused = sync(private, lab, shown)
    assert (refused.status, refused.error_code) == ("failed", "REMOTE_HOST_KEY"), refused.error_message
    assert not any("Accepted publickey" in line for line in (sshd.folder / "log").read_text().splitlines()[-3:])


def test_a_missing_repository_and_a_dead_host_are_named(private, lab, api, sshd, theirs, tmp_path):
    shown = connect(api, sshd, tmp_path / "none.git")
    sshd.let_in(shown["deploy_public_key"])
    assert sync(private, lab, shown).error_code == "REMOTE_NOT_FOUND"
    sshd.stop()
    try:
        assert sync(private, lab, shown).error_code == "REMOTE_UNREACHABLE"
    finally:
        sshd.change_host_key()


def test_syncs_at_once_share_no_key(private, lab, api, sshd, theirs):
    shown = connect(api, sshd, theirs)
    sshd.let_in(shown["deploy_public_key"])
    results = []
    threads = [threading.Thread(target=lambda: results.append(sync(private, lab, shown).status)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == ["success"] * 3
    assert (hosting.place(private.settings, shown["id"]) / "config").read_text().count("key") == 0


def test_fingerprints_are_those_of_ssh_keygen(sshd):
    text = f"# a comment\n\n{sshd.known_hosts()}|1|hash|hash= ssh-ed25519 {ED25519}\nhalf a line\nx ssh-rsa {ED25519}\n"
    assert fingerprints(text) == [
        f"ssh-ed25519 {sshd.fingerprint()}",
        "ssh-ed25519 SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU",
    ]
    assert fingerprints(None) == []
    check_host_keys(None, "git.example", 22)
    with pytest.raises(InvalidRequestError, match=r"ssh-keyscan -p 2222 git\.example"):
        check_host_keys("nonsense", "git.example", 2222)


def test_host_keys_of_other_remotes_are_no_field(private, lab, api):
    assert "ssh" in api("PATCH", body={"known_hosts": f"x ssh-ed25519 {ED25519}"}, status=400)["message"]
    with private.database.read() as work:
        assert RepositoryRepository(work).find_connected(lab.workspace_id).known_hosts is None
