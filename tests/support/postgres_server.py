"""A PostgreSQL of a test's own: a temporary folder, a unix socket, the binaries of the system's packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path


def binaries() -> Path | None:
    """The folder with `initdb` and `pg_ctl`, of the newest PostgreSQL that is installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path else None


class PostgresServer:
    """A server that stops with the test session. It refuses root, so root runs it as `postgres`."""

    def __init__(self) -> None:
        directory = binaries()
        if directory is None:
            raise FileNotFoundError("PostgreSQL is not installed: apt-get install postgresql")
        self._bin = directory
        self._as = []
        self.user = "postgres"
        self._root = Path(tempfile.mkdtemp(prefix="osmosis-pg-", dir="/tmp"))
        self._data = self._root / "data"
        if os.getuid() == 0:
            self._as = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"]
            shutil.chown(self._root, "postgres", "postgres")
        self._run(
            "initdb", "-D", self._data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", "--locale=C.UTF-8"
        )
        self.start()

    def start(self) -> None:
        """Starts it, durable enough for a test of ours and no more."""
        options = f"-c listen_addresses='' -k {self._root} -c fsync=off -c max_connections=60 -c shared_buffers=32MB"
        self._run("pg_ctl", "-D", self._data, "-w", "-l", self._root / "log", "-o", options, "start")

    def stop(self, mode: str = "fast") -> None:
        """Stops it; `immediate` is what a crash looks like."""
        self._run("pg_ctl", "-D", self._data, "-w", "-m", mode, "stop")

    def create_database(self, name: str) -> str:
        """Makes an empty database and gives its URL."""
        self._run("createdb", "-h", self._root, "-U", "postgres", name)
        return f"postgresql+psycopg://postgres@/{name}?host={self._root}"

    def close(self) -> None:
        """Stops it and removes its folder."""
        try:
            self.stop("immediate")
        finally:
            shutil.rmtree(self._root, ignore_errors=True)

    def _run(self, program: str, *arguments: object) -> None:
        command = [*self._as, str(self._bin / program), *map(str, arguments)]
        done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stdout}{done.stderr}")
