"""The face of the object store: what every backend offers, and which one the settings choose. Rows about objects: the rooms.

An object is immutable bytes under a key `<workspace_id>/<kind>/<id>[...]`. Clients move bytes by URLs that say all they
are good for: `begin_upload` hands them out, `complete_upload` makes the object of what arrived.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Protocol

from osmosis_platform.clock import Clock
from osmosis_platform.errors import InvalidRequestError, MissingError
from osmosis_platform.settings import Settings

OCTETS = "application/octet-stream"
MAX_PARTS = 10_000
_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._=-]{0,199}")
_MAX_KEY = 600


@dataclass(frozen=True, slots=True)
class BlobInfo:
    """An object as it lies in the store.

    Attributes:
        size_bytes: Its length.
        sha256: Of its bytes, lower-case hex; None where the store took it in parts.
        modified_at: When it was put there.
        etag: Changes whenever the bytes do; without quotes.
    """

    key: str
    size_bytes: int
    sha256: str | None
    modified_at: datetime
    etag: str


@dataclass(frozen=True, slots=True)
class UploadedPart:
    """A part that arrived whole.

    Attributes:
        number: From 1.
        etag: What the store answered, without quotes.
    """

    number: int
    size_bytes: int
    etag: str


@dataclass(frozen=True, slots=True)
class Upload:
    """Leave to upload one object.

    Attributes:
        method: One PUT, or one for each part.
        store_id: How the store knows it.
        size_bytes: Of the whole object, exactly.
        part_size: Of every part but the last.
        expires_in: For how many seconds the URLs count.
        urls: One for each part, in order; they are credentials and never stored.
    """

    method: Literal["simple", "multipart"]
    store_id: str
    size_bytes: int
    part_size: int
    total_parts: int
    expires_in: int
    urls: tuple[str, ...] = field(default=(), repr=False)

    def size_of(self, number: int) -> int:
        """How many bytes part `number` has, from 1."""
        return min(self.part_size, self.size_bytes - (number - 1) * self.part_size)

    def to_json(self) -> dict[str, Any]:
        """What a row keeps; no URLs."""
        names = ("method", "store_id", "size_bytes", "part_size", "total_parts", "expires_in")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Upload:
        """Back from `to_json`."""
        return cls(**value)

    def wire(self) -> dict[str, Any]:
        """The instructions of platform-api.md 8.3."""
        if self.method == "simple":
            (url,) = self.urls
            headers = {"Content-Type": OCTETS}
            return {
                "method": "simple",
                "presigned_url": url,
                "upload_headers": headers,
                "expires_in": self.expires_in,
            }
        parts = [
            {"part_number": number, "presigned_url": url, "size": self.size_of(number)}
            for number, url in enumerate(self.urls, 1)
        ]
        facts = {"part_size": self.part_size, "total_parts": self.total_parts, "expires_in": self.expires_in}
        return {"method": "multipart", **facts, "presigned_urls": parts}


class BlobStore(Protocol):
    """What a backend offers. Synchronous and thread-safe; every method may wait on a disk or a network.

    Raises, all of them: `UnavailableError` when the store does not answer, `StorageFullError` when it takes no more.
    """

    def put(self, key: str, chunks: Iterable[bytes]) -> BlobInfo:
        """Stores the bytes; an object of the key is replaced in one step, once all of them are there."""
        ...

    def put_file(self, key: str, path: Path) -> BlobInfo:
        """Stores a file, which must not change afterwards: the store may share its bytes instead of copying them."""
        ...

    def open(self, key: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """The bytes from `start` up to, not including, `end`.

        Raises:
            MissingError: There is no such object.
        """
        ...

    def local(self, key: str) -> AbstractContextManager[Path]:
        """The object as a file of this machine that must not be written, while the block runs.

        Raises:
            MissingError: There is no such object.
        """
        ...

    def head(self, key: str) -> BlobInfo | None:
        """What is there; None for nothing."""
        ...

    def delete(self, key: str) -> None:
        """Removes the object; fine if there is none."""
        ...

    def list(self, prefix: str) -> Iterator[BlobInfo]:
        """The objects whose keys begin with `<prefix>/`, by key; every one for an empty prefix."""
        ...

    def presign_get(self, key: str, *, file_name: str, expires_s: int | None = None) -> str:
        """A URL that downloads the object under a name.

        Args:
            key: Of the object.
            file_name: How the download is called.
            expires_s: For how many seconds it counts; default: the settings' lifetime.
        """
        ...

    def begin_upload(self, key: str, *, size_bytes: int) -> Upload:
        """Leave to upload an object of exactly this size."""
        ...

    def renew_upload(self, key: str, upload: Upload) -> Upload:
        """The same upload with fresh URLs, for a client that goes on after an interruption."""
        ...

    def uploaded_parts(self, key: str, upload: Upload) -> Sequence[UploadedPart]:
        """The parts that arrived whole, by number; none when the upload is unknown."""
        ...

    def complete_upload(self, key: str, upload: Upload, parts: Sequence[tuple[int, str]]) -> BlobInfo:
        """Makes the object of the parts that arrived; a second call answers as the first did.

        Args:
            key: As at the beginning.
            upload: As at the beginning.
            parts: (number, ETag) of each, as the client saw them; may be empty for a simple upload.

        Raises:
            InvalidRequestError: `UPLOAD_INCOMPLETE` or `PART_MISMATCH`: a part is absent or another than the client says.
            MissingError: `UPLOAD_GONE`: it was aborted, or swept.
        """
        ...

    def abort_upload(self, key: str, upload: Upload) -> None:
        """Forgets the upload and its bytes; fine if there is none."""
        ...

    def sweep(self, before: datetime) -> int:
        """Forgets uploads nothing was added to since; how many."""
        ...


def check_key(key: str) -> str:
    """The key, if it has the shape of keys; callers make them, so another one is a fault of ours.

    Raises:
        ValueError: It has not.
    """
    segments = key.split("/")
    if len(key) > _MAX_KEY or len(segments) < 3 or not all(_SEGMENT.fullmatch(one) for one in segments):
        raise ValueError(f"no object key: {key[:100]!r}; keys are <workspace_id>/<kind>/<id>[...]")
    return key


def plan(size_bytes: int, part_size: int, expires_in: int) -> Upload:
    """How an object of a size is to be uploaded; without URLs and the store's id.

    Args:
        size_bytes: Of the object, at least 1.
        part_size: Up to this size one PUT does.
        expires_in: Lifetime of the URLs in seconds.
    """
    if size_bytes <= part_size:
        return Upload("simple", "", size_bytes, size_bytes, 1, expires_in)
    part_size = max(part_size, math.ceil(size_bytes / MAX_PARTS))
    return Upload("multipart", "", size_bytes, part_size, math.ceil(size_bytes / part_size), expires_in)


def check_parts(upload: Upload, arrived: Sequence[UploadedPart], claimed: Sequence[tuple[int, str]]) -> None:
    """Compares what arrived with what the client says it sent.

    Raises:
        InvalidRequestError: `UPLOAD_INCOMPLETE` names the parts that are absent, `PART_MISMATCH` the first that differs.
    """
    there = {part.number: part for part in arrived}
    absent = [number for number in range(1, upload.total_parts + 1) if number not in there]
    if absent:
        listed = ", ".join(map(str, absent[:10])) + (", ..." if len(absent) > 10 else "")
        what = "its bytes have not arrived" if upload.method == "simple" else f"parts {listed} have not arrived"
        message = f"The upload is not complete: {what}. Send them, then complete it again."
        raise InvalidRequestError(message, code="UPLOAD_INCOMPLETE", details={"missing_parts": absent[:100]})
    numbers = [number for number, _ in claimed]
    wanted = list(range(1, upload.total_parts + 1))
    if (claimed or upload.method == "multipart") and sorted(numbers) != wanted:
        message = f"List every part of the upload once, with numbers 1 to {upload.total_parts}."
        raise InvalidRequestError(message, code="PART_MISMATCH", field="parts")
    for number, etag in claimed:
        if etag.strip('"') != there[number].etag:
            message = f"Part {number} has another ETag than the one given; send the part again."
            raise InvalidRequestError(message, code="PART_MISMATCH", field="parts", details={"part_number": number})
    for part in arrived:
        if part.size_bytes != upload.size_of(part.number):
            message = f"Part {part.number} has {part.size_bytes} bytes instead of {upload.size_of(part.number)}."
            raise InvalidRequestError(message + " Send it again.", code="PART_MISMATCH", field="parts")


def no_object(key: str) -> MissingError:
    """The error for an object that is not there."""
    return MissingError(f"The object {key} is not in the store; it was deleted.", code="OBJECT_MISSING")


def upload_gone() -> MissingError:
    """The error for an upload that nobody knows any more."""
    message = "This upload is over: it was completed, aborted or left alone for too long. Begin a new one."
    return MissingError(message, code="UPLOAD_GONE")


def open_blob_store(settings: Settings, *, signing_key: Callable[[], bytes], clock: Clock) -> BlobStore:
    """The store that the settings choose.

    Args:
        settings: `blob_store` and what belongs to it.
        signing_key: Gives the key that signs URLs of the files backend, when first needed.
        clock: The time of day.
    """
    if settings.blob_store == "s3":
        from osmosis_platform.blobs.s3 import S3Store

        return S3Store(settings)
    from osmosis_platform.blobs.files import FileStore

    return FileStore(settings, signing_key=signing_key, clock=clock)
