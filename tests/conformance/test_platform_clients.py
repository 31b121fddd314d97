"""Both clients, the published 0.3.8 unchanged and ours, against a real platform: one machine's files, and PostgreSQL with S3.

Each test is a walk of one command family as a user would make it, with the client as a subprocess and real Git.
"""

import json
import re
import subprocess
import time
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest
from osmosis_cli import OSMOSIS, Terminal, environment
from platform_process import PlatformProcess
from postgres_server import PostgresServer
from published import VENV, needs_published
from s3_server import S3Server

PUBLISHED = VENV / "bin/osmosis"
SETUPS = [
    pytest.param(("sqlite-files", OSMOSIS), id="ours-sqlite-files"),
    pytest.param(("sqlite-files", PUBLISHED), id="published-sqlite-files", marks=needs_published),
    pytest.param(("postgresql-s3", PUBLISHED), id="published-postgresql-s3", marks=needs_published),
]
ROWS = [{"user_prompt": f"{n} + {n}?", "ground_truth": str(2 * n)} for n in range(12)]


@pytest.fixture(scope="module")
def platforms(tmp_path_factory):
    """Bootstrapped platforms, each started when first needed: an owner, a workspace, its repository, a token."""
    with ExitStack() as stack:

        @cache
        def start(kind):
            directory = tmp_path_factory.mktemp(kind)
            if kind == "sqlite-files":
                return stack.enter_context(PlatformProcess(directory / "data"))
            server, store = PostgresServer(), S3Server()
            stack.callback(server.close)
            stack.callback(store.close)
            database = server.create_database("platform")
            return stack.enter_context(PlatformProcess(directory / "data", database_url=database, env=store.settings()))

        yield start


@pytest.fixture(params=SETUPS)
def setup(request):
    return request.param


@pytest.fixture
def client(setup):
    return setup[1]


@pytest.fixture
def platform(setup, platforms):
    return platforms(setup[0])


class Machine:
    """A user's machine: a home, a clone of the workspace made the way `client-env` says, one client."""

    def __init__(self, binary: Path, platform: PlatformProcess, home: Path) -> None:
        self.binary, self.platform, self.home = binary, platform, home
        self.env = {**environment(home), **platform.environ()}
        self.clone = home / "clone"

    def git(self, *arguments: str, cwd: Path | None = None) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=cwd or self.clone, env=self.env, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def make_clone(self) -> None:
        name = self.platform.workspace
        self.git("clone", "-q", f"https://github.com/{name}/{name}.git", str(self.clone), cwd=self.home)

    def run(self, *arguments: str, cwd: Path | None = None, status: int = 0, stdin: str = ""):
        done = subprocess.run(
            [self.binary, "--json", *arguments],
            cwd=cwd or self.clone, env=self.env, input=stdin, capture_output=True, text=True, timeout=90,
        )  # fmt: skip
        assert done.returncode == status, (arguments, done.stdout, done.stderr)
        if status:
            return json.loads(done.stderr.strip().splitlines()[-1])["error"]
        return json.loads(done.stdout) if done.stdout else {}


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


def test_datasets_from_upload_to_overwrite(machine):
    name = f"sums-{machine.binary.parent.parent.name}".replace(".", "-").lower()
    file = machine.clone / "data" / f"{name}.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    uploaded = machine.run("dataset", "upload", str(file), "--yes")
    assert uploaded["status"] == "success"
    machine.platform.settle()
    shown = machine.run("dataset", "info", name)["data"]
    assert (shown["status"], shown["row_count"], shown["file_size"]) == ("uploaded", 12, file.stat().st_size)
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
    name = f"walk-{machine.binary.parent.parent.name}".replace(".", "-").lower()
    machine.run("rollout", "init", name)
    machine.git("config", "user.email", "ada@example.test")
    machine.git("config", "user.name", "Ada")
    machine.git("checkout", "-q", "-b", f"branch-{name}")
    machine.git("add", "-A")
    machine.git("commit", "-q", "-m", "Add a rollout")
    machine.git("push", "-q", "origin", f"branch-{name}")
    machine.platform.settle()
    commit = machine.git("rev-parse", "HEAD")
    listed = machine.run("rollout", "list", "--branch", f"branch-{name}")["items"]
    assert commit in [item["last_synced_commit_sha"] for item in listed if item["name"] == name]
    assert name not in [item["name"] for item in machine.run("rollout", "list")["items"]]


def test_a_workspace_is_named_outside_of_any_clone(machine):
    items = machine.run("--workspace", machine.platform.workspace, "dataset", "list", cwd=machine.home)
    assert items["workspace"]["name"] == machine.platform.workspace
    refused = machine.run("--workspace", "no-such-workspace", "dataset", "list", cwd=machine.home, status=1)
    assert refused["details"]["platform_code"] == "WORKSPACE_SCOPE_HEADER_ACCESS_DENIED"


def test_a_device_login_is_approved_in_a_browser(client, platform, tmp_path):
    machine = Machine(client, platform, tmp_path)
    env = {name: value for name, value in machine.env.items() if not name.startswith("OSMOSIS_TOKEN")}
    env |= {"OSMOSIS_TOKEN_STORE": "file", "BROWSER": "true"}
    with Terminal("auth", "login", cwd=tmp_path, env=env, binary=client) as terminal:
        terminal.expect("/device")
        found = None
        while found is None:
            terminal.read()
            found = re.search(r"\b([A-Z0-9]{4}-[A-Z0-9]{4})\b", terminal.text)
        platform.approve_device(found[1])
        terminal.expect(platform.email, timeout=60)
    machine.env = env
    assert machine.run("auth", "whoami", cwd=tmp_path)["data"]["effective_source"] == "file"


def test_the_wizard_ends_with_a_clone(client, platform, tmp_path):
    """Enter takes what the wizard offers: the folder, HTTPS, training; only the task is typed."""
    env = {**environment(tmp_path), **platform.environ(), "OSMOSIS_TOKEN_STORE": "file", "BROWSER": "true"}
    with Terminal("quickstart", cwd=tmp_path, env=env, binary=client) as terminal:
        deadline = time.monotonic() + 90
        while terminal.process.poll() is None and time.monotonic() < deadline:
            try:
                terminal.read(1.5)
            except AssertionError:  # quiet: it waits for an answer
                asks_for_task = re.search(r"(your task|One sentence).{0,40}$", terminal.text, re.DOTALL)
                terminal.send("Add two numbers\r" if asks_for_task else "\r")
        assert terminal.process.poll() == 0, terminal.text
    clone = tmp_path / platform.workspace
    assert sorted(path.name for path in (clone / "rollouts").iterdir()) >= ["lookup-local-loop"]
    origin = subprocess.check_output(["git", "config", "remote.origin.url"], cwd=clone, text=True).strip()
    assert origin == f"https://github.com/{platform.workspace}/{platform.workspace}.git"
    [workspace] = platform.get("/api/cli/workspaces")["workspaces"]
    assert platform.get("/api/cli/quickstart", organizationId=workspace["id"])["completed"] is True
