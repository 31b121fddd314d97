"""The gateway: per-rollout chat routes on Starlette and uvicorn, in the caller's event loop.

Owns the routes, keys, streaming, keep-alive and hang-ups. What a caller may say is `rules` and `responses_input`, how
answers look is `chat_face` and `responses_face`, how a call is made and retried is `call` and `limiter`, what a rollout
has said so far is `session`, who answers is a `Policy`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import importlib.util
import logging
import socket
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Protocol

from osmosis_ai.errors import ConflictError, NetworkError, ValidationError
from osmosis_ai.extras import optional_imports
from osmosis_ai.gateway.assembly import Assembly
from osmosis_ai.gateway.call import PolicyCall
from osmosis_ai.gateway.chat_face import PING, ChatFace, compact_json, error_body, error_status
from osmosis_ai.gateway.exchange import (
    JSON_HEADERS,
    STREAM_HEADERS,
    HungUpError,
    Receive,
    Scope,
    Send,
    Wire,
    hang_up,
    read_body,
)
from osmosis_ai.gateway.limiter import Limiter
from osmosis_ai.gateway.policy import ChatRequest, Policy, PolicyError
from osmosis_ai.gateway.prices import PriceTable, shipped_prices
from osmosis_ai.gateway.record import CallRecord, SessionRecord
from osmosis_ai.gateway.responses_face import ResponsesFace
from osmosis_ai.gateway.responses_input import parse_responses
from osmosis_ai.gateway.rules import MAX_BODY_BYTES, parse_chat, parse_json_object
from osmosis_ai.gateway.session import OpenSession, Session

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of silence the wire allows.

    Attributes:
        ping_s: A stream that says nothing for so long gets a comment.
        grace_s: In keep-alive mode a pending JSON reply is committed after so long ...
        space_s: ... and gets a space after each further so long.
    """

    ping_s: float = 15.0
    grace_s: float = 90.0
    space_s: float = 30.0


class Face(Protocol):
    """How one reply looks; made by a route, driven by the gateway."""

    def whole(self, assembly: Assembly) -> bytes: ...  # noqa: D102
    def opening(self) -> bytes: ...  # noqa: D102
    def piece(self, delta: dict[str, Any]) -> bytes: ...  # noqa: D102
    def closing(self, assembly: Assembly) -> bytes: ...  # noqa: D102
    def failure(self, error: PolicyError) -> bytes: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Asked:
    """A parsed call of either route; `face` is made with the model name that the reply tells."""

    request: ChatRequest
    model: str
    face: Callable[[str], Face]


