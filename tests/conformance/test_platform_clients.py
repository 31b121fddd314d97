"""Both clients, the published 0.3.8 unchanged and ours, against a real platform: one machine's files, and PostgreSQL with S3.

Each test is a walk of one command family as a user would make it, with the client as a subprocess and real Git.
"""

import json
import re

import pytest
from client_machine import PART_BYTES, ROWS, Machine, both_clients, platforms_of


@pytest.fixture(scope="module")
def platforms(tmp_path_factory):
    with platforms_of(tmp_path_factory.mktemp) as start:
        yield start


@pytest.fixture(params=both_clients("sqlite-files") + both_clients("postgresql-s3"))
def setup(request):
    return request.param


@pytest.fixture
def client(setup):
    return setup[1]


@pytest.fixture
def platform(setup, platforms):
    return platforms(setup[0])


@pytest.fixture
def machine(client, platform, tmp_path):
    machine = Machine(client, platform, tmp_path)
    machine.make_clone()
    return machine


def test_the_account_is_known_in_and_outside_of_a_clone(machine):
    inside = machine.run("auth", "whoami")["data"]
    assert inside["email"] == machine.platform.email
    assert inside["workspace"]["name"] == machine.platform.workspace
    assert inside["workspace"]["role"] == "owner"
    outside = machine.run("auth", "whoami", cwd=machine.home)["data"]
    assert outside["workspace"] is None


def test_a_saved_token_serves_until_logout_revokes_it(machine):
    token = machine.platform.new_token()
    saved = {name: value for name, value in machine.env.items() if not name.startswith("OSMOSIS_TOKEN")}
    machine.env = {**saved, "OSMOSIS_TOKEN_STORE": "file"}
    machine.run("auth", "login", "--token", token)
    assert machine.run("auth", "whoami")["data"]["persistent_login"] is True
    assert machine.run("auth", "logout", "--yes")["resource"]["revoked"] is True
    machine.env |= {"OSMOSIS_TOKEN": token, "OSMOSIS_TOKEN_PLATFORM_URL": machine.platform.url}
    refused = machine.run("dataset", "list", status=1)
    assert refused["code"] == "AUTH_REQUIRED"
    assert "revoked" in refused["message"].lower()


def test_the_clone_is_a_workspace(machine):
    assert re.fullmatch(r"http://github\.com:\d+/lab/lab\.git", machine.git("remote", "get-url", "origin"))
    assert machine.platform.token not in (machine.clone / ".git/config").read_text()
    checked = machine.run("doctor")
    assert checked["status"] in ("success", "noop")


def test_datasets_from_upload_to_overwrite(setup, machine):
    """The first file is larger than a part, so that it goes in several."""
    name = f"sums-{machine.name}"
    file = machine.clone / "data" / f"{name}.jsonl"
    room = PART_BYTES[setup[0]] // len(ROWS)
    file.write_text("".join(json.dumps(row | {"note": "x" * room}) + "\n" for row in ROWS))
    log, puts = machine.platform.log, '"method": "PUT", "path": "/_blob'
    before = log.read_text().count(puts)
    uploaded = machine.run("dataset", "upload", str(file), "--yes")
    assert uploaded["status"] == "success"
    machine.platform.settle()
    shown = machine.run("dataset", "info", name)["data"]
    assert (shown["status"], shown["row_count"], shown["file_size"]) == ("uploaded", 12, file.stat().st_size)
    if setup[0] == "sqlite-files":  # its log shows every part
        sent = log.read_text().count(puts) - before
        assert sent >= file.stat().st_size / PART_BYTES[setup[0]] > 1
    assert machine.run("dataset", "preview", name, "--rows", "3")["data"]["returned_rows"] == 3
    assert name in [item["file_name"] for item in machine.run("dataset", "list")["items"]]
    logs = machine.run("dataset", "logs", name)["items"]
    assert logs and all(entry["message"] for entry in logs)
    machine.run("dataset", "download", name, "-o", str(machine.home / "back.jsonl"))
    assert (machine.home / "back.jsonl").read_bytes() == file.read_bytes()

    taken = machine.run("dataset", "upload", str(file), "--yes", status=1)
    assert taken["code"] == "CONFLICT"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS[:5]))
    machine.run("dataset", "upload", str(file), "--yes", "--overwrite")
    machine.platform.settle()
    replaced = machine.run("dataset", "info", name)["data"]
    assert (replaced["row_count"], replaced["id"] != shown["id"]) == (5, True)


def test_secrets_of_both_scopes(machine):
    for scope in ("workspace", "personal"):
        machine.env["FROM_HERE"] = "a-very-secret-value"
        machine.run("secret", "set", "WALK_KEY", "--scope", scope, "--env", "FROM_HERE")
    listed = machine.run("secret", "list")["items"]
    assert {item["scope"] for item in listed if item["name"] == "WALK_KEY"} == {"workspace", "personal"}
    assert "a-very-secret-value" not in json.dumps(listed)
    for scope in ("workspace", "personal"):
        machine.run("secret", "delete", "WALK_KEY", "--scope", scope, "--yes")
    assert "WALK_KEY" not in [item["name"] for item in machine.run("secret", "list")["items"]]


def test_a_pushed_rollout_is_listed_on_its_branch(machine):
    branch = machine.push_a_rollout()
    name = branch.removeprefix("branch-")
    machine.platform.settle()
    commit = machine.git("rev-parse", "HEAD")
    listed = machine.run("rollout", "list", "--branch", branch)["items"]
    assert commit in [item["last_synced_commit_sha"] for item in listed if item["name"] == name]
    assert name not in [item["name"] for item in machine.run("rollout", "list")["items"]]


def test_a_workspace_is_named_outside_of_any_clone(machine):
    items = machine.run("--workspace", machine.platform.workspace, "dataset", "list", cwd=machine.home)
    assert items["workspace"]["name"] == machine.platform.workspace
    refused = machine.run("--workspace", "no-such-workspace", "dataset", "list", cwd=machine.home, status=1)
    assert refused["details"]["platform_code"] == "WORKSPACE_SCOPE_HEADER_ACCESS_DENIED"
