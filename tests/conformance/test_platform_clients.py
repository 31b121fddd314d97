"""Both clients, the published 0.3.8 unchanged and ours, against a real platform: one machine's files, and PostgreSQL with S3.

Each test is a walk of one command family as a user would make it, with the client as a subprocess and real Git.
"""

import json
import re
import subprocess
import time
from contextlib import ExitStack
from functools import cache
from itertools import count
from pathlib import Path

import pytest
from certificates import self_signed
from osmosis_cli import OSMOSIS, Terminal, environment
from platform_process import PlatformProcess
from postgres_server import PostgresServer
from published import VENV, needs_published
from s3_server import S3Server

PUBLISHED = VENV / "bin/osmosis"
SETUPS = [
    pytest.param(("sqlite-files", OSMOSIS), id="ours-sqlite-files"),
    pytest.param(("sqlite-files", PUBLISHED), id="published-sqlite-files", marks=needs_published),
    pytest.param(("postgresql-s3", OSMOSIS), id="ours-postgresql-s3"),
    pytest.param(("postgresql-s3", PUBLISHED), id="published-postgresql-s3", marks=needs_published),
]
ON_ONE_MACHINE = SETUPS[:2]
OVER_TLS = [
    pytest.param(("tls", OSMOSIS), id="ours-tls"),
    pytest.param(("tls", PUBLISHED), id="published-tls", marks=needs_published),
]
ROWS = [{"user_prompt": f"{n} + {n}?", "ground_truth": str(2 * n)} for n in range(12)]
PART_BYTES = {"sqlite-files": 1024, "postgresql-s3": 5 << 20, "tls": 1024}  # S3 takes none smaller
_count = count()


@pytest.fixture(scope="module")
def platforms(tmp_path_factory):
    """Bootstrapped platforms, each started when first needed: an owner, a workspace, its repository, a token."""
    with ExitStack() as stack:

        @cache
        def start(kind):
            directory = tmp_path_factory.mktemp(kind)
            env = {"OSMOSIS_PLATFORM_UPLOAD_PART_BYTES": str(PART_BYTES[kind])}
            tls = self_signed(directory) if kind == "tls" else None
            if kind != "postgresql-s3":
                return stack.enter_context(PlatformProcess(directory / "data", env=env, tls=tls))
            server, store = PostgresServer(), S3Server()
            stack.callback(server.close)
            stack.callback(store.close)
            database, env = server.create_database("platform"), env | store.settings()
            return stack.enter_context(PlatformProcess(directory / "data", database_url=database, env=env))

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
    """A user's machine: a home, one client, and the variables of a shell."""

    def __init__(self, binary: Path, platform: PlatformProcess, home: Path, env: dict[str, str] | None = None) -> None:
        self.binary, self.platform, self.home = binary, platform, home
        self.env = {**environment(home), **(platform.environ() if env is None else env)}
        self.clone = home / "clone"
        self.name = binary.parent.parent.name.replace(".", "-").strip("-").lower()

    def git(self, *arguments: str, cwd: Path | None = None) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=cwd or self.clone, env=self.env | {"GIT_TERMINAL_PROMPT": "0"},
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
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

    def take_wizard(self) -> str:
        """`quickstart` without a login: a browser approves it; Enter takes what is offered; only the task is typed."""
        self.env |= {"OSMOSIS_TOKEN_STORE": "file", "BROWSER": "true"}
        approved = False
        with Terminal("quickstart", cwd=self.home, env=self.env, binary=self.binary) as terminal:
            deadline = time.monotonic() + 90
            while terminal.process.poll() is None and time.monotonic() < deadline:
                try:
                    terminal.read(1.5)
                except AssertionError:  # quiet: it waits for an answer
                    asks_for_task = re.search(r"(your task|One sentence).{0,40}$", terminal.text, re.DOTALL)
                    terminal.send("Add two numbers\r" if asks_for_task else "\r")
                code = re.search(r"\b([A-Z0-9]{4}-[A-Z0-9]{4})\b", terminal.text)
                if code and not approved:
                    self.platform.approve_device(code[1])
                    approved = True
            assert terminal.process.poll() == 0, terminal.text
        assert approved
        self.clone = self.home / self.platform.workspace
        return terminal.text

    def push_a_rollout(self) -> str:
        """Makes a rollout on a branch of its own, pushes it with the real Git, and gives the branch."""
        name = f"walk-{next(_count)}"
        self.run("rollout", "init", name)
        self.git("config", "user.email", "ada@example.test")
        self.git("config", "user.name", "Ada")
        self.git("checkout", "-q", "-b", f"branch-{name}")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "Add a rollout")
        self.git("push", "-q", "origin", f"branch-{name}")
        return f"branch-{name}"


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
    uploaded = machine.run("dataset", "upload", str(file), "--yes")
    assert uploaded["status"] == "success"
    machine.platform.settle()
    shown = machine.run("dataset", "info", name)["data"]
    assert (shown["status"], shown["row_count"], shown["file_size"]) == ("uploaded", 12, file.stat().st_size)
    if setup[0] == "sqlite-files":  # its log shows every part
        puts = re.findall(r'"method": "PUT", "path": "/_blob', machine.platform.log.read_text())
        assert len(puts) >= file.stat().st_size / PART_BYTES[setup[0]] > 1
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


