"""Uploads of the files backend while they arrive: a sparse file that parts are written into, and a record of the parts.

The record is a file of JSON lines: what the upload is, then a line for each part that is on the disk. A part that begins
again is struck out first, so that a body cut off half-way never passes for the part it overwrote.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from osmosis_platform.blobs.store import Upload, UploadedPart, upload_gone
from osmosis_platform.errors import InvalidRequestError

_WRITEBACK_BYTES = 32 << 20
_advise = getattr(os, "posix_fadvise", None)


class Staging:
    """One upload.

    Args:
        directory: Of all uploads.
        upload_id: Which.
    """

    def __init__(self, directory: Path, upload_id: str) -> None:
        self.data = directory / f"{upload_id}.data"
        self.record = directory / f"{upload_id}.parts"

    def create(self, key: str, upload: Upload) -> None:
        """Makes both files; the data file has its full length and no blocks yet."""
        with self.data.open("xb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.truncate(upload.size_bytes)
        facts = {"key": key, "size": upload.size_bytes, "part_size": upload.part_size, "parts": upload.total_parts}
        with self.record.open("xb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(json.dumps(facts).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        sync_directory(self.record.parent)

    def facts(self) -> dict[str, Any] | None:
        """Key, size, part size and number of parts; None when the upload is over."""
        lines = self._lines()
        return lines[0] if lines and self.data.exists() else None

    def parts(self) -> list[UploadedPart]:
        """What arrived whole, by number."""
        found: dict[int, UploadedPart] = {}
        for line in self._lines()[1:]:
            if "etag" in line:
                found[line["number"]] = UploadedPart(**line)
            else:
                found.pop(line["number"], None)
        return [found[number] for number in sorted(found)]

    def note(self, line: dict[str, Any]) -> None:
        """Adds a line to the record, on the disk when this returns.

        Raises:
            MissingError: The upload was aborted.
        """
        try:
            file = os.open(self.record, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except FileNotFoundError:
            raise upload_gone() from None
        try:
            os.write(file, json.dumps(line).encode() + b"\n")
            os.fsync(file)
        finally:
            os.close(file)

    def remove(self) -> None:
        """Forgets it."""
        self.data.unlink(missing_ok=True)
        self.record.unlink(missing_ok=True)

    def _lines(self) -> list[dict[str, Any]]:
        try:
            text = self.record.read_bytes()
        except FileNotFoundError:
            return []
        # A line cut off by a crash or a full disk was never acknowledged.
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith(b"\n") and _is_json(line)]


class PartWriter:
    """Takes the body of one PUT, in order. One thread at a time.

    Args:
        staging: The upload.
        number: Of the part, from 1.
        offset: Where it begins in the object.
        size_bytes: How many bytes it has, exactly.

    Raises:
        MissingError: The upload was completed or aborted.
    """

    def __init__(self, staging: Staging, number: int, offset: int, size_bytes: int) -> None:
        self._staging = staging
        self._number = number
        self._start = self._written_back = self._at = offset
        self._end = offset + size_bytes
        self._hash = hashlib.sha256()
        # Hashing takes as long as writing, and neither needs the interpreter: each batch is hashed beside its write.
        self._hasher = ThreadPoolExecutor(1, thread_name_prefix="hash")
        try:
            self._file = os.open(staging.data, os.O_WRONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise upload_gone() from None
        try:
            if any(part.number == number for part in staging.parts()):
                staging.note({"number": number})
        except BaseException:
            self.close()
            raise

    def write(self, batch: Sequence[bytes]) -> None:
        """Adds the bytes of some chunks.

        Raises:
            InvalidRequestError: `BLOB_SIZE`: more than the part has.
            OSError: The disk is full, or broken.
        """
        if self._at + sum(map(len, batch)) > self._end:
            raise self._wrong_size("more bytes came")
        hashing = self._hasher.submit(self._update, batch)
        for chunk in batch:
            view = memoryview(chunk)
            while view:
                count = os.pwrite(self._file, view, self._at)
                self._at += count
                view = view[count:]
        hashing.result()
        if self._at - self._written_back >= _WRITEBACK_BYTES:
            self._start_writeback()

    def finish(self) -> UploadedPart:
        """Puts the part on the disk and into the record.

        Raises:
            InvalidRequestError: `BLOB_SIZE`: bytes are missing.
            MissingError: The upload was aborted meanwhile.
        """
        if self._at != self._end:
            raise self._wrong_size(f"only {self._at - self._start} came")
        os.fdatasync(self._file)
        part = UploadedPart(self._number, self._end - self._start, self._hash.hexdigest())
        self._staging.note(asdict(part))
        return part

    def close(self) -> None:
        """Lets the file go."""
        self._hasher.shutdown()
        os.close(self._file)

    def _update(self, batch: Sequence[bytes]) -> None:
        for chunk in batch:
            self._hash.update(chunk)

    def _start_writeback(self) -> None:
        # The kernel starts to write these pages now, so that the fsync at the end has little left, and lets go of the
        # ones that are on the disk: an upload must not push everything else out of memory.
        if _advise is not None:
            _advise(self._file, self._start, self._at - self._start, os.POSIX_FADV_DONTNEED)
        self._written_back = self._at

    def _wrong_size(self, what: str) -> InvalidRequestError:
        message = f"This URL takes exactly {self._end - self._start} bytes, and {what}. Send the body again, whole."
        return InvalidRequestError(message, code="BLOB_SIZE")


def etag_of(parts: Sequence[UploadedPart]) -> str:
    """The ETag of an object made of parts: its SHA-256 if it is one part, else the hash of their hashes and their count."""
    if len(parts) == 1:
        return parts[0].etag
    joined = b"".join(bytes.fromhex(part.etag) for part in parts)
    return f"{hashlib.sha256(joined).hexdigest()}-{len(parts)}"


def sync_directory(path: Path) -> None:
    """Puts the names in a directory on the disk."""
    file = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True
