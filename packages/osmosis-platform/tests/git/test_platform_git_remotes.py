"""Connected remotes, against a real git server on loopback: what is fetched, with which credential, and what is refused."""

import ipaddress
import os
import subprocess
from pathlib import Path

import pytest
from certificates import self_signed
from git_host import TOKEN, GitHost
from osmosis_platform.db.repositories.repositories import RepositoryRepository
from osmosis_platform.errors import InvalidRequestError, UnavailableError
from osmosis_platform.git import address, hosting, remote
from osmosis_platform.git.address import AddressRefusedError, objection, pin
from osmosis_platform.git.credentials import Credential, handed, new_deploy_key, seal_credential, ssh_command
from osmosis_platform.git.remote import parse_remote
from osmosis_platform.git.sync import resolve, sync_now
from osmosis_platform.ids import new_id
from osmosis_platform.settings import Settings
from real_git import Server, git


@pytest.fixture
def host(tmp_path):
    return GitHost(tmp_path)


@pytest.fixture
def remote_server(host):
    server = Server(host)
    yield server
    server.stop()


@pytest.fixture
def private(services):
    """The platform of an administrator who allows private networks."""
    object.__setattr__(services, "settings", services.settings.model_copy(update={"allow_private_remotes": True}))
    services.vault.check(services.database)  # as every start of the platform does
    return services


def connect(services, lab, url, *, token=TOKEN, **values):
    repository_id = new_id("re")
    with services.database.write() as work:
        repositories = RepositoryRepository(work)
        repositories.change(lab.workspace_id, lab.repository.id, {"disconnected_at": work.clock()})
        parsed = parse_remote(url, services.settings)
        row = {"id": repository_id, "kind": "remote", "full_name": parsed.full_name, "identity": parsed.identity}
        row |= {"remote_url": parsed.url, "created_by": lab.users["owner"], **values}
        if token:
            credential = Credential("token", token)
            row |= seal_credential(services.vault, work, lab.workspace_id, repository_id, credential)
        return repositories.add(lab.workspace_id, row)


def test_a_remote_is_mirrored_with_its_token_and_default_branch(private, lab, remote_server, host):
    connected = connect(private, lab, f"{remote_server.url}/team/app.git")
    done = sync_now(private, lab.workspace_id, connected.id, "connect")
    assert (done.status, done.error_message, done.branch, done.rollout_count) == ("success", None, "trunk", 1)
    moved = host.commit("rollouts/more/main.py", "y = 2\n")
    assert resolve(private, lab.workspace_id).commit_sha == moved  # synced before use
    stored = hosting.place(private.settings, connected.id)
    assert TOKEN not in (stored / "config").read_text()
    for file in private.settings.data_dir.rglob("*"):
        assert not file.is_file() or TOKEN.encode() not in file.read_bytes(), file


def test_a_branch_that_went_and_a_forced_push_are_followed(private, lab, remote_server, host):
    connected = connect(private, lab, f"{remote_server.url}/team/app.git")
    host.commit("a", "b", branch="topic/x")
    sync_now(private, lab.workspace_id, connected.id, "manual")
    git("--git-dir", host.path, "branch", "-D", "topic/x")
    git("--git-dir", host.path, "update-ref", "-d", "refs/heads/trunk")
    sha = host.commit("rollouts/new/main.py", "z")
    host.commit("c", "d", branch="topic")  # a branch where a folder of branches was
    sync_now(private, lab.workspace_id, connected.id, "manual")
    with private.database.read() as work:
        branches = RepositoryRepository(work).branches(lab.workspace_id, connected.id)
    assert set(branches) == {"trunk", "topic"} and branches["trunk"] == sha


@pytest.mark.parametrize(
    ("path", "token", "code"),
    [
        ("team/app.git", "wrong", "REMOTE_DENIED"),
        ("team/app.git", None, "REMOTE_DENIED"),
        ("team/other.git", TOKEN, "REMOTE_NOT_FOUND"),
        ("moved/app.git", TOKEN, "REMOTE_REDIRECTS"),
    ],
)
def test_a_remote_that_refuses_is_a_stated_failure(private, lab, remote_server, host, path, token, code):
    connected = connect(private, lab, f"{remote_server.url}/{path}", token=token)
    done = sync_now(private, lab.workspace_id, connected.id, "manual")
    assert (done.status, done.error_code) == ("failed", code), done.error_message
    assert TOKEN not in done.error_message
    assert not any(seen.startswith("/team/app.git") for seen in host.seen) or path.startswith("team/app")


