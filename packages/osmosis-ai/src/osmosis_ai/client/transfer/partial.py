"""What has arrived of an object before it is whole: `<name>.partial` beside its place, and which version it belongs to.

Owns: that file and its lock, so that an interrupted transfer goes on in another process. What is asked of the store is
the objects' business.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path

from osmosis_ai.errors import ConflictError, ValidationError

_READ_BYTES = 1 << 20
_LONGEST_VERSION = 1024


class BusyError(ConflictError):
    """Another process is writing the same file."""


class PartialFile:
    """A file that grows, and the version of the object it is the beginning of (`<name>.partial.etag`).

    Args:
        file: Open for reading and writing, locked.
        path: Its place.
    """

    def __init__(self, file: FileIO, path: Path) -> None:
        self._file = file
        self.path = path
        self._version_path = path.with_name(f"{path.name}.etag")

    @property
    def size(self) -> int:
        """Bytes that are there."""
        return os.fstat(self._file.fileno()).st_size

    def version(self) -> str | None:
        """The version that the bytes belong to; None where it is not known."""
        try:
            descriptor = os.open(self._version_path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            text = file.read(_LONGEST_VERSION + 1)
        return text.decode("latin-1") if 0 < len(text) <= _LONGEST_VERSION else None

    def begin(self, version: str | None) -> None:
        """Empty it for an object of this version; without one it cannot be gone on with later."""
        self._file.seek(0)
        self._file.truncate()  # first: bytes of one version never stand under the name of another
        self._forget_version()
        encoded = (version or "").encode("latin-1", "replace")
        if 0 < len(encoded) <= _LONGEST_VERSION:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(self._version_path, flags, 0o666), "wb") as file:
                file.write(encoded)

    def go_on(self, size: int) -> None:
        """Keep the first bytes only; what is written next follows them."""
        self._file.truncate(size)
        self._file.seek(size)

    def digest(self) -> hashlib._Hash:
        """SHA-256 of what is there, which can be updated."""
        digest = hashlib.sha256()
        self._file.seek(0)
        while chunk := self._file.read(_READ_BYTES):
            digest.update(chunk)
        return digest

    def write(self, chunk: bytes) -> None:
        """Append."""
        rest = memoryview(chunk)
        while rest:
            rest = rest[self._file.write(rest) :]

    def move(self, target: Path) -> None:
        """Put it in its place; it is whole."""
        self._forget_version()
        self.path.replace(target)

    def discard(self) -> None:
        """Remove it; nothing can go on from it."""
        self._forget_version()
        self.path.unlink(missing_ok=True)

    def _forget_version(self) -> None:
        with suppress(FileNotFoundError):
            self._version_path.unlink()


@contextmanager
def partial_file(path: Path) -> Generator[PartialFile]:
    """The partial file of a place, with what an earlier try left in it; nobody else of ours writes it meanwhile.

    Raises:
        BusyError: Another process of ours writes it.
        ValidationError: Something else than a file is there.
        OSError: It cannot be made; links are not followed.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    while True:
        descriptor = os.open(path, flags, 0o666)
        with FileIO(descriptor, "r+") as file:  # unbuffered: what a killed process had written is all there
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
                raise ValidationError(f"{path} is in the way of a download; remove it.")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BusyError(f"Another download is writing {path}; wait for it.") from None
            if not _is_still(path, descriptor):
                continue  # it was moved into its place before we had the lock: that file is not ours to write
            yield PartialFile(file, path)
            return


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
