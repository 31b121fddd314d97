"""A platform and object store whose answers a test writes down: real sockets on loopback, every request kept.

Owns: routes and the record of requests. An import of local runs with its rules is `stub_platform`.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True)
class Asked:
    """One request as it arrived; header names in lower case."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Answer:
    """A reply; `json` becomes the body unless there are `data`."""

    json: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    data: bytes | None = None
    cut_after: int | None = None
    """Close the connection after this many bytes of the body."""


type Route = Answer | dict[str, Any] | Callable[[Asked], Answer | dict[str, Any]]


class StubApi:
    """Serves routes such as `GET /api/cli/verify` while entered; unknown ones are 404, a list is used up one by one."""

    def __init__(self, routes: dict[str, Route | list[Route]] | None = None) -> None:
        self.routes: dict[str, Any] = dict(routes or {})
        self.asked: list[Asked] = []
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def calls(self) -> list[str]:
        """Method and path of each request."""
        return [f"{one.method} {one.path}" for one in self.asked]

    def environment(self, token: str = "tok-stub") -> dict[str, str]:
        """Variables that point the client here with a token."""
        return {
            "OSMOSIS_PLATFORM_URL": self.url,
            "OSMOSIS_TOKEN": token,
            "OSMOSIS_TOKEN_PLATFORM_URL": self.url,
        }

    def __enter__(self) -> Self:
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def _go(self) -> None:
                parts = urlsplit(self.path)
                length = int(self.headers.get("Content-Length") or 0)
                asked = Asked(
                    self.command,
                    parts.path,
                    dict(parse_qsl(parts.query)),
                    {name.lower(): value for name, value in self.headers.items()},
                    self.rfile.read(length),
                )
                answer = stub.answer(asked)
                body = answer.data if answer.data is not None else json.dumps(answer.json).encode()
                if answer.json is None and answer.data is None:
                    body = b""
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if answer.cut_after is not None:
                    self.wfile.write(body[: answer.cut_after])
                    self.close_connection = True
                    return
                with contextlib.suppress(ConnectionError):  # the client may have heard enough
                    self.wfile.write(body)

            do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = _go

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def answer(self, asked: Asked) -> Answer:
        """Keep the request and find its answer."""
        with self._lock:
            self.asked.append(asked)
            route = self.routes.get(f"{asked.method} {asked.path}")
            if isinstance(route, list):
                route = route.pop(0) if len(route) > 1 else route[0]
        if callable(route):
            route = route(asked)
        if route is None:
            return Answer({"error": f"no route {asked.method} {asked.path}"}, 404)
        return route if isinstance(route, Answer) else Answer(route)
