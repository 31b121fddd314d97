"""Single objects behind signed URLs: which URLs are taken, a GET into a file, a PUT from one.

Owns: redirects, going on where an earlier try ended, and messages without the URL. The `.partial` file is its own
module; order and retries are the callers'.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, nullcontext
from email.message import Message
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Self
from urllib.parse import urljoin, urlsplit

from osmosis_ai.client.address import is_loopback, is_private_in_transit
from osmosis_ai.client.http import failure_text, httpx_module, make_client
from osmosis_ai.client.redaction import redact_text
from osmosis_ai.client.transfer.parallel import Stopped
from osmosis_ai.client.transfer.partial import PartialFile, partial_file
from osmosis_ai.errors import PlatformError

if TYPE_CHECKING:
    import httpx

CONNECT_TIMEOUT_S = 30.0
READ_TIMEOUT_S = 600.0
CHUNK_BYTES = 256 * 1024
_MOST_REDIRECTS = 20
_MOST_RESUMPTIONS = 5
_PARTIAL_CONTENT = 206
_UNSATISFIABLE = 416
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


class _UnfitError(TransferError):
    """What arrived is not the object, or not one and the same; none of it is of any use."""


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
    """An object whose head has arrived.

    Its body goes on where it was when the connection is lost on the way, and where an earlier process left it.

    Args:
        reply: The open reply.
        clients: For the requests that go on.
        url: What was asked for.
    """

    def __init__(self, reply: httpx.Response, clients: ObjectClients, url: str) -> None:
        self._reply = reply
        self._clients = clients
        self._url = url
        self._version = _version_of(reply)

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
        return (
            int(length)
            if re.fullmatch("[0-9]{1,18}", length) and not self._reply.headers.get("Content-Encoding")
            else None
        )

    def save(
        self,
        target: Path,
        *,
        size: int | None = None,
        sha256: str | None = None,
        on_bytes: OnBytes | None = None,
        stop: threading.Event | None = None,
        partial: Path | None = None,
    ) -> int:
        """Write it beside the target and move it there when it is whole; return its length in bytes.

        What an earlier try has left of the same version is not fetched again. When this one breaks off, what has
        arrived stays for the next where the store names its version.

        Args:
            target: The file; its folder exists. What was there is replaced.
            size: The length it must have.
            sha256: The digest it must have, in hex.
            on_bytes: Gets the progress; what is there already counts.
            stop: Ends the transfer when set.
            partial: Where it grows: `<target>.partial` by default.

        Raises:
            TransferError: It broke off, or is not what it must be; the target is untouched.
            BusyError: Another process is writing it.
            OSError: The file cannot be written.
        """
        with partial_file(partial or target.with_name(f"{target.name}.partial")) as kept:
            written = 0
            try:
                written = self._resume(kept, size if size is not None else self.size)
                digest = kept.digest() if sha256 is not None else None
                if on_bytes:
                    on_bytes(written)
                for chunk in self._chunks(written, stop):
                    kept.write(chunk)
                    written += len(chunk)
                    if on_bytes:
                        on_bytes(len(chunk))
                    if digest:
                        digest.update(chunk)
                    if size is not None and written > size:
                        break
                if size is not None and written != size:
                    more = "more than " if written > size else ""
                    raise _UnfitError(f"Size mismatch: expected {size} bytes, got {more}{min(written, size)}.")
                if digest and sha256 and digest.hexdigest() != sha256.lower():
                    raise _UnfitError("The content differs from what the platform announced (SHA-256).")
                kept.move(target)
            except BaseException as error:
                if on_bytes:
                    on_bytes(-written)
                if isinstance(error, _UnfitError) or not kept.size or kept.version() is None:
                    kept.discard()
                elif isinstance(error, TransferError):
                    error.message += " What has arrived is kept; run the command again to go on from there."
                raise
        return written

    def _resume(self, kept: PartialFile, size: int | None) -> int:
        """Go on from what is kept, or empty it; how many bytes of the object are there."""
        version = self._version
        held = kept.size
        if held and version is not None and kept.version() == version and (size is None or held <= size):
            if held == size:
                held -= 1  # all is there: asking for the last byte again shows that it is still the same object
            if held and self._ask_from(held, version):
                kept.go_on(held)
                return held
        kept.begin(self._version)
        return 0

    def _ask_from(self, start: int, version: str) -> bool:
        """Replace the reply by one that begins there; False when it is one of the whole object, of any version."""
        self._reply.close()
        try:
            self._reply = _get(self._clients, self._url, {"Range": f"bytes={start}-", "If-Range": version})
        except TransferError as error:
            if error.status != _UNSATISFIABLE:
                raise
        else:
            if self._is_rest(start, version):
                return True
        if self._reply.is_closed or self._reply.status_code == _PARTIAL_CONTENT:
            self._reply.close()
            self._reply = _get(self._clients, self._url)
        self._version = _version_of(self._reply)
        return False

    def _is_rest(self, start: int, version: str) -> bool:
        headers = self._reply.headers
        begins = headers.get("Content-Range", "").startswith(f"bytes {start}-")
        same = headers.get("ETag", version) == version and not headers.get("Content-Encoding")
        return self._reply.status_code == _PARTIAL_CONTENT and begins and same

    def _chunks(self, received: int, stop: threading.Event | None) -> Generator[bytes]:
        """The rest of the body after what was received before, across lost connections."""
        httpx = httpx_module()
        version = self._version
        resumed = 0
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
            if resumed == _MOST_RESUMPTIONS or version is None or not received:
                raise failure
            resumed += 1
            if not self._ask_from(received, version):
                raise _UnfitError(f"{failure.message} The object store has no rest of the same object.")


def _version_of(reply: httpx.Response) -> str | None:
    """The strong ETag, by which a part can be asked for; None where the store names none or compresses."""
    tag = reply.headers.get("ETag", "")
    return tag if tag.startswith('"') and not reply.headers.get("Content-Encoding") else None


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
            try:
                url = urljoin(url, location)
            except ValueError:
                raise transfer_error("The object store redirects to an address that is malformed.") from None
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
