"""One rollout server process: how it is started, how it says that it is ready, who talks to it.

Leaves its watching, restart and end to `pool`.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import socket
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import httpx

from osmosis_ai.errors import OsmosisError
from osmosis_ai.evaluation import bootstrap
from osmosis_ai.evaluation.atomic import storage_error
from osmosis_ai.evaluation.judgement import Loss
from osmosis_ai.evaluation.process import Child, own, write_owned
from osmosis_ai.gateway.proxies import loopback_no_proxy

if TYPE_CHECKING:
    from osmosis_ai.redaction import Redactor
    from osmosis_ai.rollout.client import RolloutClient

HEALTH_LIMIT_S = 90.0
HEALTH_REQUEST_LIMIT_S = 5.0
HANG_MARGIN_S = 10.0
LEASE_S = 120.0
"""A server that is silent for so long has lost the leases of all its rollouts anyway."""
INSTANCE_HEADER = "x-osmosis-rollout-instance-id"
SDK_HEADER = "x-osmosis-rollout-sdk-version"
_FRAME = re.compile(r'File "(.+)", line (\d+)')
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception)\b")

type Log = Callable[[str, str, str, Mapping[str, Any]], None]
"""Takes level, step, message and details: a line of logs.txt."""


class ServerStartError(OsmosisError):
    """The rollout server did not come up; the message holds its last line and where to read on."""

    code = "ROLLOUT_SERVER"


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """What is started, and with what.

    Attributes:
        python: Interpreter of the rollout's environment.
        rollout_dir: Working directory of the server.
        entrypoint: The script, absolute.
        shown: The script as people know it: `rollouts/x/main.py`.
        environ: The whole environment, without what starting adds.
        api_key: The run's own, for every server of it.
        artifact_root: Where the server writes trajectories and artifacts.
        record_path: server.json.
        log_path: Named in errors.
        redactor: Takes the run's secrets out of what the server says.
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
    api_key: str
    artifact_root: Path
    record_path: Path
    log_path: Path
    redactor: Redactor
    port: int | None = None
    admission_timeout_s: float | None = None
    agent_timeout_s: float | None = None
    grader_timeout_s: float | None = None

    def silence_s(self, timeout_s: float | None) -> float:
        """How long a server with work may answer nothing while it runs what has this limit."""
        return LEASE_S if timeout_s is None else min(LEASE_S, max(0.0, timeout_s) + HANG_MARGIN_S)


