"""A user's machine with one client, the published 0.3.8 or ours, before a platform of some kind: what the walks of both share."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from certificates import self_signed
from osmosis_cli import OSMOSIS, Terminal, environment
from platform_process import PlatformProcess
from postgres_server import PostgresServer
from published import VENV, needs_published
from s3_server import S3Server

PUBLISHED = VENV / "bin/osmosis"
ROWS = [{"user_prompt": f"{n} + {n}?", "ground_truth": str(2 * n)} for n in range(12)]
PART_BYTES = {"sqlite-files": 1024, "postgresql-s3": 5 << 20, "tls": 1024}  # S3 takes none smaller
_count = count()


def both_clients(kind: str) -> list[Any]:
    """Parameters of a fixture `setup`: a kind of platform with each client."""
    return [
        pytest.param((kind, OSMOSIS), id=f"ours-{kind}"),
        pytest.param((kind, PUBLISHED), id=f"published-{kind}", marks=needs_published),
    ]


@contextmanager
def platforms_of(make_folder: Callable[[str], Path]) -> Generator[Callable[[str], PlatformProcess]]:
    """Bootstrapped platforms, each started when first needed: an owner, a workspace, its repository, a token."""
    with ExitStack() as stack:

        @cache
        def start(kind: str) -> PlatformProcess:
            directory = make_folder(kind)
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
