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
from osmosis_ai.redaction import Redactor

logs_name = "logs.txt"

type Level = Literal["DEBUG", "INFO", "WARNING", "ERROR"]

_breaks = re.compile(r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+")
_steering = re.compile(r"[\x00-\x08\x0e-\x1b\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")  # terminals obey these


class RunLog:
    """Appends lines to a run's logs.txt, each at once in one write; usable from several threads.

    A full disk loses log lines, never the run: `failed` then says why.
    """

    def __init__(self, run_dir: Path, redactor: Redactor) -> None:
        self.path = run_dir / logs_name
        self.redactor = redactor
        self.failed: str | None = None
        self._lock = threading.Lock()  # the server's output pump and the event loop both log
        try:
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise storage_error(self.path, error) from error

    def line(self, level: Level, step: str, message: str, details: Mapping[str, Any] | None = None) -> None:
        """Append `<UTC> <LEVEL> [<step>] <message> <details as sorted compact JSON>`.

        Line breaks become spaces, what would steer a terminal that shows the file is spelled out.
        """
        text = f"[{step}] {message}"
        if details:
            text += " " + json.dumps(details, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
        text = _breaks.sub(" ", self.redactor.text(text))
        text = _steering.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
        data = f"{utc_timestamp()} {level} {printable(text)}\n".encode()
        with self._lock:
            if self._descriptor < 0:
                return
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(self._descriptor, view) :]
            except OSError as error:
                self.failed = storage_error(self.path, error).message

    def close(self) -> None:
        """Release the file; later lines are lost."""
        with self._lock:
            if self._descriptor >= 0:
                with contextlib.suppress(OSError):
                    os.close(self._descriptor)
                self._descriptor = -1


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
