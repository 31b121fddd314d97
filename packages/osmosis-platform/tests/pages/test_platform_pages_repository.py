"""The pages of the repository: connecting a remote over https and ssh, testing it, its webhook, syncs, and back again."""

import hashlib
import hmac
import re

import pytest
from osmosis_platform.db.repositories.repositories import RepositoryRepository
from osmosis_platform.db.repositories.syncs import SyncRepository
from osmosis_platform.db.repositories.users import UserRepository
from osmosis_platform.db.repositories.workspaces import WorkspaceRepository
from osmosis_platform.identity.tokens import issue_token
from real_git import Server

GIT = "/difference/integrations/git"


@pytest.fixture
def services(services):
    """The platform of an administrator who allows private networks."""
    object.__setattr__(services, "settings", services.settings.model_copy(update={"allow_private_remotes": True}))
    services.vault.check(services.database)  # as every start of the platform does
    return services


@pytest.fixture
def remote(ada, app, services):
    """Somebody else's repository over http, which wants a token: this platform's own, of another workspace."""
    ada.submit("/workspaces", name="other")
    with services.database.write() as work:
        user = UserRepository(work).by_email("ada@example.com")
        token = issue_token(work, user.id, kind="personal", name="t", scopes=["git:read"], expires_at=None)
    server = Server(app)
    yield f"{server.url}/git/other/other.git", token.secret
    server.stop()


def actions(browser):
    entries = browser.get("/api/v1/workspaces/difference/audit.ndjson").text
    return re.findall(r'"action": "(repository\.\w+)"', entries)


def test_a_remote_over_https_is_tried_connected_and_left(ada, remote):
    url, token = remote
    refused = ada.submit(f"{GIT}/connect", url=url, token="wrong-token", decision="test")
    assert refused.status_code == 400 and "refuses the credential" in refused.text and "wrong-token" not in refused.text
    tried = ada.submit(f"{GIT}/connect", url=url, token=token, decision="test")
    assert "The remote answers" in tried.text and url in tried.text and token not in tried.text
    assert "Hosted by this platform" in ada.get(GIT).text  # trying changed nothing

    made = ada.submit(f"{GIT}/connect", url=url, token=token, decision="connect")
    assert made.status_code == 200 and token not in made.text
    secret = re.search(r"<code>([\w-]{43})</code>", made.text)[1]
    hook = re.search(r"http://[^<]+(/api/v1/webhooks/git/re_\w+)", made.text)[1]
    signature = hmac.new(secret.encode(), b"{}", hashlib.sha256).hexdigest()
    assert ada.post(hook, content=b"{}", headers={"x-hub-signature-256": f"sha256={signature}"}).status_code == 202
    shown = ada.get(GIT).text
    assert secret not in shown and token not in shown and "access token" in shown and "The connection was made" in shown
    assert "The remote answers" in ada.submit(f"{GIT}/test").text

    fresh = ada.submit(f"{GIT}/webhook").text
    assert re.search(r"<code>([\w-]{43})</code>", fresh)[1] != secret
    assert ada.post(hook, content=b"{}", headers={"x-hub-signature-256": f"sha256={signature}"}).status_code == 401
    assert ada.submit(f"{GIT}/change", token="another-token").headers["location"].endswith("?done=saved")
    assert "refuses the credential" in ada.submit(f"{GIT}/test").text
    assert ada.submit(f"{GIT}/disconnect").headers["location"].endswith("?done=disconnected")
    assert "Hosted by this platform" in ada.get(GIT).text
    assert ada.submit(f"{GIT}/disconnect").status_code == 409
    assert set(actions(ada)) >= {
        "repository.connect",
        "repository.webhook",
        "repository.change",
        "repository.disconnect",
    }


def test_a_remote_over_ssh_shows_the_key_to_add_there(ada):
    tried = ada.submit(f"{GIT}/connect", url="git@localhost:team/app.git", decision="test")
    assert tried.status_code == 400 and "once it is connected" in tried.text
    made = ada.submit(f"{GIT}/connect", url="git@localhost:team/app.git", decision="connect")
    assert "ssh-ed25519 " in made.text and "PRIVATE" not in made.text and "/api/v1/webhooks/git/" in made.text
    again = ada.submit(f"{GIT}/connect", url="git@localhost:team/app.git", decision="connect")
    assert again.status_code == 409 and "already" in again.text