@dataclass(eq=False, slots=True)
class RolloutServer:
    """One server process, from its start to its end.

    Attributes:
        lines: Its last output.
        lost: Set to why, once it died or is blocked; what was in flight on it is lost.
        health: What it last said about itself.
        sdk_version: Of the SDK in it, when it says so.
        port_taken: Whether it did not start because something else has its port.
        hung: Whether it was given up because it no longer answered.
        where: The traceback of a blocked server's main thread.
        answered_at: When it last answered anything (monotonic).
        clients: Those that are not lent.
        cancelling: Cancellations under way.
        in_flight: Rollouts that are on it.
        company: How many were on it when it was lost.
    """

    spec: ServerSpec
    child: Child
    port: int
    instance_id: str
    lines: deque[str]
    lost: asyncio.Future[str]
    health: dict[str, Any] = field(default_factory=dict)
    sdk_version: str | None = None
    port_taken: bool = False
    hung: bool = False
    where: str | None = None
    answered_at: float = field(default_factory=time.monotonic)
    clients: list[RolloutClient] = field(default_factory=list)
    cancelling: set[asyncio.Task[None]] = field(default_factory=set)
    in_flight: int = 0
    company: int = 0

    @classmethod
    def spawn(cls, spec: ServerSpec, log: Log) -> Self:
        """Start the process; server.json is written before anything is asked of it.

        Raises:
            ServerStartError: The interpreter cannot be started.
            OsmosisError: server.json cannot be written.
        """
        port = spec.port or free_port()
        instance_id = uuid.uuid4().hex
        env = dict(spec.environ)
        env.pop("VIRTUAL_ENV", None)
        env |= loopback_no_proxy(env) | {
            "_OSMOSIS_ROLLOUT_PORT": str(port),
            "_OSMOSIS_ROLLOUT_HOST": "127.0.0.1",
            "_OSMOSIS_ROLLOUT_API_KEY": spec.api_key,
            "_OSMOSIS_ROLLOUT_ARTIFACT_ROOT": str(spec.artifact_root),
            bootstrap.INSTANCE_VARIABLE: instance_id,
            bootstrap.NAME_VARIABLE: spec.shown,
            "PYTHONUNBUFFERED": "1",
        }
        lines: deque[str] = deque(maxlen=200)

        def on_line(line: str) -> None:
            lines.append(line)
            log("INFO", "rollout-server", line, {})

        try:
            child = Child.start(
                [str(spec.python), bootstrap.__file__, str(spec.entrypoint)],
                env=env,
                cwd=spec.rollout_dir,
                on_line=on_line,
                redactor=spec.redactor,
                guard_variable=bootstrap.GUARD_VARIABLE,
            )
        except OSError as error:
            raise ServerStartError(f"The rollout server cannot be started: {error}") from error
        try:
            write_owned(spec.record_path, own(child.pid, instance_id=instance_id, port=port))
        except OSError as error:
            child.kill()  # a process that no later start could find must not stay
            raise storage_error(spec.record_path, error) from error
        log("INFO", "server", "started the rollout server", {"pid": child.pid, "port": port})
        return cls(spec, child, port, instance_id, lines, asyncio.get_running_loop().create_future())

    async def become_healthy(self) -> None:
        """Wait until it answers /health as the process that was started.

        Raises:
            ServerStartError: It ended, another process answers, or nothing does in time.
        """
        deadline = time.monotonic() + HEALTH_LIMIT_S
        pause = 0.05
        problem = "it did not listen"
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self.child.wait()
            if not self.child.alive:
                taken = [line for line in self.lines if "address already in use" in line.lower()]
                self.port_taken = bool(taken)
                if self.spec.port and any(str(self.spec.port) in line for line in taken):
                    raise ServerStartError(
                        f"Port {self.port} is in use by another process, so {self.spec.shown} cannot serve on it; choose "
                        "another --rollout-port, or leave it out for a free one."
                    )
                served = self.child.status != 0
                remedy = "" if served else "It must serve on the port in _OSMOSIS_ROLLOUT_PORT until it is stopped. "
                raise ServerStartError(
                    f"The rollout server {self.spec.shown} {self.child.describe_exit()} before it was ready: "
                    f"{self.last_words() or 'it printed nothing'}\n"
                    f"{remedy}Its output is in {self.spec.log_path} (lines [rollout-server])."
                )
            try:
                response = await self.get_health(HEALTH_REQUEST_LIMIT_S)
            except httpx.HTTPError as error:
                if not isinstance(error, httpx.ConnectError):
                    problem = f"GET /health: {type(error).__name__}"
            else:
                problem = self._read_health(response) or ""
                if not problem:
                    return
            if time.monotonic() >= deadline:
                raise ServerStartError(
                    f"The rollout server {self.spec.shown} did not answer within {HEALTH_LIMIT_S:.0f} s ({problem}).\n"
                    f"It must serve on the port in _OSMOSIS_ROLLOUT_PORT. Its output is in {self.spec.log_path} "
                    "(lines [rollout-server])."
                )
            pause = min(pause * 1.25, 0.2)

    def _read_health(self, response: httpx.Response) -> str | None:
        """Take what the server says about itself; returns why that is not enough yet."""
        try:
            data = response.json()
        except ValueError:
            data = None
        named = response.headers.get(INSTANCE_HEADER)
        if named is None and isinstance(data, dict):
            named = data.get("instance_id")
        if named is not None and named != self.instance_id:
            self.port_taken = True
            remedy = "choose another --rollout-port" if self.spec.port else "run the command again"
            raise ServerStartError(
                f"Port {self.port} is served by another process (instance {str(named)[:40]}), not by "
                f"{self.spec.shown}; {remedy}."
            )
        if response.status_code == 401:
            raise ServerStartError(
                f"{self.spec.shown} refuses the key of this run (HTTP 401 from /health): it gives "
                "create_rollout_server an api_key of its own.\nLeave that argument out; each run brings a fresh key."
            )
        if response.status_code != 200:
            return f"GET /health answered {response.status_code}"
        if not isinstance(data, dict):
            return "GET /health answered no JSON object"
        self.health = data
        self.sdk_version = response.headers.get(SDK_HEADER)
        return None

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
        spec = self.spec
        return RolloutClient(
            url=url, http_client=http, admission_timeout_sec=spec.admission_timeout_s, api_key=spec.api_key
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
    def loss(self) -> Loss:
        """How it was lost; only once `lost` is set."""
        killed = not self.hung and self.child.status in (-signal.SIGKILL, -signal.SIGTERM)
        return Loss(self.lost.result(), self.hung, killed, self.company <= 1, self.where)

    def cancel_soon(self, rollout_id: str) -> None:
        """Have a rollout cancelled in the background."""

        async def cancel() -> None:
            client = self.lend()
            try:
                with contextlib.suppress(Exception):  # its lease ends the rollout anyway
                    await client.cancel_rollout(rollout_id)
            finally:
                self.give_back(client)

        task = asyncio.create_task(cancel())
        self.cancelling.add(task)
        task.add_done_callback(self.cancelling.discard)

    def last_words(self) -> str:
        """The last line that says something; with what led there: a line before an `exit()`, the place of a traceback."""
        spoken = [line.strip() for line in self.lines if line.strip()]
        if len(spoken) > 1 and " called exit(" in spoken[-1]:
            return f"{spoken[-1]} (before that: {spoken[-2]})"
        frames = [found for found in map(_FRAME.match, spoken) if found]
        own = [found for found in frames if found[1].startswith(f"{self.spec.rollout_dir}/")]
        if frames and _EXCEPTION.match(spoken[-1]):
            last = (own or frames)[-1]
            return f"{spoken[-1]} ({last[1]}, line {last[2]})"
        return spoken[-1] if spoken else ""

    async def look_inside(self) -> bool:
        """Have a silent server print where its main thread stands; whether that is in a grader."""
        self.lines.append("")
        self.child.signal(signal.SIGUSR1)  # the bootstrap registered a traceback for it
        await asyncio.sleep(0.3)
        lines = list(self.lines)
        start = len(lines) - lines[::-1].index("") if "" in lines else 0
        frames = lines[start:]
        self.where = "\n".join(frames[:30]) or None
        return any(frame.rstrip().endswith(" in grade") for frame in frames)

    async def end(self, grace_s: Callable[[], float]) -> bool:
        """End the process group and the clients; whether the end is confirmed."""
        if not self.lost.done():
            self.lost.set_result("the rollout server was stopped")
        for task in self.cancelling:
            task.cancel()
        confirmed = await self.child.stop(grace_s)
        for client in self.clients:
            await client.aclose()
            await client.http.aclose()
        return confirmed


def free_port() -> int:
    """A port of 127.0.0.1 that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
