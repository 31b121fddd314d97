"""A quick tunnel of cloudflared to the gateway, for agents that run where our loopback address does not lead.

Owns the child process, what its log lines mean and when the tunnel counts as ready (eval-run.md 8 and 12). Only chat
calls cross it; results are polled over loopback.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import sys
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from osmosis_ai.errors import NetworkError, ValidationError
from osmosis_ai.evaluation import bootstrap
from osmosis_ai.evaluation.process import Child, own, write_owned
from osmosis_ai.evaluation.rollout_server import Log

PUBLIC_URL = re.compile(r"https://[a-z0-9-]+\.trycloudflare\.com")
REGISTERED = "registered tunnel connection"
_RATE_LIMITED = ("429 too many requests", "error code: 1015", "failed to unmarshal quick tunnel")


class TunnelError(NetworkError):
    """The tunnel could not be opened, or never became reachable."""


class Tunnel:
    """One cloudflared process and the public URL it serves.

    Attributes:
        limit_s: Until the URL is known and ready.
        registered_wait_s: How long cloudflared's own signal is waited for before the URL is tried.
        probe_pause_s: Between two tries of the URL.
        probes_after_signal: Tries of the URL once cloudflared says it is connected; after them the run goes on.
        stable_s: A ready tunnel must live so long.
    """

    limit_s = 30.0
    registered_wait_s = 1.0
    probe_pause_s = 1.0
    probes_after_signal = 5
    stable_s = 0.1

    def __init__(
        self, *, record_path: Path, log_path: Path, log: Log, environ: Mapping[str, str] | None = None
    ) -> None:
        self._record_path = record_path
        self._log_path = log_path
        self._log = log
        self._environ = dict(os.environ if environ is None else environ)
        self._lines: deque[str] = deque(maxlen=50)
        self._child: Child | None = None
        self._url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._registered = asyncio.Event()
        self._rate_limited = asyncio.Event()

    async def open(self, local_url: str) -> str:
        """Start cloudflared and wait until its URL is ready.

        Returns:
            The public base URL.

        Raises:
            ValidationError: cloudflared is not installed.
            TunnelError: It ended, was refused, or did not become ready in time.
        """
        program = shutil.which("cloudflared", path=self._environ.get("PATH"))
        if program is None:
            raise ValidationError(
                "cloudflared is not on PATH, and --tunnel cloudflared needs it.\n"
                "Install it (https://github.com/cloudflare/cloudflared/releases), "
                "or bring a tunnel of your own: --advertise-url URL --listener-port PORT."
            )
        command = [program, "tunnel", "--config", os.devnull, "--url", local_url, "--no-autoupdate"]
        self._child = Child.start(
            [sys.executable, bootstrap.__file__, "--exec", *command],
            env=self._environ,
            on_line=self._on_line,
            guard_variable=bootstrap.GUARD_VARIABLE,
        )
        port = int(local_url.rsplit(":", 1)[1])
        write_owned(self._record_path, own(self._child.pid, instance_id="cloudflared", port=port))
        self._log("INFO", "tunnel", "started cloudflared", {"pid": self._child.pid})
        try:
            async with asyncio.timeout(self.limit_s):
                url = await self._before_its_end(self._url)
                self._log("INFO", "tunnel", "cloudflared has a public URL", {"url": url})
                await self._ready(url)
        except TimeoutError:
            raise TunnelError(
                f"The tunnel was not ready within {self.limit_s:.0f} s"
                + (f" at {self._url.result()}" if self._url.done() else ": cloudflared named no public URL")
                + f". Its output is in {self._log_path} (lines [cloudflared]).\n"
                "Try again, or bring a tunnel of your own: --advertise-url URL --listener-port PORT."
            ) from None
        await self._stays_alive()
        return url

    async def death(self) -> str:
        """Wait until cloudflared ends; says how."""
        assert self._child is not None
        await self._child.wait()
        return f"cloudflared {self._child.describe_exit()}"

    async def stop(self, grace_s: float = 5.0) -> bool:
        """End cloudflared; an end that is not confirmed leaves tunnel.json for the next start to reap."""
        if self._child is None:
            return True
        confirmed = await self._child.stop(lambda: grace_s)
        if confirmed:
            self._record_path.unlink(missing_ok=True)
        return confirmed

    def kill(self) -> None:
        """End cloudflared at once, without waiting."""
        if self._child is not None:
            self._child.kill()

    def _on_line(self, line: str) -> None:
        self._lines.append(line)
        self._log("INFO", "cloudflared", line, {})
        lowered = line.lower()
        if any(sign in lowered for sign in _RATE_LIMITED):
            self._rate_limited.set()
        if not self._url.done() and (match := PUBLIC_URL.search(line)) and match[0] != "https://api.trycloudflare.com":
            self._url.set_result(match[0])
        if REGISTERED in lowered:
            self._registered.set()

    async def _before_its_end[T](self, wanted: asyncio.Future[T]) -> T:
        """What is waited for, unless cloudflared ends or is refused first."""
        assert self._child is not None
        end = asyncio.create_task(self._child.wait())
        limited = asyncio.create_task(self._rate_limited.wait())
        try:
            await asyncio.wait([wanted, end, limited], return_when=asyncio.FIRST_COMPLETED)
            if self._rate_limited.is_set():
                raise TunnelError(
                    "Cloudflare limits how many quick tunnels this address may create (HTTP 429 or error 1015).\n"
                    "Wait some minutes, or bring a tunnel of your own: --advertise-url URL --listener-port PORT."
                )
            if wanted.done():
                return wanted.result()
            raise self._ended()
        finally:
            end.cancel()
            limited.cancel()
            if isinstance(wanted, asyncio.Task):
                wanted.cancel()

    def _ended(self) -> TunnelError:
        assert self._child is not None
        last = next((line.strip() for line in reversed(self._lines) if line.strip()), "it printed nothing")
        return TunnelError(
            f"cloudflared {self._child.describe_exit()} before the tunnel was ready: {last}\n"
            f"Its output is in {self._log_path} (lines [cloudflared])."
        )

    async def _ready(self, url: str) -> None:
        """Until the URL answers from here, or cloudflared is connected and it cannot be tried from here."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.registered_wait_s):
                await self._before_its_end(asyncio.ensure_future(self._registered.wait()))
        tries = 0
        while True:
            started = time.monotonic()
            status, problem = await self._before_its_end(asyncio.ensure_future(self._probe(url)))
            if status is not None and status < 500:
                return
            tries += self._registered.is_set()
            if status is None and tries >= self.probes_after_signal:
                self._log(
                    "WARNING",
                    "tunnel",
                    f"{url} cannot be tried from this machine ({problem}); going on, because cloudflared is connected",
                    {},
                )
                return
            await asyncio.sleep(max(0.0, self.probe_pause_s - (time.monotonic() - started)))

    async def _probe(self, url: str) -> tuple[int | None, str]:
        """The status of a bare visit (the gateway answers 404), or why there is none."""
        import httpx

        try:
            async with httpx.AsyncClient(timeout=5.0) as client:
                return (await client.get(url)).status_code, ""
        except httpx.HTTPError as error:
            return None, f"{type(error).__name__}: {error}"

    async def _stays_alive(self) -> None:
        await asyncio.sleep(self.stable_s)
        assert self._child is not None
        if not self._child.alive:
            raise self._ended()
