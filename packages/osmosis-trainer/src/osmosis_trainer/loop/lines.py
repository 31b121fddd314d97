"""The files that grow by a line: metrics.jsonl and rollouts.jsonl. Whole lines only, cut back to a position on resume.

Lines are not forced to the disk one by one: a state that is saved names how much of each file belongs to it, and the
files are forced before it is.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from osmosis_ai.evaluation.atomic import storage_error
from osmosis_ai.evaluation.events import json_line


class Lines:
    """One file of JSON lines; one process writes it.

    Args:
        path: The file.
        descriptor: Open for appending.
        size: Its length in bytes.
    """

    def __init__(self, path: Path, descriptor: int, size: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self.size = size

    @classmethod
    def open(cls, path: Path, size: int | None = None) -> Self:
        """Open or make a file, cut back to `size` bytes, or to its last whole line.

        Raises:
            OsmosisError: The file cannot be written.
        """
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            present = os.fstat(descriptor).st_size
            end = _whole(path, present if size is None else min(size, present))
            if end < present:
                os.ftruncate(descriptor, end)
        except OSError as error:
            raise storage_error(path, error) from error
        return cls(path, descriptor, end)

    def add(self, record: Mapping[str, Any]) -> None:
        """Append a line; what cannot be written whole is not written at all.

        Raises:
            OsmosisError: The disk is full or refuses.
        """
        data = json_line(record)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError as error:
            os.ftruncate(self._descriptor, self.size)
            raise storage_error(self.path, error) from error
        self.size += len(data)

    def force(self) -> int:
        """Force what was added to the disk; gives the file's length.

        Raises:
            OsmosisError: The disk refuses.
        """
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise storage_error(self.path, error) from error
        return self.size

    def close(self) -> None:
        """Release the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a file; none where there is no file, and what is no whole record is left out."""
    try:
        stream = path.open("rb")
    except FileNotFoundError:
        return
    with stream:
        for line in stream:
            if not line.endswith(b"\n"):
                return
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict):
                yield record


def _whole(path: Path, end: int) -> int:
    """The end of the last whole line within the first `end` bytes."""
    with path.open("rb") as stream:
        while end > 0:
            start = max(0, end - (1 << 16))
            stream.seek(start)
            newline = stream.read(end - start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            end = start
    return 0
