"""An object store in a process of its own that serves one file, and dies or stalls in the middle of it when told to.

Run as a program it prints its port, then one JSON line a request. `ObjectStore` starts and ends it for a test.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self


class ObjectStore:
    """A running store.

    Args:
        content: What every URL of it gives.
        folder: Where it keeps the content and its log.
        dies_after: Bytes of a body after which the process kills itself.
        stalls_after: Bytes of a body after which nothing more comes.
    """

    def __init__(
        self, content: bytes, folder: Path, *, dies_after: int | None = None, stalls_after: int | None = None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "content").write_bytes(content)
        self._log = folder / "log"
        options = [f"--dies-after={dies_after}"] if dies_after is not None else []
        options += [f"--stalls-after={stalls_after}"] if stalls_after is not None else []
        with self._log.open("wb") as log:
            self.process = subprocess.Popen([sys.executable, __file__, str(folder / "content"), *options], stdout=log)

    def __enter__(self) -> Self:
        end = time.monotonic() + 30
        while not (lines := self._log.read_text().splitlines()):
            assert time.monotonic() < end and self.process.poll() is None, "the object store did not start"
            time.sleep(0.02)
        self.url = f"http://127.0.0.1:{lines[0]}"
        return self

    def __exit__(self, *_error: object) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def asked(self) -> list[dict[str, Any]]:
        """Each request: `path`, `range`, `sent` (status)."""
        return [json.loads(line) for line in self._log.read_text().splitlines()[1:]]


def _serve(file: Path, dies_after: int | None, stalls_after: int | None) -> None:
    content = file.read_bytes()
    tag = f'"{hashlib.sha256(content).hexdigest()}"'

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            start, status = 0, 200
            found = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
            if found and self.headers.get("If-Range", tag) == tag:
                start, status = int(found[1]), 206
            if start >= len(content):
                status = 416
            body = content[start:] if status != 416 else b""
            print(json.dumps({"path": self.path, "range": self.headers.get("Range"), "sent": status}), flush=True)
            self.send_response(status)
            self.send_header("ETag", tag)
            self.send_header("Content-Length", str(len(body)))
            if status == 206:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            self.end_headers()
            limit = dies_after if dies_after is not None else stalls_after
            self.wfile.write(body[:limit])
            self.wfile.flush()
            if limit is None:
                return
            if stalls_after is not None:
                time.sleep(600)
            time.sleep(0.3)  # what was sent arrives before the connection is reset
            os.kill(os.getpid(), signal.SIGKILL)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--dies-after", type=int)
    parser.add_argument("--stalls-after", type=int)
    given = parser.parse_args()
    _serve(given.file, given.dies_after, given.stalls_after)
