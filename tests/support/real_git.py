"""The real git as a user runs it, and an ASGI application behind a real server, for tests of the git host."""

import os
import socket
import subprocess
import threading
import time

import uvicorn
from osmosis_ai.workspace.scaffold import TEMPLATE_ROOT

TEMPLATE_ROLLOUTS = sorted(path.parent.name for path in TEMPLATE_ROOT.glob("rollouts/*/main.py"))
"""What a new hosted repository holds."""

GIT_ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.com",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.com",
    "LC_ALL": "C",
}


def git(*arguments, cwd=None, env=None, input=None, status=0):
    """Runs the real git as a user would; its standard output."""
    done = subprocess.run(
        ["git", *map(str, arguments)], cwd=cwd, env={**GIT_ENVIRONMENT, "HOME": str(cwd or "/"), **(env or {})},
        input=input, capture_output=True, text=not isinstance(input, bytes), timeout=120,
    )  # fmt: skip
    assert (done.returncode == 0) == (status == 0), (arguments, done.stdout, done.stderr)
    return (done.stdout if status == 0 else done.stderr).strip()


class Server:
    """The application behind uvicorn in a thread."""

    def __init__(self, application, *, certificate=None, key=None) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.url = f"{'https' if certificate else 'http'}://127.0.0.1:{self.port}"
        config = uvicorn.Config(
            application, log_level="error", http="httptools", timeout_graceful_shutdown=2,
            ssl_certfile=certificate, ssl_keyfile=key,
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self.socket]}, daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(10)
