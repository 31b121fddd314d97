"""A platform that only takes imports of local evaluations: real sockets, strict about what it is sent.

Owns the four import calls of the platform's API and the objects behind their upload URLs. Everything else is 404.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class StubPlatform:
    """Serves on loopback while entered; keeps what it was sent.

    Attributes:
        declarations: The bodies of `POST /eval-runs/imports`, in order.
        objects: The uploaded files of the last declaration, by path.
        calls: Method and path of each request.
        headers: The headers of each request, as sent.
    """

    def __init__(self, token: str = "tok-stub") -> None:
        self.token = token
        self.declarations: list[dict[str, Any]] = []
        self.objects: dict[str, bytes] = {}
        self.calls: list[tuple[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.finalized = False
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        platform = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None:
                pass

            def do_POST(self) -> None:
                self._reply(*platform.handle(self, "POST"))

            def do_GET(self) -> None:
                self._reply(*platform.handle(self, "GET"))

            def do_PUT(self) -> None:
                self._reply(*platform.handle(self, "PUT"))

            def _reply(self, status: int, body: dict[str, Any]) -> None:
                payload = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def handle(self, request: BaseHTTPRequestHandler, method: str) -> tuple[int, dict[str, Any]]:
        """Answer one request: status and body."""
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        with self._lock:
            self.calls.append((method, request.path))
            self.headers.append({name.lower(): value for name, value in request.headers.items()})
            if method == "PUT" and request.path.startswith("/objects/"):
                self.objects[self._paths()[int(request.path.rpartition("/")[2])]] = body
                return 200, {}
            if request.headers.get("Authorization") != f"Bearer {self.token}":
                return 401, {"error": "no", "code": "TOKEN_INVALID"}
            route = re.sub(r"/imports/[^/]+", "/imports/ID", request.path.removeprefix("/api/cli"))
            match method, route:
                case "POST", "/eval-runs/imports":
                    self._declare(json.loads(body))
                    return 200, self._session()
                case "POST", "/eval-runs/imports/ID/uploads":
                    return 200, {"files": [self._upload(path) for path in json.loads(body)["paths"]]}
                case "POST", "/eval-runs/imports/ID/uploads/complete":
                    return 200, {}
                case "POST", "/eval-runs/imports/ID/finalize":
                    return self._finalize()
            return 404, {"error": f"no {method} {request.path}"}

    def _declare(self, declaration: dict[str, Any]) -> None:
        self.declarations.append(declaration)
        self.objects.clear()
        self.finalized = False

    def _paths(self) -> list[str]:
        return [file["path"] for file in self.declarations[-1]["files"]]

    def _upload(self, path: str) -> dict[str, Any]:
        declared = next(file for file in self.declarations[-1]["files"] if file["path"] == path)
        url = f"{self.url}/objects/{self._paths().index(path)}"
        return {**declared, "upload": {"method": "simple", "presigned_url": url, "upload_headers": {}}}

    def _finalize(self) -> tuple[int, dict[str, Any]]:
        for file in self.declarations[-1]["files"]:
            stored = self.objects.get(file["path"])
            if stored is None or hashlib.sha256(stored).hexdigest() != file["sha256"] or len(stored) != file["size"]:
                return 409, {"error": f"{file['path']} is missing or differs"}
        self.finalized = True
        return 200, self._session()

    def _session(self) -> dict[str, Any]:
        files = [
            {**file, "state": "uploaded" if file["path"] in self.objects else "pending"}
            for file in self.declarations[-1]["files"]
        ]
        session: dict[str, Any] = {
            "session_id": "imp_1",
            "status": "finalized" if self.finalized else "uploading",
            "expected_files": len(files),
            "uploaded_files": sum(file["state"] == "uploaded" for file in files),
            "files": files,
        }
        if self.finalized:
            name = self.declarations[-1]["run"]["name"]
            session |= {
                "eval_run_id": "ev_1", "eval_run_name": name, "platform_url": f"{self.url}/lab/evals/ev_1"
            }  # fmt: skip
        return session
