"""A platform as users run it: `osmosis-platform up` as a process of its own, bootstrapped, with a client's environment."""

from __future__ import annotations

import os
import re
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import httpx

COMMAND = Path(sys.executable).with_name("osmosis-platform")


class PlatformProcess:
    """A running platform.

    Args:
        data_dir: Its data directory; may hold that of an earlier process.
        database_url: A PostgreSQL; default: SQLite in the data directory.
        env: Further variables.
        arguments: Further flags of `up`.
        tls: Certificate and key.
    """

    email = "ada@example.test"
    workspace = "lab"

    def __init__(
        self, data_dir: Path, *, database_url: str | None = None, env: Mapping[str, str] | None = None,
        arguments: tuple[str, ...] = (), tls: tuple[Path, Path] | None = None,
    ) -> None:  # fmt: skip
        self.data_dir = data_dir
        self.token_file = data_dir.with_name(data_dir.name + ".token")
        self.log = data_dir.with_name(data_dir.name + ".log")
        self.url = ""
        self._arguments = arguments
        self._verify: ssl.SSLContext | bool = True
        if tls is not None:
            self._arguments += ("--tls-cert", str(tls[0]), "--tls-key", str(tls[1]))
            self._verify = ssl.create_default_context(cafile=tls[0])
        self._process: subprocess.Popen[str] | None = None
        self._env = {"PATH": os.environ["PATH"], "HOME": str(data_dir.parent), "LANG": "C.UTF-8", **(env or {})}
        if database_url is not None:
            self._env["OSMOSIS_PLATFORM_DATABASE_URL"] = database_url.replace("postgresql+psycopg://", "postgresql://")

    @property
    def token(self) -> str:
        """The owner's access token."""
        return self.token_file.read_text().strip()

    @property
    def pid(self) -> int:
        """Of the supervisor."""
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def start(self) -> None:
        """Starts it and waits until it says that it is up; keeps its port over restarts."""
        port = self.url.rpartition(":")[2] or "0"
        command = [
            str(COMMAND), "up", "--data-dir", str(self.data_dir), "--host", "127.0.0.1", "--port", port,
            "--bootstrap", f"{self.email}:{self.workspace}", "--bootstrap-token-file", str(self.token_file),
            *self._arguments,
        ]  # fmt: skip
        with self.log.open("a") as log:
            self._process = subprocess.Popen(
                command, env=self._env, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )
        said = ""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said += line
            if found := re.search(r"up at (\S+)", line):
                self.url = found[1]
                return
        raise AssertionError(f"the platform did not start:\n{said}{self.log.read_text()}")

    def stop(self) -> int:
        """Ends it as Ctrl-C does and gives its exit status."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError(f"the platform did not stop:\n{self.log.read_text()[-4000:]}") from None
        return self._process.returncode

    def kill(self) -> None:
        """kill -9 of the supervisor; its children end with it."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        """Stops and starts it on the same data and port."""
        self.stop()
        self.start()

    def client(self, token: str | None = None) -> httpx.Client:
        """An HTTP client of the owner, in the workspace."""
        headers = {"Authorization": f"Bearer {token or self.token}", "X-Osmosis-Workspace": self.workspace}
        return httpx.Client(base_url=self.url, headers=headers, trust_env=False, timeout=30, verify=self._verify)

    def get(self, path: str, **parameters: Any) -> Any:
        """The JSON of a GET by the owner."""
        with self.client() as client:
            answer = client.get(path, params=parameters)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def settle(self, timeout_s: float = 60) -> None:
        """Waits until no job is queued or running."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            jobs = self.get(f"/api/v1/workspaces/{self.workspace}/jobs", limit=50)["jobs"]
            if not [job for job in jobs if job["status"] in ("queued", "running")]:
                return
            time.sleep(0.1)
        raise AssertionError(f"jobs are still open: {jobs}\n{self.log.read_text()[-4000:]}")

    def environ(self, *arguments: str, with_token: bool = True) -> dict[str, str]:
        """What `osmosis-platform client-env` sets in a shell, for a client of the owner or of nobody yet."""
        token = ["--token-file", str(self.token_file)] if with_token else []
        printed = self.administer("client-env", *token, *arguments)
        assert self.token not in printed
        shell = f"{printed}\nenv -0"
        lines = subprocess.run(["sh", "-c", shell], env={"PATH": self._env["PATH"]}, capture_output=True, check=True)
        pairs = [line.split("=", 1) for line in lines.stdout.decode().split("\0") if "=" in line]
        return {name: value for name, value in pairs if name.startswith(("OSMOSIS_", "GIT_CONFIG_", "SSL_"))}

    def new_token(self) -> str:
        """Another access token of the owner."""
        return self.administer("token", "create", self.email).strip()

    def approve_device(self, user_code: str) -> None:
        """Approves a device login as the owner does in a browser: signs in, looks at the page, presses the button."""
        password = "a password of the tests"
        self.administer("user", "set-password", self.email, "--password-stdin", stdin=password)
        with httpx.Client(
            base_url=self.url, trust_env=False, timeout=30, follow_redirects=True, verify=self._verify
        ) as browser:
            self._send_form(browser, "/sign-in", email=self.email, password=password)
            self._send_form(browser, f"/device?code={user_code}", decision="approve", compared="yes")

    @staticmethod
    def _send_form(browser: httpx.Client, path: str, **fields: str) -> None:
        page = browser.get(path)
        assert page.status_code == 200, page.text
        hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page.text))
        answer = browser.post(
            path.partition("?")[0], data={**hidden, **fields}, headers={"Origin": str(browser.base_url)}
        )
        assert answer.status_code == 200, answer.text

    def administer(self, *arguments: str, stdin: str = "") -> str:
        """Runs another command of `osmosis-platform` on the same data and gives what it prints."""
        done = subprocess.run(
            [str(COMMAND), *arguments, "--data-dir", str(self.data_dir)], env=self._env, input=stdin,
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout
