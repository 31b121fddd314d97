"""One `git http-backend` process behind one request, bytes streaming both ways. Who may ask is api/git.py's business.

Whatever happens - the client leaves, a limit, a shutdown - the process and its children are ended before `serve` returns.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import structlog
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from osmosis_platform.errors import ServiceError, TooLargeError, UnavailableError
from osmosis_platform.git.command import command, environment

log = structlog.get_logger(__name__)

IDLE_S = 120.0
LIMIT_S = 3600.0
_CLEANUP_S = 3.0
_CHUNK = 256 << 10
_HEAD_BYTES = 64 << 10
# Packs, keep-alives and pkt-lines around the pack itself.
_BODY_MARGIN = 1 << 20
_PASSED = frozenset({"content-type", "cache-control", "expires", "pragma", "content-length"})


class GitBackendError(UnavailableError):
    """The git process ended without an answer."""

    code = "GIT_BACKEND_FAILED"


@dataclass
class GitExchange:
    """One request to a repository, answered by git.

    Attributes:
        repository: The bare repository.
        operation: Path below it: `info/refs`, `git-upload-pack` or `git-receive-pack`.
        query: The query string, for `info/refs`.
        user: For git's reflog environment; never a secret.
        max_push_bytes: Largest pack that is taken.
        idle_s: How long neither side may be silent.
        limit_s: How long the whole exchange may take.
        finish: Awaited once git has ended well, before the client sees the end of the answer.
    """

    repository: Path
    operation: str
    query: str
    user: str
    max_push_bytes: int
    idle_s: float = IDLE_S
    limit_s: float = LIMIT_S
    finish: Callable[[], Awaitable[None]] | None = None
    _begun: bool = field(default=False, init=False)
    _moved: float = field(default=0.0, init=False)

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs the exchange.

        Raises:
            TooLargeError: The body is over the limit, and the answer had not begun.
            GitBackendError: git gave no answer.
        """
        headers = Headers(scope=scope)
        declared = headers.get("content-length", "")
        if declared.isdigit() and int(declared) > self.max_push_bytes + _BODY_MARGIN:
            raise self._too_large()
        process = await asyncio.create_subprocess_exec(
            *command(["http-backend"], config=self._configuration()),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment(self._variables(scope, headers)),
            start_new_session=True,
            limit=_HEAD_BYTES,
        )
        try:
            await self._exchange(process, receive, send)
        except ServiceError as error:
            if not self._begun:
                raise
            log.warning("git exchange cut", repository=self.repository.name, cause=error.message)
        finally:
            await _end(process, tidy=self.operation == "git-receive-pack")
            await process.wait()

    def _configuration(self) -> tuple[str, ...]:
        return (
            f"safe.directory={self.repository}",
            f"receive.maxInputSize={self.max_push_bytes}",
            "receive.autogc=false",
            "receive.advertisePushOptions=false",
            "receive.unpackLimit=100",
            "http.receivepack=true",
            "http.uploadpack=true",
            "http.getanyfile=false",
            "transfer.advertiseSID=false",
            "uploadpack.allowAnySHA1InWant=false",
        )

    def _variables(self, scope: Scope, headers: Headers) -> Mapping[str, str]:
        variables = {
            "GIT_PROJECT_ROOT": str(self.repository.parent),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": f"/{self.repository.name}/{self.operation}",
            "REQUEST_METHOD": scope["method"],
            "QUERY_STRING": self.query,
            "REMOTE_USER": self.user,
            "CONTENT_TYPE": headers.get("content-type", ""),
        }
        # No CONTENT_LENGTH: of a body that breaks off http-backend would wait for the rest in a busy loop. So it is the end
        # of its input that ends it.
        if headers.get("content-encoding", "").lower() in {"gzip", "x-gzip"}:
            variables["HTTP_CONTENT_ENCODING"] = "gzip"
        protocol = headers.get("git-protocol", "")
        if protocol and len(protocol) < 100 and protocol.isascii() and protocol.isprintable():
            variables["GIT_PROTOCOL"] = protocol
        return variables

    async def _exchange(self, process: asyncio.subprocess.Process, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        self._moved = loop.time()
        upward = asyncio.create_task(self._feed(process, receive))
        downward = asyncio.create_task(self._answer(process, send))
        errors = asyncio.create_task(self._errors(process))
        watch = asyncio.create_task(self._watch())
        try:
            # The answer ends the exchange; a client that leaves, a body over the limit and silence end it early.
            pending = {upward, downward, watch}
            while not downward.done():
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in done - {downward}:
                    task.result()
            downward.result()
            if await asyncio.wait_for(process.wait(), 30.0) == 0 and self.finish is not None:
                await self.finish()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            if said := (await errors).strip():
                log.info("git said", repository=self.repository.name, text=said[:500])
        except ClientDisconnect:
            log.info("git client left", repository=self.repository.name, operation=self.operation)
        finally:
            for task in (upward, downward, errors, watch):
                task.cancel()
            await asyncio.gather(upward, downward, errors, watch, return_exceptions=True)

    async def _feed(self, process: asyncio.subprocess.Process, receive: Receive) -> None:
        """The request's body into git, then waits for the client to leave."""
        assert process.stdin is not None
        total, open_ = 0, True
        while True:
            message: Message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            body = message.get("body", b"")
            total += len(body)
            if total > self.max_push_bytes + _BODY_MARGIN:
                raise self._too_large()
            self._moved = asyncio.get_running_loop().time()
            if open_ and body:
                # git may refuse early and stop reading: its answer says why.
                try:
                    process.stdin.write(body)
                    await process.stdin.drain()
                except (BrokenPipeError, ConnectionResetError):
                    open_ = False
            if not message.get("more_body", False):
                with suppress(BrokenPipeError, ConnectionResetError):
                    process.stdin.close()
                break
        while (await receive())["type"] != "http.disconnect":
            pass
        raise ClientDisconnect

    async def _answer(self, process: asyncio.subprocess.Process, send: Send) -> None:
        """Git's CGI answer to the client."""
        assert process.stdout is not None
        try:
            head = await process.stdout.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            raise GitBackendError("git did not answer; try again, and ask an administrator if it stays so.") from None
        status, headers = parse_cgi_head(head)
        self._begun = True
        await send({"type": "http.response.start", "status": status, "headers": headers})
        while chunk := await process.stdout.read(_CHUNK):
            self._moved = asyncio.get_running_loop().time()
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            self._moved = asyncio.get_running_loop().time()

    @staticmethod
    async def _errors(process: asyncio.subprocess.Process) -> str:
        """The end of what git says on stderr; all of it is read, so that git never waits for us."""
        assert process.stderr is not None
        kept = b""
        while chunk := await process.stderr.read(4096):
            kept = (kept + chunk)[-4096:]
        return kept.decode("utf-8", "replace")

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + self.limit_s
        while True:
            now = loop.time()
            if now >= end or now - self._moved >= self.idle_s:
                what = f"{self.limit_s:.0f} s" if now >= end else f"{self.idle_s:.0f} s of silence"
                raise UnavailableError(f"The git exchange was ended after {what}; try again.", code="GIT_TIMEOUT")
            await asyncio.sleep(min(end - now, self.idle_s - (now - self._moved)) + 0.01)

    def _too_large(self) -> TooLargeError:
        return TooLargeError(f"The push is over the limit of {self.max_push_bytes} bytes; push less, or in steps.")


def parse_cgi_head(head: bytes) -> tuple[int, list[tuple[bytes, bytes]]]:
    """Status and headers of a CGI answer (RFC 3875, 6.3); only headers that are meant for clients."""
    status, headers = 200, []
    for line in head.decode("latin-1").split("\r\n"):
        name, _, value = line.partition(":")
        name, value = name.strip().lower(), value.strip()
        if name == "status" and value[:3].isdigit():
            status = int(value[:3])
        elif name in _PASSED:
            headers.append((name.encode(), value.encode("latin-1")))
    return status, headers


async def _end(process: asyncio.subprocess.Process, *, tidy: bool) -> None:
    """Ends git and its children.

    Args:
        process: The first of them, and so of their group.
        tidy: Let them find the end of their input first: then they remove what has arrived of a push, which no signal
            makes them do.
    """
    with suppress(ProcessLookupError, PermissionError):
        try:
            if tidy and process.stdin is not None:
                process.stdin.close()
                for _ in range(round(_CLEANUP_S / 0.05)):
                    os.killpg(process.pid, 0)  # an error once the last of them is gone
                    await asyncio.sleep(0.05)
        finally:  # also when a shutdown does not wait
            os.killpg(process.pid, signal.SIGKILL)
