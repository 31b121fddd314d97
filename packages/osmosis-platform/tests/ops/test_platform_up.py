"""`osmosis-platform up` as a process: what it promised survives every kill, and it says what stands in its way."""

import os
import signal
import subprocess
import time
from pathlib import Path

import httpx
import pytest
from platform_process import COMMAND, PlatformProcess


def children_of(pid):
    """Direct children by what they run: the API is forked first."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found]


def is_gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    except FileNotFoundError:
        return True


def wait_until(condition, timeout_s=20):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def set_secret(platform, name):
    with platform.client() as client:
        body = {"name": name, "value": "a value", "scope": "workspace"}
        assert client.post("/api/cli/environment-secrets", json=body).status_code == 200


def secret_names(platform):
    return [item["name"] for item in platform.get("/api/cli/environment-secrets")["environment_secrets"]]


@pytest.fixture
def platform(tmp_path):
    with PlatformProcess(tmp_path / "data") as running:
        yield running


def test_what_was_acknowledged_survives_a_kill_of_everything(platform):
    children = children_of(platform.pid)
    assert len(children) == 2
    set_secret(platform, "BEFORE")
    platform.kill()
    wait_until(lambda: all(is_gone(child) for child in children))
    token = platform.token
    platform.start()
    assert secret_names(platform) == ["BEFORE"]
    assert platform.token == token, "the bootstrap is idempotent"
    assert platform.get("/api/cli/rollouts")["total_count"] > 0


def test_a_child_that_dies_is_started_again(platform):
    for child in children_of(platform.pid):
        os.kill(child, signal.SIGKILL)
        wait_until(lambda child=child: is_gone(child) and len(children_of(platform.pid)) == 2)

    def answers():
        try:
            return httpx.get(f"{platform.url}/readyz", trust_env=False, timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    wait_until(answers)
    set_secret(platform, "AFTER")
    assert platform.stop() == 0


def up(platform, *arguments):
    command = [COMMAND, "up", "--host", "127.0.0.1", *map(str, arguments)]
    done = subprocess.run(command, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr.strip().splitlines()[-1]


def test_what_stands_in_the_way_is_named(platform, tmp_path):
    port = platform.url.rpartition(":")[2]
    status, said = up(platform, "--data-dir", platform.data_dir, "--port", 0)
    assert (status, "ALREADY_RUNNING" in said, str(platform.pid) in said) == (1, True, True)
    status, said = up(platform, "--data-dir", tmp_path / "other", "--port", port)
    assert (status, "PORT_IN_USE" in said) == (1, True)
    (tmp_path / "file").write_text("")
    status, said = up(platform, "--data-dir", tmp_path / "file" / "below", "--port", 0)
    assert (status, "DATA_DIR" in said) == (1, True)
    status, said = up(platform, "--data-dir", tmp_path / "other", "--port", 0, "--bootstrap", "ada@example.test:lab")
    assert (status, "--bootstrap-token-file" in said) == (2, True)


def test_a_bind_beyond_loopback_wants_tls(tmp_path):
    command = [COMMAND, "up", "--host", "0.0.0.0", "--port", "0", "--data-dir", tmp_path / "data"]
    done = subprocess.run(command, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "TLS_REQUIRED" in done.stderr


def test_everything_in_one_process(tmp_path):
    with PlatformProcess(tmp_path / "data", arguments=("--single-process",)) as platform:
        assert children_of(platform.pid) == []
        set_secret(platform, "ONE")
        assert platform.stop() == 0


def test_a_lost_token_file_is_written_anew_and_the_old_token_ends(platform):
    old = platform.token
    platform.stop()
    platform.token_file.unlink()
    platform.start()
    assert platform.token != old
    assert platform.token_file.stat().st_mode & 0o777 == 0o600
    with platform.client(old) as client:
        assert client.get("/api/cli/verify").json()["code"] == "TOKEN_REVOKED"