class Gateway:
    """The chat HTTP surface of a run.

    Args:
        policy: Answers the calls.
        keep_alive: Whether replies that are not streamed are kept alive by spaces (behind tunnels that cut idle
            connections); `advertise` can turn it on later.
        prices: The price table; the shipped one by default.
        on_call: Told of every finished call, as `(rollout_id, record)`; must not block.
        limiter: The gate of all calls; a fresh one by default.
        timing: Silence limits.
        max_body_bytes: Larger requests are refused with 413.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        keep_alive: bool = False,
        prices: PriceTable | None = None,
        on_call: Callable[[str, CallRecord], None] | None = None,
        limiter: Limiter | None = None,
        timing: Timing | None = None,
        max_body_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        self.policy = policy
        self.limiter = limiter or Limiter()
        self.port = 0
        self.url = ""
        self._base = ""
        self._keep_alive = keep_alive
        self._prices = prices or shipped_prices()
        self._on_call = on_call
        self._timing = timing or Timing()
        self._max_body = max_body_bytes
        self._sessions: dict[str, OpenSession] = {}
        self._server: Any = None
        self._serving: asyncio.Task[None] | None = None
        self._stop: asyncio.Event | None = None

    # -- life cycle

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Bind, listen and serve in the running loop. The socket that is bound is the one that serves.

        Raises:
            NetworkError: The address cannot be bound.
        """
        with optional_imports("eval"):
            import uvicorn

        # without a handler of its own, Python prints uvicorn's warnings to the user's stderr
        logging.getLogger("uvicorn").addHandler(logging.NullHandler())
        listener = _bind(host, port)
        self.port = listener.getsockname()[1]
        shown = f"[{host}]" if ":" in host else ("127.0.0.1" if host in ("", "0.0.0.0") else host)  # noqa: S104
        self.url = f"http://{shown}:{self.port}"
        self._base = self._base or self.url
        config = uvicorn.Config(
            self._application(),
            http="httptools" if importlib.util.find_spec("httptools") else "h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            backlog=2048,
            timeout_keep_alive=600,
            timeout_graceful_shutdown=2,
        )

        class Server(uvicorn.Server):
            @contextlib.contextmanager
            def capture_signals(self) -> Generator[None]:
                yield  # signals belong to the run, not to us

            async def main_loop(self) -> None:
                await self.on_tick(0)
                await stop.wait()  # instead of waking ten times a second

        stop = self._stop = asyncio.Event()
        self._server = Server(config)
        self._serving = asyncio.create_task(self._server.serve(sockets=[listener]), name="gateway")
        while not self._server.started:
            if self._serving.done():
                listener.close()
                await self._serving
                raise NetworkError(f"the gateway stopped while starting on {self.url}")
            await asyncio.sleep(0.002)

    def advertise(self, base_url: str, *, keep_alive: bool) -> None:
        """Sessions opened from now on use this base (a tunnel's), with or without keep-alive."""
        self._base = base_url.rstrip("/")
        self._keep_alive = keep_alive

    def open(self, rollout_id: str, item: str = "") -> Session:
        """A session with a key of its own, good until `close`.

        Args:
            rollout_id: Whose it is.
            item: What it is a try at, by a name that is the same in every run (`ChatRequest.item`).

        Raises:
            ConflictError: The rollout has one already.
            ValidationError: The id is no path segment.
        """
        if rollout_id in self._sessions:
            raise ConflictError(f"rollout {rollout_id!r} already has a gateway session; close it first")
        if not rollout_id or "/" in rollout_id:
            raise ValidationError(f"rollout id {rollout_id!r} cannot be part of a URL: use one path segment")
        state = OpenSession(rollout_id, self._base, keep_alive=self._keep_alive, item=item, on_call=self._on_call)
        self._sessions[rollout_id] = state
        return state.session

    async def close(self, rollout_id: str) -> SessionRecord:
        """End a session: its key dies, calls in flight are cancelled and recorded, the policy forgets it."""
        state = self._sessions.pop(rollout_id, None)
        if state is None:
            return SessionRecord(rollout_id)
        state.closed = True
        for task in list(state.tasks):
            task.cancel()
        if state.tasks:
            await asyncio.gather(*state.tasks, return_exceptions=True)
        try:
            await self.policy.close_session(rollout_id)
        except Exception:
            # what the rollout did is known and must not be lost to the policy's housekeeping
            _log.warning("the policy could not close the session of rollout %s", rollout_id, exc_info=True)
        return state.record()

    async def aclose(self) -> None:
        """Close all sessions and stop serving. The policy stays open: whoever made it closes it."""
        for rollout_id in list(self._sessions):
            await self.close(rollout_id)
        if self._server is not None and self._serving is not None and self._stop is not None:
            self._server.should_exit = True
            self._stop.set()
            await self._serving
            self._server = self._serving = None

    # -- routes

    def _application(self) -> Any:
        from starlette.applications import Starlette
        from starlette.exceptions import HTTPException
        from starlette.requests import Request
        from starlette.responses import Response
        from starlette.routing import Route

        def not_found(request: Request, error: Exception) -> Response:
            status = error.status_code if isinstance(error, HTTPException) else 404
            return Response(b'{"detail":"Not Found"}', status, media_type="application/json")

        routes = [
            Route("/v1/rollouts/{rollout_id}/chat/completions", _Endpoint(self, "chat", chat_call), methods=["POST"]),
            Route(
                "/v1/rollouts/{rollout_id}/responses", _Endpoint(self, "responses", responses_call), methods=["POST"]
            ),
        ]
        application = Starlette(routes=routes, exception_handlers={404: not_found, 405: not_found})
        application.router.redirect_slashes = False
        return application

    def _authorized(self, scope: Scope) -> OpenSession | None:
        """The open session of the path, if the request carries its key. Takes the same time whatever is wrong."""
        given = b""
        for name, value in scope["headers"]:
            if name == b"authorization":
                scheme, _, token = value.partition(b" ")
                given = token.strip() if scheme.lower() == b"bearer" else b""
        state = self._sessions.get(scope["path_params"]["rollout_id"])
        expected = _NOBODY if state is None else state.key
        return state if hmac.compare_digest(given, expected) and state is not None and not state.closed else None

    async def serve(
        self, route: str, parse: Callable[[dict[str, Any], str], Asked], scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answer one request of a route."""
        wire = Wire(send)
        state = self._authorized(scope)
        if state is None:
            await wire.reply(401, _UNAUTHORIZED)
            return
        index = state.next_index()
        asked: Asked | None = None
        refusal: PolicyError | None = None
        try:
            raw = await read_body(scope, receive, self._max_body)
            asked = parse(parse_json_object(raw), state.session.rollout_id)
        except HungUpError:
            return
        except PolicyError as error:
            refusal = error
        if state.closed:
            await wire.reply(401, _UNAUTHORIZED)
            return
        request = None if asked is None else state.build_on(asked.request)
        model = (asked.model if asked is not None else "") or self.policy.model
        call = PolicyCall(index, request, policy=self.policy, limiter=self.limiter, prices=self._prices, route=route)
        if asked is None or request is None:
            assert refusal is not None
            state.keep(call.record(model=model, error=refusal))
            await wire.reply(refusal.status, compact_json(error_body(refusal)))
            return
        work = asyncio.create_task(self._work(state, call, asked.face(model), model, wire, stream=request.stream))
        state.tasks.add(work)
        work.add_done_callback(lambda task: _ended(task, state, call, model))
        watch = asyncio.create_task(hang_up(receive))
        try:
            if request.stream:
                await self._attend_stream(work, watch, wire)
            else:
                await self._attend_reply(work, watch, wire, keep_alive=state.keep_alive)
        finally:
            watch.cancel()
            if not work.done():
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)

    async def _work(
        self, state: OpenSession, call: PolicyCall, face: Face, model: str, wire: Wire, *, stream: bool
    ) -> tuple[int, bytes]:
        """Make the call, streaming it as it comes; give status and body of a reply that is not streamed."""

        async def forward(delta: dict[str, Any]) -> None:
            await wire.body(face.piece(delta))

        try:
            if stream:
                await wire.start(STREAM_HEADERS)
                await wire.body(face.opening())
            assembly = await call.run(forward if stream else None)
        except PolicyError as error:
            state.keep(call.record(model=model, error=error))
            if stream:
                await wire.body(face.failure(error), last=True)
            return error_status(error), compact_json(error_body(error))
        except asyncio.CancelledError:
            state.keep(call.record(model=model, cancelled=True))
            if stream:
                await wire.body(face.failure(_closed_error()), last=True)
            raise
        state.keep(call.record(model=model))
        if stream:
            await wire.body(face.closing(assembly), last=True)
            return 200, b""
        return 200, face.whole(assembly)

    async def _attend_stream(self, work: asyncio.Task[Any], watch: asyncio.Task[None], wire: Wire) -> None:
        """Until the stream ends: comments into its silence, an end when the caller hangs up."""
        while not work.done():
            quiet_for = self._timing.ping_s - wire.silent_s
            if quiet_for <= 0:
                await wire.body(PING)
                continue
            await asyncio.wait({work, watch}, timeout=quiet_for, return_when=asyncio.FIRST_COMPLETED)
            if watch.done() and not work.done():
                return
        if not work.cancelled():
            work.result()

    async def _attend_reply(
        self, work: asyncio.Task[tuple[int, bytes]], watch: asyncio.Task[None], wire: Wire, *, keep_alive: bool
    ) -> None:
        """Until the answer is there: hang-ups, and spaces in keep-alive mode; then the reply."""
        while not work.done():
            wait = None if not keep_alive else self._timing.space_s if wire.started else self._timing.grace_s
            done, _ = await asyncio.wait({work, watch}, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
            if watch in done and not work.done():
                return
            if not done:
                if not wire.started:
                    await wire.start(JSON_HEADERS)
                await wire.body(b" ")
        status, body = (503, compact_json(error_body(_closed_error()))) if work.cancelled() else work.result()
        if wire.started:
            await wire.body(body, last=True)
        else:
            await wire.reply(status, body)


class _Endpoint:
    """A route as an ASGI application: Starlette matches, we answer."""

    def __init__(self, gateway: Gateway, name: str, parse: Callable[[dict[str, Any], str], Asked]) -> None:
        self._gateway, self._name, self._parse = gateway, name, parse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._gateway.serve(self._name, self._parse, scope, receive, send)


_UNAUTHORIZED = b'{"detail":"Unauthorized"}'
_NOBODY = b"no session has this key, because it is no hexadecimal number"


def chat_call(body: dict[str, Any], rollout_id: str) -> Asked:
    """A call of the chat completions route."""
    call = parse_chat(body, rollout_id)
    return Asked(call.request, call.caller_model, lambda model: ChatFace(model, include_usage=call.include_usage))


def responses_call(body: dict[str, Any], rollout_id: str) -> Asked:
    """A call of the Responses route."""
    call = parse_responses(body, rollout_id)
    return Asked(call.request, call.caller_model, lambda model: ResponsesFace(model, body))


def _ended(task: asyncio.Task[Any], state: OpenSession, call: PolicyCall, model: str) -> None:
    """A call's task is over; one that was cancelled before its first step has left no record yet."""
    state.tasks.discard(task)
    if not call.recorded:
        state.keep(call.record(model=model, cancelled=True))


def _closed_error() -> PolicyError:
    return PolicyError("the rollout was closed while the model answered", kind="unavailable", status=503)


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's delay (40 ms a call) off only for sockets that name TCP; accepted ones inherit it
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(2048)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise NetworkError(
            f"the gateway cannot listen on {host}:{port}: {error.strerror}; choose another port, or none for a free one"
        ) from error
    return listener
