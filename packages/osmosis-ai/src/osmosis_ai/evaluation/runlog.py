"""logs.txt of a run: one redacted line for everything worth knowing later, appended over all invocations."""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from osmosis_ai.evaluation.atomic import storage_error, write_atomic
from osmosis_ai.evaluation.jsontext import printable
from osmosis_ai.evaluation.manifest import utc_timestamp
from osmosis_ai.evaluation.redaction import Redactor

logs_name = "logs.txt"

type Level = Literal["DEBUG", "INFO", "WARNING", "ERROR"]
type Step = Literal[
    "run", "resume", "preflight", "deps", "server", "listener", "tunnel", "cloudflared", "schedule", "dispatch",
    "rollout-server", "result", "cancel", "trajectory",
]  # fmt: skip

_breaks = re.compile(r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+")
_buffer_bytes = 1 << 16


class RunLog:
    """Appends lines to a run's logs.txt; usable from several threads.

    Lines are gathered and written when 64 KiB are together, at a warning or an error, and at `flush`. A full disk
    loses log lines, never the run: `failed` then says why.
    """

    def __init__(self, run_dir: Path, redactor: Redactor) -> None:
        self.path = run_dir / logs_name
        self.redactor = redactor
        self.failed: str | None = None
        self._lock = threading.Lock()  # the server's output pump and the event loop both log
        self._lines: list[bytes] = []
        self._size = 0
        try:
            self._descriptor = os.open(
                self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600
            )
        except OSError as error:
            raise storage_error(self.path, error) from error

    def line(self, level: Level, step: str, message: str, details: Mapping[str, Any] | None = None) -> None:
        """Append `<UTC> <LEVEL> [<step>] <message> <details as sorted compact JSON>`; line breaks become spaces."""
        text = f"[{step}] {message}"
        if details:
            text += " " + json.dumps(details, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
        text = _breaks.sub(" ", self.redactor.text(text))
        data = f"{utc_timestamp()} {level} {printable(text)}\n".encode()
        with self._lock:
            self._lines.append(data)
            self._size += len(data)
            if self._size >= _buffer_bytes or level in ("WARNING", "ERROR"):
                self._write()

    def flush(self) -> None:
        """Write what is gathered."""
        with self._lock:
            self._write()

    def close(self) -> None:
        """Write what is gathered and release the file."""
        with self._lock:
            self._write()
            if self._descriptor >= 0:
                with contextlib.suppress(OSError):
                    os.close(self._descriptor)
                self._descriptor = -1

    def _write(self) -> None:
        data, self._lines, self._size = b"".join(self._lines), [], 0
        view = memoryview(data)
        while view and self._descriptor >= 0:
            try:
                view = view[os.write(self._descriptor, view) :]
            except OSError as error:
                self.failed = storage_error(self.path, error).message
                return


def rewrite_redacted(run_dir: Path, redactor: Redactor) -> None:
    """Cut values out of a whole logs.txt, as before an upload; a missing file stays missing.

    Raises:
        OsmosisError: It cannot be read or written.
    """
    path = run_dir / logs_name
    try:
        text = path.read_bytes().decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return
    except OSError as error:
        raise storage_error(path, error) from error
    redacted = redactor.text(text)
    if redacted != text:
        write_atomic(path, redacted.encode("utf-8", "surrogateescape"))
