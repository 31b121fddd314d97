"""Runs the real `osmosis` command in tests: as a subprocess with pipes, or on a pseudo-terminal with keys."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

OSMOSIS = Path(sys.executable).with_name("osmosis")
DIRECTORIES = ("rollouts", "configs/training", "configs/eval", "data")
# Makes the pseudo-terminal the controlling one (Ctrl-C is a signal then) and becomes the command.
_TAKE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)
_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07]*\x07")


def environment(home: Path, **extra: str | None) -> dict[str, str]:
    """A clean process environment: a home of its own, no login, no provider keys, no user settings."""
    values = {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    for name in ("UV_CACHE_DIR", "UV_OFFLINE", "UV_PYTHON_DOWNLOADS", "UV_INDEX_URL", "PYTHONPATH"):
        if name in os.environ:
            values[name] = os.environ[name]
    for name, value in extra.items():
        if value is None:
            values.pop(name, None)
        else:
            values[name] = value
    return values


@dataclass(frozen=True)
class Finished:
    """A command that ended."""

    status: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """The result: exactly one object on stdout."""
        assert self.stdout.endswith("\n") and self.stdout.count("\n") == 1, (self.stdout, self.stderr)
        return json.loads(self.stdout)

    @property
    def error(self) -> Any:
        """The error: nothing on stdout, the envelope as the last line of stderr."""
        assert self.stdout == "", self.stdout
        return self.objects[-1]["error"]

    @property
    def objects(self) -> list[Any]:
        """Every line of stderr, each of which must be an object."""
        return [json.loads(line) for line in self.stderr.splitlines()]


def osmosis(
    *arguments: str, cwd: Path, env: Mapping[str, str] | None = None, stdin: str | bytes = "", timeout: float = 60
) -> Finished:
    """Run the command to its end with pipes for all three streams."""
    done = subprocess.run(
        [str(OSMOSIS), *arguments],
        cwd=cwd,
        env=environment(cwd) if env is None else env,
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        timeout=timeout,
        check=False,
    )
    return Finished(done.returncode, done.stdout.decode(), done.stderr.decode())


def make_workspace(path: Path, *, origin: str | None = "https://github.com/Acme/Demo-Repo.git") -> Path:
    """A Git work tree with the required directories."""
    for name in DIRECTORIES:
        (path / name).mkdir(parents=True, exist_ok=True)
    subprocess.run(["git", "init", "-q", "-b", "main"], cwd=path, check=True)
    if origin:
        subprocess.run(["git", "remote", "add", "origin", origin], cwd=path, check=True)
    return path


class Terminal:
    """The command on a pseudo-terminal.

    Args:
        arguments: After `osmosis`.
        cwd: Where it runs.
        columns: Width of the terminal.
        env: Its environment; `TERM` is added.
        binary: Another `osmosis` than ours.
    """

    def __init__(
        self,
        *arguments: str,
        cwd: Path,
        columns: int = 100,
        env: Mapping[str, str] | None = None,
        binary: Path = OSMOSIS,
    ) -> None:
        values = {**(environment(cwd) if env is None else env)}
        values.setdefault("TERM", "xterm-256color")
        self.raw = ""
        self.descriptor, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-c", _TAKE_TERMINAL, str(binary), *arguments],
            cwd=cwd, env=values, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self.status: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self.status is None:
            self.process.kill()
            self.process.wait()
        os.close(self.descriptor)

    @property
    def text(self) -> str:
        """What was written so far, without colours and cursor movements."""
        return _ANSI.sub("", self.raw).replace("\r\n", "\n")

    def expect(self, wanted: str, timeout: float = 30) -> None:
        """Wait until a text was written."""
        end = time.monotonic() + timeout
        while wanted not in self.text:
            if not self._read(end):
                raise AssertionError(f"{wanted!r} never came; there was:\n{self.text}")

    def read(self, timeout: float = 1) -> None:
        """Take what is written next, if anything comes."""
        self._read(time.monotonic() + timeout)

    def send(self, keys: str) -> None:
        """Press keys."""
        os.write(self.descriptor, keys.encode())

    def finish(self, timeout: float = 60) -> int:
        """Wait for the end and return the exit status."""
        end = time.monotonic() + timeout
        while self._read(end):
            pass
        self.status = self.process.wait(timeout)
        return self.status

    def _read(self, end: float) -> bool:
        ready, _, _ = select.select([self.descriptor], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            raise AssertionError(f"nothing more came in time; there was:\n{self.text}")
        try:
            data = os.read(self.descriptor, 65536)
        except OSError:
            data = b""
        self.raw += data.decode("utf-8", "replace")
        return bool(data)