def test_nobody_listening_is_unreachable(private, lab):
    connected = connect(private, lab, "http://127.0.0.1:1/team/app.git")
    done = sync_now(private, lab.workspace_id, connected.id, "manual")
    assert (done.status, done.error_code) == ("failed", "REMOTE_UNREACHABLE")


def test_a_remote_over_the_size_limit_is_refused(private, lab, remote_server, host):
    host.commit("large", os.urandom(600_000).hex())
    object.__setattr__(private, "settings", private.settings.model_copy(update={"max_push_bytes": 200_000}))
    connected = connect(private, lab, f"{remote_server.url}/team/app.git")
    done = sync_now(private, lab.workspace_id, connected.id, "manual")
    assert (done.status, done.error_code) == ("failed", "REMOTE_TOO_LARGE"), done.error_message


def test_a_private_remote_is_refused_unless_allowed(private, lab, remote_server, host):
    connected = connect(private, lab, f"{remote_server.url}/team/app.git")
    host.seen.clear()
    with pytest.raises(AddressRefusedError):
        pin("127.0.0.1", remote_server.port, allow_private=False)
    strict = private.settings.model_copy(update={"allow_private_remotes": False})
    object.__setattr__(private, "settings", strict)
    done = sync_now(private, lab.workspace_id, connected.id, "manual")
    assert done.status == "failed" and done.error_code in {"REMOTE_URL_INVALID", "ADDRESS_REFUSED"}
    assert host.seen == []


def test_a_name_is_resolved_once_and_git_goes_to_that_address(private, lab, remote_server, host, monkeypatch):
    """The name does not exist at all: only the pinned answer can lead git to the server."""
    answers = [(2, 1, 6, "", ("127.0.0.1", remote_server.port))]
    monkeypatch.setattr(address.socket, "getaddrinfo", lambda *_args, **_named: answers)
    connected = connect(private, lab, f"http://git.nowhere.invalid:{remote_server.port}/team/app.git")
    assert sync_now(private, lab.workspace_id, connected.id, "manual").status == "success"


def test_https_is_checked_against_the_administrators_authority(private, lab, host, tmp_path, monkeypatch):
    certificate, key = self_signed(tmp_path)
    server = Server(host, certificate=certificate, key=key)
    try:
        connected = connect(private, lab, f"{server.url}/team/app.git")
        refused = sync_now(private, lab.workspace_id, connected.id, "manual")
        assert (refused.status, refused.error_code) == ("failed", "REMOTE_UNREACHABLE")
        assert "certificate" in refused.error_message
        monkeypatch.setenv("GIT_SSL_CAINFO", str(certificate))
        assert sync_now(private, lab.workspace_id, connected.id, "manual").status == "success"
    finally:
        server.stop()


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc", "/srv/repo", "ext::sh -c id", "git://example.com/a/b", "http://example.com/a/b",
        "https://user:secret@example.com/a/b", "https://token@example.com/a/b", "https://example.com/a/b?x=1",
        "https://example.com/", "https://example.com/../../etc", "https://example.com/a%2fb/c", "https:///a/b",
        "ssh://-oProxyCommand=id@example.com/a/b", "ssh://-oProxyCommand=id/a/b", "git@-oProxyCommand=id:a/b",
        "https://exa mple.com/a/b", "https://example.com/a\n/b", "https://example.com:99999/a/b", "",
    ],
)  # fmt: skip
def test_urls_that_are_no_remote_are_refused(url):
    with pytest.raises(InvalidRequestError) as raised:
        parse_remote(url, Settings())
    assert raised.value.error_code == "REMOTE_URL_INVALID"
    assert "secret" not in raised.value.message


