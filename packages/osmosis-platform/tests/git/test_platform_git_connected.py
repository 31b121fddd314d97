"""A workspace that follows a remote, with a whole platform: connected, told by a webhook, found by the poll."""

import hashlib
import hmac
import json
import time

import pytest
from git_host import TOKEN, GitHost
from platform_process import PlatformProcess
from real_git import Server


@pytest.fixture
def host(tmp_path):
    return GitHost(tmp_path)


@pytest.fixture
def remote(host):
    server = Server(host)
    yield server
    server.stop()


@pytest.fixture
def platform(tmp_path):
    env = {"OSMOSIS_PLATFORM_ALLOW_PRIVATE_REMOTES": "true", "OSMOSIS_PLATFORM_GIT_POLL_S": "10"}
    with PlatformProcess(tmp_path / "data", env=env) as running:
        yield running


def test_pushes_elsewhere_arrive_by_webhook_and_by_poll_and_the_token_stays_secret(platform, host, remote):
    place = "/api/v1/workspaces/lab/repository"
    with platform.client() as owner:
        url = f"{remote.url}/team/app.git"
        made = owner.post(f"{place}/connect", json={"url": url, "token": TOKEN}).json()
        platform.settle()
        assert rollouts(platform) == {"theirs"}
        [workspace] = platform.get("/api/cli/workspaces")["workspaces"]
        assert workspace["connected_repo"]["clone_url"] == url

        host.commit("rollouts/told/main.py", "y = 2\n")
        body = json.dumps({"ref": "refs/heads/trunk"}).encode()
        hook = made["webhook_url"].removeprefix(platform.url)
        for signature, status in (("0" * 64, 401), (signed(made["webhook_secret"], body), 202)):
            headers = {"X-GitHub-Event": "push", "X-Hub-Signature-256": f"sha256={signature}", "Authorization": ""}
            assert owner.post(hook, content=body, headers=headers).status_code == status
        platform.settle()
        assert rollouts(platform) == {"theirs", "told"}

        host.commit("rollouts/polled/main.py", "z = 3\n")
        deadline = time.monotonic() + 40
        while "polled" not in rollouts(platform) and time.monotonic() < deadline:
            time.sleep(0.5)
        assert rollouts(platform) == {"theirs", "told", "polled"}
        triggers = [sync["trigger"] for sync in owner.get(f"{place}/syncs").json()["syncs"]]
        assert triggers == ["poll", "webhook", "connect"]
    for file in [*platform.data_dir.rglob("*"), platform.log]:
        assert not file.is_file() or TOKEN.encode() not in file.read_bytes(), file


def rollouts(platform):
    return {one["name"] for one in platform.get("/api/cli/rollouts")["rollouts"]}


def signed(secret, body):
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
