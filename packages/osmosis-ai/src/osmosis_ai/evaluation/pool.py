"""The rollout server of a run: its start, health, capacity, death, restart and end.

Leaves the rollouts themselves to the runner, which borrows a client for each. A dead or blocked server costs what was
in flight one attempt, never the run: the pool starts another one, until several in a row die without a finished item.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
import socket
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from osmosis_ai.errors import OsmosisError
from osmosis_ai.evaluation import bootstrap
from osmosis_ai.evaluation.process import Child, own, write_owned
from osmosis_ai.gateway.proxies import loopback_no_proxy

if TYPE_CHECKING:
    from osmosis_ai.rollout.client import RolloutClient

HEALTH_LIMIT_S = 90.0
HEALTH_REQUEST_LIMIT_S = 5.0
HEARTBEAT_S = 5.0
HANG_MARGIN_S = 10.0
LEASE_S = 120.0
"""A server that is silent for so long has lost the leases of all its rollouts anyway."""
MAX_DEATHS = 3
"""Servers that may die in a row without a finished item between them; the next death ends the run."""
INSTANCE_HEADER = "x-osmosis-rollout-instance-id"
SDK_HEADER = "x-osmosis-rollout-sdk-version"

type Log = Callable[[str, str, str, Mapping[str, Any]], None]
"""Takes level, step, message and details: a line of logs.txt."""


class ServerStartError(OsmosisError):
    """The rollout server did not come up; the message holds its last line and where to read on."""

    code = "ROLLOUT_SERVER"


class PoolExhaustedError(OsmosisError):
    """Server after server died without finishing an item."""

    code = "ROLLOUT_SERVER"


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """What is started, and with what.

    Attributes:
        python: Interpreter of the rollout's environment.
        rollout_dir: Working directory of the server.
        entrypoint: The script, absolute.
        shown: The script as people know it: `rollouts/x/main.py`.
        environ: The whole environment, without what the pool adds.
        artifact_root: Where the server writes trajectories and artifacts.
        record_path: server.json.
        log_path: Named in errors.
        port: A fixed port, or None for one of the system's choice.
        admission_timeout_s: How long a rollout may wait to be admitted.
        agent_timeout_s: Of the agent; a server that is silent for that and `HANG_MARGIN_S` is blocked by an agent.
        grader_timeout_s: The same for the grader.
    """

    python: Path
    rollout_dir: Path
    entrypoint: Path
    shown: str
    environ: Mapping[str, str]
    artifact_root: Path
    record_path: Path
    log_path: Path
    port: int | None = None
    admission_timeout_s: float | None = None
    agent_timeout_s: float | None = None
    grader_timeout_s: float | None = None

    def silence_s(self, timeout_s: float | None) -> float:
        """How long a server with work may answer nothing while it runs what has this limit."""
        return LEASE_S if timeout_s is None else min(LEASE_S, max(0.0, timeout_s) + HANG_MARGIN_S)


@dataclass(eq=False, slots=True)
class Server:
    """One server process, from its start to its end.

    Attributes:
        lost: Set to why, once it died or is blocked; what was in flight on it is lost.
        hung: Whether it was given up because it no longer answered.
        where: The traceback of a blocked server's main thread.
        answered_at: When it last answered anything (monotonic).
        clients: Those that are not lent.
        in_flight: Rollouts that are on it.
        company: How many were on it when it was lost.
    """

    child: Child
    port: int
    instance_id: str
    api_key: str
    admission_timeout_s: float | None
    lost: asyncio.Future[str]
    lines: deque[str]
    clients: list[RolloutClient] = field(default_factory=list)
    health: dict[str, Any] = field(default_factory=dict)
    sdk_version: str | None = None
    hung: bool = False
    where: str | None = None
    answered_at: float = field(default_factory=time.monotonic)
    in_flight: int = 0
    company: int = 0
    watcher: asyncio.Task[None] | None = None

    def lend(self) -> RolloutClient:
        """Give a client for one rollout, or one question; `give_back` it.

        Each has a connection of its own: httpx looks at every connection of a client for every request, which makes a
        shared one cost more the more rollouts are in flight.
        """
        if self.clients:
            return self.clients.pop()
        from osmosis_ai.rollout.client import RolloutClient

        url = f"http://127.0.0.1:{self.port}"
        http = httpx.AsyncClient(
            base_url=url,
            trust_env=False,  # never a proxy to ourselves
            verify=False,  # noqa: S501 - there is no TLS on loopback, and loading certificates takes 20 ms
            timeout=httpx.Timeout(10.0, read=LEASE_S + 10.0, pool=None),  # a blocked server is noticed by the watch
            limits=httpx.Limits(keepalive_expiry=60),
            event_hooks={"response": [self._answered]},
        )
        return RolloutClient(
            url=url, http_client=http, admission_timeout_sec=self.admission_timeout_s, api_key=self.api_key
        )

    def give_back(self, client: RolloutClient) -> None:
        """Take a client for the next rollout."""
        self.clients.append(client)

    async def get_health(self, limit_s: float) -> httpx.Response:
        """Ask for /health.

        Raises:
            httpx.HTTPError: No answer in time.
        """
        client = self.lend()
        try:
            return await client.http.get("/health", headers=client.headers, timeout=limit_s)
        finally:
            self.give_back(client)

    async def _answered(self, _: httpx.Response) -> None:
        self.answered_at = time.monotonic()

    @property
    def killed(self) -> bool:
        """Whether a signal that nobody here sent ended it (the kernel out of memory, a person)."""
        return self.child.status in (-signal.SIGKILL, -signal.SIGTERM)


class RolloutPool:
    """Keeps one rollout server up and lends its client."""

    def __init__(self, spec: ServerSpec, *, log: Log) -> None:
        self._spec = spec
        self._log = log
        self.api_key = secrets.token_urlsafe(32)
        self._server: Server | None = None
        self._starting: asyncio.Task[Server] | None = None
        self._deaths = 0
        self._stopping = False
        self._exhausted: PoolExhaustedError | None = None
        self._enders: set[asyncio.Task[bool]] = set()

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

    async def acquire(self) -> Server:
        """Lend the server; waits while another one is being started.

        Raises:
            PoolExhaustedError: Too many died in a row.
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
        """An item got its verdict: the servers are not dying in vain."""
        self._deaths = 0

    async def stop(self, grace_s: Callable[[], float]) -> bool:
        """End everything; whether the end is confirmed (otherwise server.json stays for the next start to reap)."""
        self._stopping = True
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
            await asyncio.wait([self._starting])
        confirmed = True
        if self._server is not None:
            confirmed = await self._end(self._server, grace_s)
        if self._enders:
            await asyncio.wait(self._enders)
        if confirmed:
            self._spec.record_path.unlink(missing_ok=True)
        return confirmed

    def kill(self) -> None:
        """End the server at once, without waiting; for an exit that cannot wait."""
        if self._server is not None:
            self._server.child.kill()

    def _started(self, task: asyncio.Task[Server]) -> None:
        self._starting = None
        if not task.cancelled() and task.exception() is None:
            self._server = task.result()

    async def _start_server(self) -> Server:
        tries = 1 if self._spec.port else 2
        while True:
            tries -= 1
            server = self._spawn(self._spec.port or _free_port())
            try:
                await self._become_healthy(server)
            except ServerStartError as error:
                await self._end(server, lambda: 5.0)
                if not tries:
                    self._spec.record_path.unlink(missing_ok=True)
                    raise
                self._log("WARNING", "server", f"{error.message.splitlines()[0]}; trying once more on another port", {})
                continue
            except BaseException:
                await self._end(server, lambda: 1.0)
                self._spec.record_path.unlink(missing_ok=True)
                raise
            server.watcher = asyncio.create_task(self._watch(server))
            return server

    def _spawn(self, port: int) -> Server:
        spec = self._spec
        instance_id = uuid.uuid4().hex
        env = dict(spec.environ)
        env.pop("VIRTUAL_ENV", None)
        env |= loopback_no_proxy(env) | {
            "_OSMOSIS_ROLLOUT_PORT": str(port),
            "_OSMOSIS_ROLLOUT_HOST": "127.0.0.1",
            "_OSMOSIS_ROLLOUT_API_KEY": self.api_key,
            "_OSMOSIS_ROLLOUT_ARTIFACT_ROOT": str(spec.artifact_root),
            bootstrap.INSTANCE_VARIABLE: instance_id,
            bootstrap.NAME_VARIABLE: spec.shown,
            "PYTHONUNBUFFERED": "1",
        }
        lines: deque[str] = deque(maxlen=200)

        def on_line(line: str) -> None:
            lines.append(line)
            self._log("INFO", "rollout-server", line, {})

        try:
            child = Child.start(
                [str(spec.python), bootstrap.__file__, str(spec.entrypoint)],
                env=env,
                cwd=spec.rollout_dir,
                on_line=on_line,
                guard_variable=bootstrap.GUARD_VARIABLE,
            )
        except OSError as error:
            raise ServerStartError(f"The rollout server cannot be started: {error}") from error
        lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        server = Server(child, port, instance_id, self.api_key, spec.admission_timeout_s, lost, lines)
        write_owned(spec.record_path, own(child.pid, instance_id=instance_id, port=port))
        self._log("INFO", "server", "started the rollout server", {"pid": child.pid, "port": port})
        return server

    async def _become_healthy(self, server: Server) -> None:
        deadline = time.monotonic() + HEALTH_LIMIT_S
        pause = 0.05
        problem = "it did not listen"
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await server.child.wait()
                    raise self._exit_error(server)
            if not server.child.alive:
                raise self._exit_error(server)
            try:
                response = await server.get_health(HEALTH_REQUEST_LIMIT_S)
            except httpx.HTTPError as error:
                if not isinstance(error, httpx.ConnectError):
                    problem = f"GET /health: {type(error).__name__}"
            else:
                problem = self._read_health(server, response) or ""
                if not problem:
                    return
            if time.monotonic() >= deadline:
                raise ServerStartError(
                    f"The rollout server {self._spec.shown} did not answer within {HEALTH_LIMIT_S:.0f} s ({problem}).\n"
                    f"It must serve on the port in _OSMOSIS_ROLLOUT_PORT. Its output is in {self._spec.log_path} "
                    "(lines [rollout-server])."
                )
            pause = min(pause * 1.25, 0.2)

    def _read_health(self, server: Server, response: httpx.Response) -> str | None:
        """Take what the server says about itself; returns why that is not enough yet."""
        try:
            data = response.json()
        except ValueError:
            data = None
        named = response.headers.get(INSTANCE_HEADER)
        if named is None and isinstance(data, dict):
            named = data.get("instance_id")
        if named is not None and named != server.instance_id:
            remedy = "choose another --rollout-port" if self._spec.port else "run the command again"
            raise ServerStartError(
                f"Port {server.port} is served by another process (instance {str(named)[:40]}), not by "
                f"{self._spec.shown}; {remedy}."
            )
        if response.status_code == 401:
            raise ServerStartError(
                f"{self._spec.shown} refuses the key of this run (HTTP 401 from /health): it gives "
                "create_rollout_server an api_key of its own.\nLeave that argument out; each run brings a fresh key."
            )
        if response.status_code != 200:
            return f"GET /health answered {response.status_code}"
        if not isinstance(data, dict):
            return "GET /health answered no JSON object"
        server.health = data
        server.sdk_version = response.headers.get(SDK_HEADER)
        return None

    def _exit_error(self, server: Server) -> ServerStartError:
        return ServerStartError(
            f"The rollout server {self._spec.shown} {server.child.describe_exit()} before it was ready: "
            f"{_last_words(server.lines)}\nIts output is in {self._spec.log_path} (lines [rollout-server])."
        )

    async def _watch(self, server: Server) -> None:
        """Notice a server's death, and a server that no longer answers while it has work."""
        spec = self._spec
        limit_s = spec.silence_s(spec.agent_timeout_s)
        exit_ = asyncio.create_task(server.child.wait())
        try:
            while True:
                done, _ = await asyncio.wait([exit_], timeout=min(HEARTBEAT_S, limit_s / 4))
                if done:
                    break
                if not server.in_flight:
                    server.answered_at = time.monotonic()
                silent_s = time.monotonic() - server.answered_at
                if silent_s >= min(HEARTBEAT_S, limit_s / 2):
                    await self._heartbeat(server, limit_s - silent_s)
                    silent_s = time.monotonic() - server.answered_at
                if silent_s < limit_s:
                    continue
                grading = await self._look_inside(server)
                if grading and silent_s < spec.silence_s(spec.grader_timeout_s):
                    continue
                server.hung = True
                why = f"the rollout server answered nothing for {silent_s:.0f} s: its event loop is blocked"
                self._lose(server, why)
                return
        finally:
            exit_.cancel()
        if self._stopping:
            return
        why = f"the rollout server {server.child.describe_exit()}"
        if words := _last_words(server.lines, default=""):
            why += f"; its last line: {words}"
        self._lose(server, why)

    async def _heartbeat(self, server: Server, patience_s: float) -> None:
        limit_s = min(HEALTH_REQUEST_LIMIT_S, max(1.0, patience_s))
        with contextlib.suppress(httpx.HTTPError):
            await server.get_health(limit_s)

    async def _look_inside(self, server: Server) -> bool:
        """Have a silent server print where its main thread stands; whether that is in a grader."""
        server.lines.append("")
        server.child.signal(signal.SIGUSR1)  # the bootstrap registered a traceback for it
        await asyncio.sleep(0.3)
        lines = list(server.lines)
        start = len(lines) - 1 - lines[::-1].index("") if "" in lines else 0
        frames = lines[start + 1 :]
        server.where = "\n".join(frames[:30]) or None
        return any(frame.rstrip().endswith(" in grade") for frame in frames)

    def _lose(self, server: Server, why: str) -> None:
        self._deaths += 1
        server.company = server.in_flight
        self._log("ERROR", "server", why, {"pid": server.child.pid, "deaths_in_a_row": self._deaths})
        if self._deaths > MAX_DEATHS:
            self._exhausted = PoolExhaustedError(
                f"{self._deaths} rollout servers in a row ended without finishing an item; the last: {why}.\n"
                f"Their output is in {self._spec.log_path} (lines [rollout-server])."
            )
        if not server.lost.done():
            server.lost.set_result(why)
        ender = asyncio.create_task(self._end(server, lambda: 0.0 if server.hung else 2.0))
        self._enders.add(ender)
        ender.add_done_callback(self._enders.discard)

    async def _end(self, server: Server, grace_s: Callable[[], float]) -> bool:
        if server.watcher is not None and server.watcher is not asyncio.current_task() and not server.lost.done():
            server.watcher.cancel()
        if not server.lost.done():
            server.lost.set_result("the rollout server was stopped")
        confirmed = await server.child.stop(grace_s)
        for client in server.clients:
            await client.aclose()
            await client.http.aclose()
        return confirmed


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _last_words(lines: deque[str], default: str = "it printed nothing") -> str:
    """The last line that says something; with an `exit()` of the entrypoint also the line before it."""
    spoken = [line.strip() for line in lines if line.strip()]
    if not spoken:
        return default
    if " called exit(" in spoken[-1] and len(spoken) > 1:
        return f"{spoken[-1]} (before that: {spoken[-2]})"
    return spoken[-1]