@pytest.mark.parametrize(
    ("url", "identity", "stored"),
    [
        ("https://github.com/Acme/Lab.git", "acme/lab", "https://github.com/Acme/Lab.git"),
        ("git@github.com:Acme/Lab.git", "acme/lab", "ssh://git@github.com/Acme/Lab.git"),
        ("https://git.example:8443/Team/x", "git.example:8443/team/x", "https://git.example:8443/Team/x"),
        ("ssh://git@git.example:2222/t/x.git", "git.example:2222/t/x", "ssh://git@git.example:2222/t/x.git"),
    ],
)
def test_a_url_gives_the_identity_that_clients_send(url, identity, stored):
    parsed = parse_remote(url, Settings())
    assert (parsed.identity, parsed.url) == (identity, stored)


@pytest.mark.parametrize(
    ("text", "private_is_fine"),
    [
        ("127.0.0.1", True), ("10.1.2.3", True), ("192.168.0.1", True), ("100.64.0.1", True), ("::1", True), ("fd00::1", True),
        ("::ffff:10.0.0.1", True), ("169.254.169.254", False), ("fe80::1", False), ("fd00:ec2::254", False),
        ("::ffff:169.254.169.254", False), ("64:ff9b::a9fe:a9fe", False), ("2002:a9fe:a9fe::", False), ("0.0.0.0", False),
        ("224.0.0.1", False), ("::", False), ("::127.0.0.1", True), ("::a9fe:a9fe", False), ("fec0::1", True),
        ("::ffff:0:10.0.0.1", True), ("::ffff:0:a9fe:a9fe", False), ("64:ff9b:1::a9fe:a9fe", False), ("5f00::1", True),
    ],
)  # fmt: skip
def test_addresses_inside_are_refused_and_metadata_always(text, private_is_fine):
    at = ipaddress.ip_address(text)
    assert objection(at, allow_private=False)
    assert (objection(at, allow_private=True) is None) == private_is_fine


def test_public_addresses_are_fine():
    for text in ("1.1.1.1", "2606:4700::1111", "64:ff9b::101:101"):
        assert objection(ipaddress.ip_address(text), allow_private=False) is None


def test_one_bad_address_among_good_ones_refuses_the_name(monkeypatch):
    answers = [(2, 1, 6, "", ("1.1.1.1", 443)), (2, 1, 6, "", ("127.0.0.1", 443))]
    monkeypatch.setattr(address.socket, "getaddrinfo", lambda *_args, **_named: answers)
    with pytest.raises(AddressRefusedError):
        pin("two-faced.example", 443, allow_private=False)


def test_a_name_that_does_not_resolve_is_unreachable():
    with pytest.raises(UnavailableError) as raised:
        pin("nowhere.invalid", 443, allow_private=False)
    assert raised.value.error_code == "REMOTE_UNREACHABLE"


def test_a_deploy_key_is_one_that_ssh_takes_from_memory():
    private_key, public = new_deploy_key("osmosis-x")
    credential = Credential("deploy_key", private_key)
    with handed(credential, is_ssh=True, host="git.example", address="1.1.1.1", known_hosts=None) as access:
        line = access.environment["GIT_SSH_COMMAND"]
        assert private_key not in line
        path = next(part for part in line.split() if part.startswith("IdentityFile=")).removeprefix("IdentityFile=")
        shown = subprocess.run(["ssh-keygen", "-y", "-f", path], capture_output=True, text=True, timeout=20)
    assert shown.stdout.split()[:2] == public.split()[:2], shown.stderr
    assert not Path(path).exists()


def test_ssh_is_told_the_pinned_address_and_nothing_of_the_machine(tmp_path):
    line = ssh_command("/k", host="git.example", address="203.0.113.7", hosts=tmp_path / "h", is_known=False)
    asked = subprocess.run(f"{line} -G git@git.example", shell=True, capture_output=True, text=True, timeout=20)
    facts = dict(row.split(" ", 1) for row in asked.stdout.splitlines() if " " in row)
    assert facts["hostname"] == "203.0.113.7"
    assert facts["hostkeyalias"] == "git.example"
    assert facts["batchmode"] == "yes"
    assert facts["identityagent"] == "none"
    assert facts["stricthostkeychecking"] in {"accept-new", "ask"}
    assert facts["identityfile"] == "/k"


def test_what_git_says_becomes_a_code_without_the_secret():
    parsed = parse_remote("https://github.com/a/b", Settings())
    error = remote._translated(parsed, f"fatal: Authentication failed for {TOKEN}", TOKEN)
    assert error.error_code == "REMOTE_DENIED" and TOKEN not in error.message
