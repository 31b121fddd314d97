"""A file to the object store as the platform instructs: whole, or in parts that travel at the same time.

Owns: reading the instructions, the parts, their retries, and giving up cleanly. What the platform is told before and
after is the caller's.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from osmosis_ai.client.transfer.objects import (
    CHUNK_BYTES,
    ObjectClients,
    OnBytes,
    TransferError,
    put_object,
    require_private,
)
from osmosis_ai.client.transfer.parallel import Stopped, for_each
from osmosis_ai.errors import OsmosisError, PlatformError, ValidationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from osmosis_ai.client.session import Warn
    from osmosis_ai.client.wire import Record

PARALLEL_PARTS = 4
ATTEMPTS = 5
_FIRST_WAIT_S = 1.0
_WHOLE_TIMEOUT_S = 600.0
_PART_TIMEOUT_S = 300.0
_RETRIED = frozenset({None, 429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Part:
    """A part that was stored: its number from 1, and what the store calls it."""

    number: int
    etag: str


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of the file and where they go.

    Attributes:
        number: From 1; 0 for the whole file.
        url: Signed.
        offset: Where they begin.
        size: How many.
    """

    number: int
    url: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Instructions:
    """How a file is to be sent.

    Attributes:
        pieces: One for a simple upload, all parts in order otherwise.
        headers: Sent with a simple upload.
        multipart: Whether the store's names of the parts are wanted.
    """

    pieces: tuple[Piece, ...]
    headers: Mapping[str, str]
    multipart: bool


def read_instructions(upload: Record, size: int) -> Instructions:
    """Read the `upload` object of a reply and check that it covers the file exactly.

    Args:
        upload: The object.
        size: Bytes of the file.

    Raises:
        PlatformError: It is malformed, or does not fit the file.
    """
    method = upload.maybe_text("method") or "simple"
    if method == "simple":
        headers = upload.mapping("upload_headers")
        if not all(isinstance(value, str) for value in headers.values()):
            raise PlatformError(f"The platform's {upload.where}.upload_headers holds something else than texts.")
        piece = Piece(0, require_private(upload.text("presigned_url")), 0, size)
        return Instructions((piece,), headers, multipart=False)
    if method != "multipart":
        raise PlatformError(f"The platform asks for an upload method that this client does not know: {method!r}.")
    part_size, total = upload.integer("part_size"), upload.integer("total_parts")
    if part_size < 1 or total < 1 or not part_size * (total - 1) < size <= part_size * total:
        raise PlatformError(
            f"The platform's upload instructions do not fit the file: {total} parts of {part_size} bytes for {size}"
            " bytes. Try again; if it stays so, report it to the platform's operators."
        )
    pieces: dict[int, Piece] = {}
    for part in upload.records("presigned_urls"):
        number = part.integer("part_number")
        offset = part_size * (number - 1)
        length = min(part_size, size - offset)
        if number in pieces or not 1 <= number <= total or part.maybe_int("size") not in (None, length):
            raise PlatformError(f"The platform's {part.where} does not fit the file's parts.")
        pieces[number] = Piece(number, require_private(part.text("presigned_url")), offset, length)
    if len(pieces) != total:
        raise PlatformError(f"The platform's {upload.where} has URLs for {len(pieces)} of {total} parts.")
    return Instructions(tuple(pieces[number] for number in sorted(pieces)), {}, multipart=True)