@pytest.mark.parametrize("setup", ON_ONE_MACHINE)
def test_the_wizard_logs_in_and_its_clone_works_in_every_shell(client, platform, tmp_path):
    """Ours needs the platform's URL alone; the published client what `client-env` prints. Neither has a token before."""
    is_ours = client == OSMOSIS
    env = {"OSMOSIS_PLATFORM_URL": platform.url} if is_ours else platform.environ(with_token=False)
    machine = Machine(client, platform, tmp_path, env)
    machine.take_wizard()
    assert sorted(path.name for path in (machine.clone / "rollouts").iterdir()) >= ["lookup-local-loop"]
    [workspace] = platform.get("/api/cli/workspaces")["workspaces"]
    assert platform.get("/api/cli/quickstart", organizationId=workspace["id"])["completed"] is True
    stored = json.loads((tmp_path / ".config/osmosis/credentials.json").read_text())["platforms"][platform.url]
    assert stored["access_token"] not in (machine.clone / ".git/config").read_text()

    if not is_ours:
        platform.administer("client-env", "--clone", str(machine.clone))
        platform.administer("client-env", "--clone", str(machine.clone))  # again changes nothing
    machine.env = {**environment(tmp_path), "OSMOSIS_PLATFORM_URL": platform.url}  # a new shell
    assert machine.run("auth", "whoami")["data"]["workspace"]["name"] == platform.workspace
    branch = machine.push_a_rollout()
    machine.git("fetch", "-q", "origin", branch)
    assert machine.run("rollout", "list", "--branch", branch)["items"]


@pytest.mark.parametrize("setup", OVER_TLS[1:])
def test_the_lines_for_another_machine_need_nothing_of_ours_there(client, platform, tmp_path):
    """Here over TLS, with a certificate that nobody trusts before."""
    certificate = platform.data_dir.parent / "cert.pem"
    env = platform.environ("--portable", "--ca-file", str(certificate), with_token=False)
    assert ".venv" not in json.dumps(env)
    machine = Machine(client, platform, tmp_path, env)
    machine.take_wizard()
    branch = machine.push_a_rollout()
    assert machine.run("rollout", "list", "--branch", branch)["items"]


@pytest.mark.parametrize("setup", OVER_TLS)
def test_over_tls_a_certificate_of_ones_own_is_trusted_and_checked(machine):
    assert machine.platform.url.startswith("https://")
    assert machine.run("auth", "whoami")["data"]["workspace"]["role"] == "owner"
    branch = machine.push_a_rollout()
    assert machine.run("rollout", "list", "--branch", branch)["items"]
    file = machine.clone / "data/tls.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS * 10))
    machine.run("dataset", "upload", str(file), "--yes", "--overwrite")
    machine.platform.settle()
    machine.run("dataset", "download", "tls", "-o", str(machine.home / "back.jsonl"))
    assert (machine.home / "back.jsonl").read_bytes() == file.read_bytes()
    for index in range(int(machine.env["GIT_CONFIG_COUNT"])):
        if machine.env[f"GIT_CONFIG_KEY_{index}"].endswith(".proxySSLCAInfo"):
            machine.env[f"GIT_CONFIG_VALUE_{index}"] = "/dev/null"
    with pytest.raises(AssertionError, match="certificate"):
        machine.git("fetch")
