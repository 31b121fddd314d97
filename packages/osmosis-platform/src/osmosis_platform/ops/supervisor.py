"""The supervisor: one API process and the workers as its children, restarted when they die, ended together."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from multiprocessing.context import ForkProcess
from typing import cast

import structlog

from osmosis_platform.ops import processes
from osmosis_platform.settings import Settings

log = structlog.get_logger(__name__)

_START_S = 60.0
_STOP_S = 20.0
_STEADY_S = 60.0
_BACKOFF_S = (0.2, 1.0, 2.0, 5.0, 10.0, 30.0)


@dataclass
class _Child:
    """One process that is to run. `deaths` counts those that came soon after a start."""

    name: str
    run: Callable[[], None]
    process: ForkProcess | None = None
    started_at: float = 0.0
    deaths: int = 0
    due_at: float = field(default=0.0)


class Supervisor:
    """Runs the platform's processes. Forks, since the imports of a child cost a second that a fork does not.

    Args:
        settings: With the real port.
        sock: The listening socket; children inherit it, so requests wait while the API is restarted.
        single_process: Everything in this process, without children.
    """

    def __init__(self, settings: Settings, sock: socket.socket, *, single_process: bool = False) -> None:
        self._settings = settings
        self._sock = sock
        self._single = single_process
        self._context = multiprocessing.get_context("fork")
        self._ready = self._context.Event()
        self._stopping = False

    def run(self, ready: Callable[[], None]) -> int:
        """Runs until SIGTERM or SIGINT.

        Args:
            ready: Called once requests are answered.

        Returns:
            The exit status: 0 after a clean stop, 1 when the API does not start.
        """
        if self._single:
            processes.serve(self._settings, self._sock, ready, with_worker=self._settings.workers > 0)
            return 0
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._stop)
        settings, sock = self._settings, self._sock
        children = [_Child("api", lambda: processes.serve(settings, sock, self._ready.set))]
        children += [
            _Child(f"worker-{number + 1}", lambda: processes.work_until_signal(settings))
            for number in range(settings.workers)
        ]
        api = children[0]
        try:
            self._start(api)
            if not self._wait_until_ready(api):
                return 0 if self._stopping else 1
            for child in children[1:]:
                self._start(child)
            ready()
            while not self._stopping:
                self._look_after(children)
            return 0
        finally:
            self._end(children)

    def _stop(self, *_: object) -> None:
        self._stopping = True

    def _wait_until_ready(self, api: _Child) -> bool:
        deadline = time.monotonic() + _START_S
        while not self._stopping and time.monotonic() < deadline:
            if self._ready.wait(0.02):
                return True
            if api.process is not None and not api.process.is_alive():
                return False
        return False

    def _start(self, child: _Child) -> None:
        child.process = self._context.Process(target=self._in_child, args=(child,), name=child.name)
        child.process.start()
        child.started_at = time.monotonic()

    def _in_child(self, child: _Child) -> None:
        processes.die_with_parent()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        if os.isatty(0):
            os.setpgrp()  # Ctrl-C is for the supervisor, which ends the rest in order
        child.run()
        sys.stdout.flush()

    def _look_after(self, children: list[_Child]) -> None:
        alive = {child.process.sentinel: child for child in children if child.process is not None}
        for sentinel in wait(list(alive), timeout=0.5):
            child = alive[cast(int, sentinel)]
            if self._stopping or child.process is None:
                return
            child.process.join()
            lived_s = time.monotonic() - child.started_at
            child.deaths = 1 if lived_s > _STEADY_S else child.deaths + 1
            pause_s = _BACKOFF_S[min(child.deaths, len(_BACKOFF_S)) - 1]
            log.error("process died", process=child.name, status=child.process.exitcode, restart_in_s=pause_s)
            child.process, child.due_at = None, time.monotonic() + pause_s
        for child in children:
            if child.process is None and time.monotonic() >= child.due_at and not self._stopping:
                self._start(child)

    @staticmethod
    def _end(children: list[_Child]) -> None:
        running = [
            child.process for child in reversed(children) if child.process is not None and child.process.is_alive()
        ]
        for process in running:
            process.terminate()
        deadline = time.monotonic() + _STOP_S
        for process in running:
            process.join(max(0.1, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join(5)
