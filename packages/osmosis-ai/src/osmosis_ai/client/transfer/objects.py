"""Single objects behind signed URLs: which URLs are taken, a GET into a file, a PUT from one.

Owns: redirects, the `.partial` file and its move into place, and messages without the URL. Order and retries are the
callers'.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, nullcontext
from email.message import Message
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urljoin, urlsplit

from osmosis_ai.client.address import is_loopback, is_private_in_transit
from osmosis_ai.client.http import failure_text, httpx_module, make_client
from osmosis_ai.client.redaction import redact_text
from osmosis_ai.client.transfer.parallel import Stopped
from osmosis_ai.errors import PlatformError, ValidationError

if TYPE_CHECKING:
    import httpx

CONNECT_TIMEOUT_S = 30.0
READ_TIMEOUT_S = 600.0
CHUNK_BYTES = 256 * 1024
_MOST_REDIRECTS = 20
_MOST_RESUMPTIONS = 5
_PARTIAL_CONTENT = 206
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_QUOTED = 200

type OnBytes = Callable[[int], None]
"""Gets how many bytes more were moved; fewer than none when a try begins anew. Called from several threads."""


class TransferError(PlatformError):
    """The object store refused or lost a transfer.

    Attributes:
        status: The HTTP status; None without a reply.
    """

    status: int | None = None


def transfer_error(message: str, status: int | None = None) -> TransferError:
    """An error without the queries of signed URLs in it."""
    error = TransferError(redact_text(message))
    error.status = status
    return error


class ObjectClients:
    """HTTP clients for signed URLs, made when first needed and shared by threads; no login goes through them.

    Args:
        connections: Most connections at a time to hosts of one kind.
    """

    def __init__(self, connections: int = 8) -> None:
        self._connections = connections
        self._clients: dict[tuple[str, bool], httpx.Client] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        for client in self._clients.values():
            client.close()

    def of(self, url: str) -> httpx.Client:
        """The client for a URL: certificates are loaded for https only, and this machine is asked without a proxy."""
        parts = urlsplit(url)
        kind = (parts.scheme, is_loopback(parts.hostname or ""))
        with self._lock:
            if kind not in self._clients:
                self._clients[kind] = make_client(url, connections=self._connections)
            return self._clients[kind]


def require_private(url: str) -> str:
    """Check that a signed URL is https or leads to this machine.

    Raises:
        TransferError: It does not; its content could be read or changed on the way.
    """
    if not is_private_in_transit(url):
        raise transfer_error("The platform gave a URL that is not https, and it does not lead to this machine.")
    return url


class RemoteObject:
    """An object whose head has arrived. Its body goes on where it was when the connection is lost on the way.

    Args:
        reply: The open reply.
        clients: For the requests that go on.
        url: What was asked for.
    """

    def __init__(self, reply: httpx.Response, clients: ObjectClients, url: str) -> None:
        self._reply = reply
        self._clients = clients
        self._url = url

    def close(self) -> None:
        """Let the connection go."""
        self._reply.close()

    @property
    def file_name(self) -> str | None:
        """The name that `Content-Disposition` gives, without any folder."""
        header = self._reply.headers.get("Content-Disposition")
        if not header:
            return None
        parsed = Message()
        parsed["Content-Disposition"] = header
        name = PurePosixPath((parsed.get_filename() or "").replace("\\", "/")).name
        return None if name in ("", ".", "..") or re.search(r"[\x00-\x1f\x7f]", name) else name

    @property
    def size(self) -> int | None:
        """Its length in bytes, where the store says it and does not compress."""
        length = self._reply.headers.get("Content-Length", "")
        return int(length) if length.isdigit() and not self._reply.headers.get("Content-Encoding") else None

    def save(
        self,
        target: Path,
        *,
        size: int | None = None,
        sha256: str | None = None,
        on_bytes: OnBytes | None = None,
        stop: threading.Event | None = None,
    ) -> int:
        """Write it beside the target and move it there when it is whole; return its length in bytes.

        Args:
            target: The file; its folder exists. What was there is replaced.
            size: The length it must have.
            sha256: The digest it must have, in hex.
            on_bytes: Gets the progress.
            stop: Ends the transfer when set.

        Raises:
            TransferError: It broke off, or is not what it must be; the target is untouched.
            OSError: The file cannot be written.
        """
        partial = target.with_name(f"{target.name}.partial")
        digest = hashlib.sha256()
        written = 0
        with _exclusive(partial) as file:
            try:
                for chunk in self._chunks(stop):
                    file.write(chunk)
                    digest.update(chunk)
                    written += len(chunk)
                    if size is not None and written > size:
                        break
                    if on_bytes:
                        on_bytes(len(chunk))
                if size is not None and written != size:
                    more = "more than " if written > size else ""
                    raise transfer_error(f"Size mismatch: expected {size} bytes, got {more}{min(written, size)}.")
                if sha256 is not None and digest.hexdigest() != sha256.lower():
                    raise transfer_error("The content differs from what the platform announced (SHA-256).")
                file.flush()
                partial.replace(target)
            except BaseException:
                partial.unlink(missing_ok=True)
                if on_bytes:
                    on_bytes(-written)
                raise
        return written

    def _chunks(self, stop: threading.Event | None) -> Generator[bytes]:
        httpx = httpx_module()
        received = resumed = 0
        while True:
            try:
                for chunk in self._reply.iter_bytes(CHUNK_BYTES):
                    if stop is not None and stop.is_set():
                        raise Stopped
                    received += len(chunk)
                    yield chunk
                return
            except httpx.HTTPError as error:
                failure = transfer_error(f"The download broke off: {failure_text(error)}.")
            if resumed == _MOST_RESUMPTIONS:
                raise failure
            resumed += 1
            self._go_on(received, failure)

    def _go_on(self, received: int, failure: TransferError) -> None:
        """Ask for the rest of the very same object.

        Raises:
            TransferError: The store does not name its version, or does not give parts.
        """
        version = self._reply.headers.get("ETag", "")
        if not version.startswith('"') or self._reply.headers.get("Content-Encoding") or not received:
            raise failure
        self._reply.close()
        rest = _get(self._clients, self._url, {"Range": f"bytes={received}-", "If-Range": version})
        self._reply = rest
        begins = rest.headers.get("Content-Range", "").startswith(f"bytes {received}-")
        if rest.status_code != _PARTIAL_CONTENT or not begins or rest.headers.get("ETag", version) != version:
            raise failure


@contextmanager
def open_object(url: str, clients: ObjectClients | None = None) -> Generator[RemoteObject]:
    """GET a signed URL, following redirects to https or this machine only.

    Args:
        url: The URL.
        clients: Shared by many transfers; else one of its own.

    Raises:
        TransferError: No reply, a refusal, or a URL that is not private in transit.
    """
    with nullcontext(clients) if clients is not None else ObjectClients() as used:
        found = RemoteObject(_get(used, url), used, url)
        try:
            yield found
        finally:
            found.close()


def put_object(
    clients: ObjectClients,
    url: str,
    body: Generator[bytes],
    size: int,
    *,
    headers: Mapping[str, str] | None = None,
    timeout: float = READ_TIMEOUT_S,
) -> str | None:
    """PUT bytes to a signed URL and return the reply's ETag without its quotes.

    Args:
        clients: Shared by the transfers.
        url: The URL; redirects are refusals.
        body: Exactly `size` bytes.
        size: Sent as `Content-Length`.
        headers: Sent as they are.
        timeout: Most seconds between bytes.

    Raises:
        TransferError: No reply, or a refusal.
    """
    httpx = httpx_module()
    try:
        reply = clients.of(require_private(url)).put(
            url,
            content=body,
            headers={**(headers or {}), "Content-Length": str(size)},
            timeout=httpx.Timeout(timeout, connect=CONNECT_TIMEOUT_S),
        )
    except httpx.HTTPError as error:
        raise transfer_error(f"The upload broke off: {failure_text(error)}.") from None
    except httpx.InvalidURL:
        raise transfer_error("The platform gave a URL that is malformed.") from None
    if not reply.is_success:
        raise _refused(reply)
    return reply.headers.get("ETag", "").strip().removeprefix("W/").strip('"') or None


def _get(clients: ObjectClients, url: str, headers: Mapping[str, str] | None = None) -> httpx.Response:
    httpx = httpx_module()
    timeout = httpx.Timeout(READ_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
    for _ in range(_MOST_REDIRECTS + 1):
        try:
            client = clients.of(require_private(url))
            request = client.build_request("GET", url, headers=headers, timeout=timeout)
            reply = client.send(request, stream=True)
        except httpx.HTTPError as error:
            raise transfer_error(f"The object store cannot be reached: {failure_text(error)}.") from None
        except httpx.InvalidURL:
            raise transfer_error("The platform gave a URL that is malformed.") from None
        if reply.status_code in _REDIRECTS and (location := reply.headers.get("Location")):
            reply.close()
            url = urljoin(url, location)
            continue
        if reply.is_success:
            return reply
        error = _refused(reply)
        reply.close()
        raise error
    raise transfer_error(f"The object store redirects more than {_MOST_REDIRECTS} times.")


def _refused(reply: httpx.Response) -> TransferError:
    httpx = httpx_module()
    try:
        text = b"".join(reply.iter_bytes() if not reply.is_stream_consumed else [reply.content])[:4096]
    except (httpx.HTTPError, httpx.StreamError):
        text = b""
    said = re.search(rb"<Message>([^<]*)</Message>", text)
    words = " ".join((said[1] if said else text).decode("utf-8", "replace").split())[:_QUOTED]
    return transfer_error(f"HTTP {reply.status_code}. {words}".strip(), reply.status_code)


@contextmanager
def _exclusive(path: Path) -> Generator[Any]:
    """An empty file that nobody else of ours writes; links are not followed."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    with os.fdopen(descriptor, "wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValidationError(f"Another download is writing {path}; wait for it.") from None
        os.ftruncate(file.fileno(), 0)
        yield file
