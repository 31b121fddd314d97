"""Kinds of jobs for tests, and a worker process that runs them: `python job_kinds.py URL DATA_DIR [slots]`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from osmosis_platform.db.database import Database
from osmosis_platform.jobs import handler
from osmosis_platform.jobs.handler import JobContext, JobFailureError
from osmosis_platform.services import Services
from osmosis_platform.settings import Settings

NAMES = ["echo", "steps", "fail", "crash", "exit", "wait", "stubborn"]


def install() -> None:
    """Makes the kinds known in this process; more than one call changes nothing."""
    for name in NAMES:
        handler.KINDS[f"test.{name}"] = f"job_kinds:{name}"


def echo(context: JobContext) -> Mapping[str, Any]:
    """Gives its payload back."""
    return context.job.payload


def steps(context: JobContext) -> Mapping[str, Any]:
    """Appends a line `EPOCH STEP` to a file for each committed step; `count` steps of `pause_s`."""
    payload = context.job.payload
    for step in range(payload["count"]):
        context.check()
        with context.write() as work:
            context.progress({"done": step + 1, "epoch": context.job.epoch}, work=work)
        with Path(payload["file"]).open("a") as file:
            file.write(f"{context.job.epoch} {step}\n")
        time.sleep(payload.get("pause_s", 0))
    return {"steps": payload["count"]}


def fail(context: JobContext) -> None:
    """Fails as its payload says, until the try numbered `succeed_at`."""
    if context.job.failures < context.job.payload.get("succeed_at", 99):
        raise JobFailureError("TEST_FAILED", "It failed.", fault="user", retryable=context.job.payload["retryable"])


def crash(context: JobContext) -> None:
    """Takes its worker with it, after `after_s` seconds."""
    time.sleep(context.job.payload.get("after_s", 0))
    os.kill(os.getpid(), signal.SIGKILL)


def exit(context: JobContext) -> None:
    """Raises what ends interpreters."""
    raise SystemExit(3)


def wait(context: JobContext) -> None:
    """Waits for a cancel, a stop or a lost lease."""
    while True:
        context.check()
        time.sleep(0.01)


def stubborn(context: JobContext) -> None:
    """Waits and listens to nobody."""
    time.sleep(60)


class WorkerProcess:
    """A worker in a process of its own."""

    def __init__(self, database_url: str, data_dir: Path, *, lease_s: float = 1.0, crash_at: str = "") -> None:
        environment = {**os.environ, "OSMOSIS_CRASH_AT": crash_at}
        command = [sys.executable, __file__, database_url, str(data_dir), str(lease_s)]
        self._log = (data_dir / "worker.log").open("ab")
        self.process = subprocess.Popen(command, env=environment, stdout=self._log, stderr=subprocess.STDOUT)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Sends a signal, and gives the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(30)
        self._log.close()
        return status


def main(database_url: str, data_dir: str, lease_s: str) -> None:
    """Works until SIGTERM."""
    from osmosis_platform.jobs.worker import Worker

    sys.modules["job_kinds"] = sys.modules["__main__"]
    install()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    services = Services(Settings(data_dir=Path(data_dir)), Database(database_url))
    Worker(services, lease_s=float(lease_s), slots=2, poll_s=0.05, drain_s=2.0, schedule={}).run(stop)


if __name__ == "__main__":
    main(*sys.argv[1:])
