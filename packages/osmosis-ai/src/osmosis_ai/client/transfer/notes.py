"""What is known of an upload in parts, so that another process can go on with it: the dataset, the file, what is stored.

Owns: that file in the cache, removed when the upload is over. It holds no URL, so nothing in it opens anything.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Any

_LARGEST_BYTES = 4 << 20  # ten thousand parts with long names
_VERSION = 1


class UploadNotes:
    """The notes of one upload; a line of JSON says what it is, one more each part that is stored.

    Args:
        file: What is uploaded.
        place: Where the notes lie.
    """

    def __init__(self, file: Path, place: Path) -> None:
        self._file = file
        self._place = place
        self._open: FileIO | None = None
        self._made: list[Path] = []
        self.dataset_id: str | None = None
        self.parts: dict[int, str] = {}

    def begin(self, dataset_id: str) -> None:
        """Note a new upload. Where that cannot be, the upload goes its way without notes."""
        self.dataset_id, self.parts = dataset_id, {}
        with suppress(OSError):
            if self._open is None:
                folder = self._place.parent
                self._made = [path for path in (folder, *folder.parents) if not path.exists()]
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._open = _locked(self._place, create=True)
            if self._open is not None:
                self._open.truncate(0)
                self._open.seek(0)
                self._write({"version": _VERSION, "dataset_id": dataset_id, **_fingerprint(self._file)})

    def keep(self, number: int, etag: str) -> None:
        """Note a part that is stored."""
        with suppress(OSError):
            self._write({"part": number, "etag": etag})

    def forget(self) -> None:
        """Remove the notes: the upload is over."""
        with suppress(OSError):
            if self._open is not None:
                self._place.unlink(missing_ok=True)
            for folder in self._made:
                folder.rmdir()
        self.close()

    def close(self) -> None:
        """Let go of the notes; they stay."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def read(self) -> None:
        """Take over what an earlier process noted, if it is of this very file and nobody works on it."""
        with suppress(OSError):
            self._open = _locked(self._place, create=False)
            if self._open is None or os.fstat(self._open.fileno()).st_size > _LARGEST_BYTES:
                return
            head, *lines = self._open.read().decode("utf-8", "replace").splitlines() or [""]
            told = _object(head)
            same = told.items() >= {"version": _VERSION, **_fingerprint(self._file)}.items()
            if not same or not isinstance(told.get("dataset_id"), str):
                return
            self.dataset_id = told["dataset_id"]
            for part in map(_object, lines):
                if isinstance(part.get("part"), int) and isinstance(part.get("etag"), str):
                    self.parts[part["part"]] = part["etag"]

    def _write(self, value: dict[str, Any]) -> None:
        if self._open is not None:
            # A line break first: a line that a killed process left torn does not spoil this one.
            self._open.seek(0, os.SEEK_END)
            begun = b"\n" if self._open.tell() else b""
            self._open.write(begun + json.dumps(value).encode())


@contextmanager
def upload_notes(file: Path, folder: Path, *purpose: str) -> Generator[UploadNotes]:
    """The notes of a file's upload, with what an earlier process left; they stay unless they are forgotten.

    Args:
        file: What is uploaded.
        folder: Where notes are kept; made only for an upload that has some.
        purpose: What tells this upload from others of the file, such as platform and workspace.
    """
    key = hashlib.sha256("\0".join((*purpose, str(file.resolve()))).encode("utf-8", "surrogateescape")).hexdigest()
    notes = UploadNotes(file, folder / f"{key}.jsonl")
    notes.read()
    try:
        yield notes
    finally:
        notes.close()


def _locked(place: Path, *, create: bool) -> FileIO | None:
    """The file of notes, or None when it is no file or another process has it."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_CREAT if create else 0)
    file = FileIO(os.open(place, flags, 0o600), "r+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return file
    except BlockingIOError:
        pass
    file.close()
    return None


def _fingerprint(file: Path) -> dict[str, int]:
    status = file.stat()
    return {"size": status.st_size, "mtime_ns": status.st_mtime_ns, "inode": status.st_ino}


def _object(line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