def test_a_host_is_known_by_the_keys_that_were_given_and_then_by_others(ada):
    first = "AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"
    given = {"url": "git@127.0.0.1:team/app.git", "decision": "connect"}
    refused = ada.submit(f"{GIT}/connect", **given, known_hosts="no key")
    assert "ssh-keyscan 127.0.0.1" in refused.text
    made = ada.submit(f"{GIT}/connect", **given, known_hosts=f"127.0.0.1 ssh-ed25519 {first}\r\n")
    assert "ssh-ed25519 SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU" in made.text
    refused = ada.submit(f"{GIT}/change", known_hosts="no key")
    assert refused.status_code == 400 and "There is no host key in it" in refused.text
    ada.submit(f"{GIT}/change", known_hosts=f"127.0.0.1 ssh-ed25519 {first[:-4]}AAAA")
    shown = ada.get(GIT).text
    assert "SHA256:+DiY3" not in shown and "ssh-ed25519 SHA256:" in shown


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"url": ""}, "Write the address"),
        ({"url": "ftp://host/a/b"}, "cannot be used"),
        ({"url": "https://ada:secret-word@host/a/b.git"}, "credentials"),
        ({"url": "http://169.254.169.254/a/b.git"}, "does not connect to"),
        ({"url": "https://host.invalid/a/b.git"}, "does not resolve"),
        ({"url": "git@localhost:a/b.git", "token": "t0ken"}, "deploy key"),
        ({"url": "https://localhost/a/b.git", "token": "two words"}, "one line"),
        ({"url": "https://localhost/a/b.git", "username": "no spaces"}, "does not fit"),
    ],
    ids=lambda value: value.get("url") if isinstance(value, dict) else None,
)
def test_what_cannot_be_connected_comes_back_with_its_reason(ada, form, words):
    for decision in ("connect", "test"):
        answer = ada.submit(f"{GIT}/connect", decision=decision, **form)
        assert answer.status_code in (400, 409) and words in answer.text
        assert "t0ken" not in answer.text and "Error: " in answer.text
    assert "Hosted by this platform" in ada.get(GIT).text


def test_members_sync_and_only_managers_connect(ada, grace):
    assert grace.submit(f"{GIT}/sync").headers["location"].endswith("?done=sync")
    for place, fields in [("connect", {"url": "git@localhost:a/b.git"}), ("test", {}), ("webhook", {}), ("change", {}),
                          ("disconnect", {})]:  # fmt: skip
        assert grace.submit(f"{GIT}/{place}", **fields).status_code == 403
        assert ada.post(f"{GIT}/{place}", data=fields).status_code == 403  # without the mark of our pages
    shown = grace.get(GIT).text
    assert "Sync now" in shown and "Connect a remote" not in shown and "Disconnect" not in shown


def test_a_sync_that_failed_says_why(ada, services):
    with services.database.write() as work:
        place = WorkspaceRepository(work).by_name("difference").id
        found = RepositoryRepository(work).find_connected(place)
        sync = SyncRepository(work).add(place, found.id, "poll", status="syncing")
        wrong = {"status": "failed", "error_code": "REMOTE_DENIED", "error_message": "it refuses the <b>credential</b>"}
        SyncRepository(work).change(place, sync.id, wrong)
    shown = ada.get(f"{GIT}/syncs/{sync.id}").text
    assert "REMOTE_DENIED" in shown and "&lt;b&gt;credential" in shown
    assert "it refuses the" in ada.get(f"{GIT}/syncs").text
    assert ada.get(f"{GIT}/syncs/sy_nothing").status_code == 404


def test_a_hosted_repository_is_renamed_and_a_branch_must_exist(ada):
    assert "no branch" in ada.submit(f"{GIT}/change", default_branch="nope").text
    assert ada.submit(f"{GIT}/change", default_branch="", full_name="team/app").status_code == 303
    assert "git/team/app.git" in ada.get("/difference").text
