"""What runs in the children of the supervisor: the API server and the worker."""

from __future__ import annotations

import asyncio
import ctypes
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable

import structlog
import uvicorn

from osmosis_platform.api.app import create_app
from osmosis_platform.jobs.worker import Worker
from osmosis_platform.ops.connections import BoundedConnection
from osmosis_platform.ops.telemetry import configure_traces
from osmosis_platform.services import open_services
from osmosis_platform.settings import Settings

log = structlog.get_logger(__name__)

_GRACE_S = 10
_FILES = 65_536
_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Lets the kernel end this process when its supervisor is gone, even by kill -9 (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def allow_many_files() -> None:
    """Lets this process open as many files as the machine permits: each idle client of many is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class _Server(uvicorn.Server):
    """Says when it serves, and when it begins to end."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None], ending: Callable[[], None]) -> None:
        super().__init__(config)
        self._tell = started
        self._end = ending

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts to serve, then tells."""
        await super().startup(sockets)
        if self.started:
            self._tell()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Lets open streams end, then waits for the other answers."""
        self._end()
        await super().shutdown(sockets)


def serve(settings: Settings, sock: socket.socket, started: Callable[[], None], *, with_worker: bool = False) -> None:
    """Serves the API on a bound socket until SIGTERM or SIGINT.

    Args:
        settings: What the administrator set, with the real port.
        sock: The listening socket.
        started: Called once requests are answered.
        with_worker: Also run a worker, in a thread (`--single-process`).
    """
    allow_many_files()
    configure_traces(settings, "api")
    services = open_services(settings)
    config = uvicorn.Config(
        create_app(services),
        http=BoundedConnection,
        loop="asyncio",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=settings.trusted_proxies or None,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
        timeout_graceful_shutdown=_GRACE_S,
        timeout_keep_alive=30,
    )
    stop = threading.Event()
    worker = threading.Thread(target=work, args=(settings, stop), name="worker")
    if with_worker:
        worker.start()
    # uvicorn raises the signal again once it has shut down; the rest of this function is still to run then
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    try:
        asyncio.run(_Server(config, started, services.hub.close).serve([sock]))
    finally:
        stop.set()
        if with_worker:
            worker.join(timeout=_GRACE_S + 5)


def work(settings: Settings, stop: threading.Event) -> None:
    """Runs jobs until told to stop."""
    services = open_services(settings)
    try:
        Worker(services, queues=("cpu",)).run(stop)
    finally:
        services.close()


def work_until_signal(settings: Settings) -> None:
    """Runs jobs until SIGTERM or SIGINT."""
    configure_traces(settings, "worker")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    work(settings, stop)
