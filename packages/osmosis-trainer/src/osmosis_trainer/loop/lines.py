"""The files that grow by a line: metrics.jsonl and rollouts.jsonl. Whole lines only; a resume keeps those of its state.

Lines are not forced to the disk one by one: the files are forced before a state that they belong to is saved.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from osmosis_ai.evaluation.atomic import storage_error, write_atomic
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
    def open(cls, path: Path, keep: Callable[[Mapping[str, Any]], bool] | None = None) -> Self:
        """Open or make a file with its whole lines, or with those that `keep` accepts.

        Raises:
            OsmosisError: The file cannot be written.
        """
        if keep is not None and path.is_file():
            write_atomic(path, b"".join(json_line(record) for record in read_lines(path) if keep(record)))
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            present = os.fstat(descriptor).st_size
            end = _whole(path, present)
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