def upload_file(
    path: Path,
    instructions: Instructions,
    *,
    on_bytes: OnBytes | None = None,
    stored_before: Mapping[int, str] | None = None,
    on_stored: Callable[[int, str], None] | None = None,
) -> list[Part]:
    """Send a file as instructed; return the parts by number, none for a simple upload.

    A part is tried up to five times on 429, 5xx and lost connections; parts that are stored are not sent again.

    Args:
        path: The file.
        instructions: How.
        on_bytes: Gets the progress; what was stored before already counts.
        stored_before: Parts that an earlier process stored, and their names.
        on_stored: Told of each part that is stored, one at a time.

    Raises:
        TransferError: The store refuses.
        ValidationError: The file became shorter meanwhile.
        OSError: The file cannot be read.
    """
    stored: dict[int, str] = {**(stored_before or {})} if instructions.multipart else {}
    missing = [piece for piece in instructions.pieces if piece.number not in stored]
    if on_bytes and stored:
        on_bytes(sum(piece.size for piece in instructions.pieces) - sum(piece.size for piece in missing))
    lock = threading.Lock()  # parts end at the same time
    with ObjectClients(PARALLEL_PARTS) as clients:

        def send(piece: Piece, stop: threading.Event) -> None:
            etag = _send(clients, path, piece, instructions, on_bytes, stop)
            if instructions.multipart:
                if not etag:
                    raise PlatformError(f"The object store did not name part {piece.number} (no ETag).")
                with lock:
                    stored[piece.number] = etag
                    if on_stored:
                        on_stored(piece.number, etag)

        for_each(missing, send, threads=PARALLEL_PARTS)
    return [Part(piece.number, stored[piece.number]) for piece in instructions.pieces if instructions.multipart]


@contextlib.contextmanager
def aborting(abort: Callable[[], object], warn: Warn) -> Generator[None]:
    """Around an upload and its completion: when it fails or is interrupted, tell the platform.

    Args:
        abort: Tells it; its own failure is only a warning.
        warn: Gets that warning, `ABORT_FAILED`.
    """
    try:
        yield
    except BaseException:
        try:
            abort()
        except OsmosisError as error:
            warn(f"The unfinished upload could not be taken back: {error.message}", "ABORT_FAILED")
        raise


def _send(
    clients: ObjectClients,
    path: Path,
    piece: Piece,
    instructions: Instructions,
    on_bytes: OnBytes | None,
    stop: threading.Event,
) -> str | None:
    wait = _FIRST_WAIT_S
    for attempt in range(1, ATTEMPTS + 1):
        sent = _Sent(on_bytes)
        try:
            return put_object(
                clients,
                piece.url,
                _read(path, piece, sent, stop),
                piece.size,
                headers=instructions.headers,
                timeout=_PART_TIMEOUT_S if instructions.multipart else _WHOLE_TIMEOUT_S,
            )
        except TransferError as error:
            sent.take_back()
            if attempt == ATTEMPTS or error.status not in _RETRIED:
                raise _explained(error, path, piece, attempt) from None
        except BaseException:
            sent.take_back()
            raise
        if stop.wait(wait):
            raise Stopped
        wait *= 2
    raise AssertionError("unreachable")


def _explained(error: TransferError, path: Path, piece: Piece, attempts: int) -> TransferError:
    what = f"part {piece.number} of {path.name}" if piece.number else path.name
    tries = f" after {attempts} tries" if attempts > 1 else ""
    explained = TransferError(f"{what}{tries}: {error.message}")
    explained.status = error.status
    return explained


class _Sent:
    """Counts what a try has sent, to take it back from the progress when the try fails."""

    def __init__(self, on_bytes: OnBytes | None) -> None:
        self._on_bytes = on_bytes
        self._count = 0

    def add(self, count: int) -> None:
        self._count += count
        if self._on_bytes:
            self._on_bytes(count)

    def take_back(self) -> None:
        if self._on_bytes and self._count:
            self._on_bytes(-self._count)
        self._count = 0


def _read(path: Path, piece: Piece, sent: _Sent, stop: threading.Event) -> Generator[bytes]:
    left = piece.size
    with path.open("rb") as file:
        file.seek(piece.offset)
        while left:
            if stop.is_set():
                raise Stopped
            chunk = file.read(min(CHUNK_BYTES, left))
            if not chunk:
                raise ValidationError(f"{path} became shorter while it was uploaded; run the command again.")
            left -= len(chunk)
            yield chunk
            sent.add(len(chunk))
