"""Keeps a rollout server up for a run: capacity, watching, restart, end.

What one server process is lies in `rollout_server`; the rollouts on it are the runner's. A dead or blocked server costs
what was in flight one attempt, never the run: another one is started, until several in a row end without a finished
item.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import httpx

from osmosis_ai.errors import OsmosisError
from osmosis_ai.evaluation.rollout_server import (
    HEALTH_REQUEST_LIMIT_S,
    Log,
    RolloutServer,
    ServerSpec,
    ServerStartError,
)

HEARTBEAT_S = 5.0
MAX_DEATHS = 3
"""Servers that may end in a row without a finished item between them; the next one to do so ends the run."""


class PoolExhaustedError(OsmosisError):
    """Server after server ended without finishing an item."""

    code = "ROLLOUT_SERVER"


class RolloutPool:
    """Keeps one rollout server up and lends it to rollouts."""

    def __init__(self, spec: ServerSpec, *, log: Log) -> None:
        self._spec = spec
        self._log = log
        self._server: RolloutServer | None = None
        self._starting: asyncio.Task[RolloutServer] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[bool]] = set()
        self._deaths = 0
        self._exhausted: PoolExhaustedError | None = None

    @property
    def health(self) -> Mapping[str, Any]:
        """What the server last said about itself."""
        return self._server.health if self._server else {}

    @property
    def sdk_version(self) -> str | None:
        """Version of the SDK in the server, when it says so."""
        return self._server.sdk_version if self._server else None

    @property
    def capacity(self) -> int | None:
        """How many rollouts the server runs at once by its own account, or None when it does not say."""
        concurrency = self.health.get("concurrency")
        limit = concurrency.get("max_concurrent") if isinstance(concurrency, dict) else None
        for value in (self.health.get("max_queue_depth"), limit):
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
        return None

    @property
    def needs_public_url(self) -> bool:
        """Whether its agents run where this machine's loopback addresses do not lead."""
        endpoint = self.health.get("chat_endpoint")
        return isinstance(endpoint, dict) and endpoint.get("requires_public_url") is True

    async def start(self) -> None:
        """Start the first server.

        Raises:
            ServerStartError: It ended, or did not answer in time.
        """
        self._server = await self._start_server()

    async def acquire(self) -> RolloutServer:
        """Lend the server; waits while another one is being started.

        Raises:
            PoolExhaustedError: Too many ended in a row.
            ServerStartError: Another one could not be started.
        """
        while True:
            if self._exhausted is not None:
                raise self._exhausted
            if self._server is not None and not self._server.lost.done():
                return self._server
            if self._starting is None:
                self._starting = asyncio.create_task(self._start_server())
                self._starting.add_done_callback(self._started)
            await asyncio.shield(self._starting)

    def finished(self) -> None:
        """An item got its verdict: the servers do not end in vain."""
        self._deaths = 0

    async def stop(self, grace_s: Callable[[], float]) -> bool:
        """End everything; whether the end is confirmed (otherwise server.json stays for the next start to reap)."""
        for task in (self._starting, self._watching):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.wait([task])
        confirmed = True
        if self._server is not None:
            confirmed = await self._server.end(grace_s)
        if self._ending:
            await asyncio.wait(self._ending)
        if confirmed:
            self._spec.record_path.unlink(missing_ok=True)
        return confirmed

    def kill(self) -> None:
        """End the server at once, without waiting; for an exit that cannot wait."""
        if self._server is not None:
            self._server.child.kill()

    def _started(self, task: asyncio.Task[RolloutServer]) -> None:
        self._starting = None
        if not task.cancelled() and task.exception() is None:
            self._server = task.result()

    async def _start_server(self) -> RolloutServer:
        if self._ending:
            await asyncio.wait(self._ending)  # a fixed port must be free, and server.json names one process
        tries = 1 if self._spec.port else 2
        while True:
            tries -= 1
            server = RolloutServer.spawn(self._spec, self._log)
            try:
                await server.become_healthy()
            except ServerStartError as error:
                await server.end(lambda: 5.0)
                if not tries or not server.port_taken:
                    self._spec.record_path.unlink(missing_ok=True)
                    raise
                reason = error.message.splitlines()[0]
                self._log("WARNING", "server", f"{reason}; trying once more on another port", {})
            except BaseException:
                await server.end(lambda: 1.0)
                self._spec.record_path.unlink(missing_ok=True)
                raise
            else:
                self._watching = asyncio.create_task(self._watch(server))
                self._watching.add_done_callback(partial(self._watched, server))
                return server

    def _watched(self, server: RolloutServer, task: asyncio.Task[None]) -> None:
        """A fault of the watch itself is said, and its server given up: nobody would notice its death any more."""
        if task.cancelled() or (error := task.exception()) is None:
            return
        self._log("ERROR", "server", f"the watch over the rollout server failed: {type(error).__name__}: {error}", {})
        if not server.lost.done():
            server.hung = True
            self._lose(server, f"nobody watched the rollout server any more ({type(error).__name__}: {error})")

    async def _watch(self, server: RolloutServer) -> None:
        """Notice a server's death, and a server that no longer answers while it has work."""
        spec = self._spec
        agent_s, grader_s = spec.silence_s(spec.agent_timeout_s), spec.silence_s(spec.grader_timeout_s)
        limit_s = agent_s
        exit_ = asyncio.create_task(server.child.wait())
        try:
            while not exit_.done():
                await asyncio.wait([exit_], timeout=min(HEARTBEAT_S, agent_s / 4))
                if exit_.done():
                    break
                if not server.in_flight:
                    server.answered_at = time.monotonic()
                silent_s = time.monotonic() - server.answered_at
                if silent_s >= min(HEARTBEAT_S, agent_s / 2):
                    with contextlib.suppress(httpx.HTTPError):
                        await server.get_health(min(HEALTH_REQUEST_LIMIT_S, max(1.0, limit_s - silent_s)))
                    silent_s = time.monotonic() - server.answered_at
                if silent_s < min(HEARTBEAT_S, agent_s / 2):
                    limit_s = agent_s  # it answered
                if silent_s < limit_s:
                    continue
                if await server.look_inside() and silent_s < grader_s:
                    limit_s = grader_s
                    continue
                server.hung = True
                self._lose(
                    server, f"the rollout server answered nothing for {silent_s:.0f} s: its event loop is blocked"
                )
                return
        finally:
            exit_.cancel()
        words = server.last_words()
        self._lose(
            server,
            f"the rollout server {server.child.describe_exit()}" + (f"; its last line: {words}" if words else ""),
        )

    def _lose(self, server: RolloutServer, why: str) -> None:
        self._deaths += 1
        server.company = server.in_flight
        self._log("ERROR", "server", why, {"pid": server.child.pid, "deaths_in_a_row": self._deaths})
        if self._deaths > MAX_DEATHS:
            self._exhausted = PoolExhaustedError(
                f"{self._deaths} rollout servers in a row ended without finishing an item; the last: {why}.\n"
                f"Their output is in {self._spec.log_path} (lines [rollout-server])."
            )
        server.lost.set_result(why)
        ending = asyncio.create_task(server.end(lambda: 0.0 if server.hung else 2.0))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
