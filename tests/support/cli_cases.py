"""Replays recorded command-line cases: builds each case's sandbox, runs `osmosis`, reduces what happened to facts.

Facts are the exit status, which stream carries what, the shape of JSON, the files made, the requests sent to the case's
own platform. Prose is not compared; a case may name words (`mention`) that must occur.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

PROSE = {"message", "prompt", "summary", "notes", "warnings", "description", "stdout", "stderr"}
EXACT = {
    "code", "status", "operation", "schema_version", "command", "action", "platform_code", "status_code", "flags",
    "missing", "key", "name", "scope", "identity", "valid", "fixed", "required_paths", "available", "has_more",
    "next_offset", "total_count", "next_cursor", "token_store", "effective_source", "persistent_login", "logged_in",
    "source", "field", "selected_types", "files_downloaded", "files_skipped", "unit", "completed", "total",
}  # fmt: skip
_NO_ROUTE: dict[str, Any] = {"status": 404, "json": {"error": "no such route", "code": "ROUTE_NOT_FOUND"}}
_RUN = re.compile(r"(\.osmosis/evals/(?:\.locks/)?)[a-z]+-[a-z]+-\d{1,2}\b")


class Platform:
    """Answers what the case says it answers, on loopback, and keeps what it was asked.

    Args:
        routes: By `METHOD /path?query`, `METHOD /path` or `*`.
    """

    def __init__(self, routes: dict[str, Any]) -> None:
        self.requests: list[dict[str, Any]] = []
        platform = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:
                pass

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                platform.requests.append(_request(self.command, self.path, self.headers, body))
                names = (f"{self.command} {self.path}", f"{self.command} {self.path.partition('?')[0]}", "*")
                route = next((routes[name] for name in names if name in routes), _NO_ROUTE)
                status = route.get("status", 200)
                text = route["text"] if "text" in route else json.dumps(route.get("json", {}))
                data = text.replace("{PLATFORM}", platform.url).encode() if status != 204 else b""
                self.send_response(status)
                for name, value in route.get("headers", {}).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_DELETE = do_PUT = do_PATCH = answer

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


def run_case(case: dict[str, Any], sandbox: Path, binary: Path) -> dict[str, Any]:
    """Run a case in a fresh directory, against a platform of its own where it has one.

    Args:
        case: A line of the case file.
        sandbox: An empty directory; `home` and `ws` are made in it.
        binary: The command under test.
    """
    if "platform" not in case:
        return _run(case, sandbox, binary, None)
    with Platform(case["platform"].get("routes", {})) as platform:
        return {**_run(case, sandbox, binary, platform), "requests": platform.requests}


def _run(case: dict[str, Any], sandbox: Path, binary: Path, platform: Platform | None) -> dict[str, Any]:
    places = {
        "SBX": sandbox,
        "WS": sandbox / "ws",
        "HOME": sandbox / "home",
        "PLATFORM": platform.url if platform else "",
    }

    def filled(text: str) -> str:
        for name, place in places.items():
            text = text.replace(f"{{{name}}}", str(place))
        return text

    _build(case, sandbox, filled)
    before = _tree(sandbox)
    environment = {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "HOME": str(sandbox / "home"),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "TERM": "dumb",
        "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
    }
    if platform:
        urls = ("OSMOSIS_PLATFORM_URL", "OSMOSIS_TOKEN_PLATFORM_URL")
        environment |= {"OSMOSIS_TOKEN": "tok-test"} | dict.fromkeys(urls, platform.url)
    for name, value in case.get("env", {}).items():
        environment[name] = filled(value or "")
        if value is None:
            del environment[name]
    done = subprocess.run(
        [binary, *(filled(argument) for argument in case.get("argv", ()))],
        cwd=sandbox / case.get("cwd", "ws"),
        env=environment,
        input=case.get("stdin", ""),
        capture_output=True,
        text=True,
        timeout=120,
    )
    after = _tree(sandbox)
    written = [name for name in after if not name.endswith("/") and before.get(name) != after[name]]
    return {
        "exit_code": done.returncode,
        "stdout": done.stdout,
        "stderr": done.stderr,
        "files": {
            "written": _names(written),
            "dirs_created": _names(name for name in after if name.endswith("/") and name not in before),
            "removed": sorted(name for name in before if name not in after),
            "modes": {
                name: oct((sandbox / name).stat().st_mode & 0o777) for name in written if name.startswith("home/")
            },
        },
    }


def _request(method: str, path: str, headers: Message, body: bytes) -> dict[str, Any]:
    scopes = {"git": headers["X-Osmosis-Git"], "workspace": headers["X-Osmosis-Workspace"]}
    request = {"method": method, "path": path, "scope": {name: value for name, value in scopes.items() if value}}
    try:
        return {**request, "body": json.loads(body) if body else None}
    except ValueError:
        return {**request, "body": body.decode("utf-8", "replace")}


def facts(case: dict[str, Any], seen: dict[str, Any]) -> dict[str, Any]:
    """What is compared of a run."""
    out, err = seen["stdout"], seen["stderr"]
    found: dict[str, Any] = {"exit_code": seen["exit_code"]}
    if case.get("kind") == "help":
        found["tokens"] = sorted(set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", out)))
        found["stderr_empty"] = not err.strip()
        return found
    for stream, text, word in (("stdout", out, "json"), ("stderr", err, "json-lines")):
        objects = _objects(text)
        if not text.strip():
            found[stream] = "empty"
        elif objects is None:
            found[stream] = "text"
        else:
            found[stream] = word
            shapes = [_shape(value) for value in objects]
            found[f"{stream}_shape"] = shapes[0] if stream == "stdout" and len(shapes) == 1 else shapes
    if found["stdout"] == "text" and "--plain" in case.get("argv", ()):
        found["stdout_lines"] = len(out.splitlines())
    if found["stderr"] == "text":
        found["error_prefix"] = any(line.startswith("Error:") for line in err.splitlines())
    if any(seen["files"].values()):
        found["files"] = seen["files"]
    if case.get("plain_exact"):
        found["stdout_text"] = out
    if "requests" in seen:
        sent_all = [{key: sent[key] for key in ("method", "path", "scope")} for sent in seen["requests"]]
        found["requests"] = _in_order(sent_all)
        if case.get("body_exact"):
            found["bodies"] = [sent["body"] for sent in seen["requests"]]
    return found


def _in_order(requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Requests of the API as they came; those for objects sorted behind them.

    Several objects travel at a time, and the recordings of one and the same manifest differ in their order.
    """
    objects = [request for request in requests if not request["path"].startswith("/api/")]
    return [
        *(request for request in requests if request not in objects),
        *sorted(objects, key=lambda request: (request["method"], request["path"])),
    ]


def differences(case: dict[str, Any], seen: dict[str, Any]) -> list[str]:
    """How a run differs from what the case expects, by the rules of the shared replay.py."""
    expected = {key: value for key, value in case["expect"].items() if key != "mention"}
    if "requests" in expected:
        expected["requests"] = _in_order(expected["requests"])
    found = facts(case, seen)
    if "stdout_text" not in expected:
        found.pop("stdout_text", None)
    different = [
        f"{key}: expected {expected.get(key)}, got {found.get(key)}"
        for key in sorted(expected.keys() | found.keys())
        if found.get(key) != expected.get(key)
    ]
    text = seen["stdout"] + seen["stderr"]
    return different + [f"{word!r} is not mentioned" for word in case.get("mention", []) if word not in text]


def _build(case: dict[str, Any], sandbox: Path, filled: Any) -> None:
    for name in ("home", "ws", *case.get("dirs", [])):
        (sandbox / name).mkdir(parents=True, exist_ok=True)
    for name, content in case.get("files", {}).items():
        path = sandbox / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, dict):
            path.write_bytes(bytes.fromhex(content["hex"]))
        else:
            path.write_text(filled(content), encoding="utf-8")
    for name, target in case.get("links", {}).items():
        (sandbox / name).parent.mkdir(parents=True, exist_ok=True)
        (sandbox / name).symlink_to(filled(target))
    for repository in case.get("git", []):
        place = sandbox / repository["dir"]
        place.mkdir(parents=True, exist_ok=True)
        _git(place, "init", "-q", "-b", repository.get("branch", "main"))
        if origin := repository.get("origin"):
            _git(place, "remote", "add", "origin", origin)
        if repository.get("commit"):
            _git(place, "add", "-A")
            _git(place, "commit", "-q", "--allow-empty", "-m", "c")
        for name, content in repository.get("after_commit_files", {}).items():
            (sandbox / name).parent.mkdir(parents=True, exist_ok=True)
            (sandbox / name).write_text(filled(content), encoding="utf-8")


def _git(place: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.com")
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", *identity, *arguments], cwd=place, env=environment, check=True, capture_output=True)


def _tree(root: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in root.rglob("*"):
        name = path.relative_to(root).as_posix()
        if "/.git/" in f"/{name}/" or "/__pycache__" in f"/{name}":
            continue
        if path.is_symlink():
            found[name] = "link"
        elif path.is_dir():
            found[f"{name}/"] = ""
        else:
            found[name] = path.read_bytes().hex()
    return found


def _names(names: Any) -> list[str]:
    return sorted({_RUN.sub(r"\1<RUN>", name) for name in names})


def _objects(text: str) -> list[Any] | None:
    try:
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError:
        return None


def _shape(value: Any, key: str = "") -> Any:
    """A JSON value reduced to types, with the values of keys whose value is part of the contract."""
    if isinstance(value, dict):
        return {
            name: f"<{type(item).__name__}>" if name in PROSE and not isinstance(item, dict) else _shape(item, name)
            for name, item in value.items()
        }
    if key in EXACT:
        return value
    if isinstance(value, list):
        if value and isinstance(value[0], dict | list):
            return [_shape(value[0], key)]
        return [f"<{type(item).__name__}>" for item in value[:1]]
    return f"<{type(value).__name__}>"
