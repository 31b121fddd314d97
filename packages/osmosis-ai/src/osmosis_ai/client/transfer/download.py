"""A run's outputs into a folder: the manifest, what of it is wanted, signed URLs in batches, eight files at a time.

Owns: the plan and its execution. Which paths are allowed is the layout's, how one object is fetched the objects' module.
"""

from __future__ import annotations

import hashlib
import stat
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from osmosis_ai.client.transfer.objects import ObjectClients, OnBytes, TransferError, open_object
from osmosis_ai.client.transfer.parallel import Stopped, for_each
from osmosis_ai.client.wire import Record
from osmosis_ai.errors import OsmosisError

if TYPE_CHECKING:
    from osmosis_ai.client.session import PlatformClient
    from osmosis_ai.client.transfer.layout import Layout

PARALLEL_FILES = 8
URLS_PER_REQUEST = 500
ATTEMPTS = 3
CONFIRM_ABOVE_BYTES = 100 * 1024 * 1024
_FIRST_WAIT_S = 0.5


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a manifest.

    Attributes:
        path: Relative, by the layout.
        size: Bytes.
        type: The type of output it belongs to.
        token: The platform's own name of it, given back when its URL is asked for.
        sha256: Its digest, where the platform says it.
    """

    path: str
    size: int
    type: str
    token: str | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """A file that was not fetched, and why."""

    path: str
    error: str

    def to_json(self) -> dict[str, str]:
        """As results list it."""
        return {"path": self.path, "error": self.error}


@dataclass(frozen=True, slots=True)
class Manifest:
    """What the platform offers, checked.

    Attributes:
        files: What may be written, in the manifest's order.
        refused: What may not.
        totals: The platform's own figures, passed on.
    """

    files: tuple[RemoteFile, ...]
    refused: tuple[Failure, ...]
    totals: Mapping[str, Any]

    @property
    def total_bytes(self) -> int:
        """Bytes of all files that may be written."""
        return sum(file.size for file in self.files)

    def breakdown(self, selected: Sequence[str]) -> dict[str, dict[str, int]]:
        """Files and bytes of each type that has some."""
        counted = {kind: [file.size for file in self.files if file.type == kind] for kind in selected}
        return {kind: {"files": len(sizes), "bytes": sum(sizes)} for kind, sizes in counted.items() if sizes}


@dataclass(frozen=True, slots=True)
class Plan:
    """What a download will do.

    Attributes:
        root: The folder.
        wanted: What is fetched.
        present: What is there already.
        refused: What cannot be written.
    """

    root: Path
    wanted: tuple[RemoteFile, ...]
    present: tuple[RemoteFile, ...]
    refused: tuple[Failure, ...]

    @property
    def wanted_bytes(self) -> int:
        """Bytes that will travel."""
        return sum(file.size for file in self.wanted)

    @property
    def needs_consent(self) -> bool:
        """Whether it is big enough to ask first."""
        return self.wanted_bytes > CONFIRM_ABOVE_BYTES


@dataclass(slots=True)
class Outcome:
    """What a download did.

    Attributes:
        downloaded: Files that were fetched.
        bytes_downloaded: Their bytes.
        failed: Files that were refused or not fetched.
    """

    downloaded: list[RemoteFile] = field(default_factory=list)
    bytes_downloaded: int = 0
    failed: list[Failure] = field(default_factory=list)


def read_manifest(reply: Mapping[str, Any], layout: Layout, selected: Sequence[str]) -> Manifest:
    """Check a manifest against the layout of its kind of run.

    Args:
        reply: The platform's answer.
        layout: What may be in it.
        selected: The types that were asked for.

    Raises:
        PlatformError: It is malformed.
    """
    record = Record(reply, "manifest")
    files: dict[str, RemoteFile] = {}
    refused: list[Failure] = []
    for item in record.records("files"):
        path, size = item.text("path"), item.integer("size")
        error = layout.refuse(path, selected)
        if error is None and size < 0:
            error = "Manifest size is negative."
        if error is None and path in files:
            error = "Manifest path occurs twice."
        if error is not None:
            refused.append(Failure(path, error))
            continue
        kind = layout.type_of(path) or ""
        files[path] = RemoteFile(path, size, kind, item.maybe_text("token"), item.maybe_text("sha256"))
    return Manifest(tuple(files.values()), tuple(refused), record.mapping("totals"))


def plan_download(manifest: Manifest, root: Path, *, overwrite: bool = False) -> Plan:
    """Compare a manifest with a folder; nothing is written.

    A file counts as present when its size is right, and its digest where the platform says it.

    Args:
        manifest: What there is.
        root: The folder; it need not exist.
        overwrite: Fetch what is present too.
    """
    wanted: list[RemoteFile] = []
    present: list[RemoteFile] = []
    refused = list(manifest.refused)
    real_root = root.resolve()
    for file in manifest.files:
        target = root / file.path
        if not _stays_within(target, real_root):
            refused.append(Failure(file.path, "Manifest path leaves the output directory through a link."))
        elif not overwrite and _is_present(target, file):
            present.append(file)
        else:
            wanted.append(file)
    return Plan(root, tuple(wanted), tuple(present), tuple(refused))


def download_files(client: PlatformClient, urls_path: str, plan: Plan, *, on_bytes: OnBytes | None = None) -> Outcome:
    """Fetch what is wanted.

    Every file is tried up to three times; a 403 gets a fresh URL first. What fails is in the outcome, and a second
    download fetches only what is missing.

    Args:
        client: Whose platform signs the URLs.
        urls_path: The path that signs them, such as `/eval-runs/ID/samples/download-urls`.
        plan: What to fetch, and where to.
        on_bytes: Gets the progress.

    Raises:
        OsmosisError: The platform signs no URLs at all.
    """
    outcome = Outcome(failed=list(plan.refused))
    urls = _SignedUrls(client, urls_path, plan.wanted)
    lock = threading.Lock()

    def fetch(file: RemoteFile, stop: threading.Event) -> None:
        try:
            written = _fetch(file, plan.root, urls, clients, on_bytes, stop)
        except Stopped:
            raise
        except OsmosisError as error:
            with lock:
                outcome.failed.append(Failure(file.path, error.message))
        except OSError as error:
            with lock:
                outcome.failed.append(Failure(file.path, f"Cannot be written: {error.strerror or error}."))
        else:
            with lock:
                outcome.downloaded.append(file)
                outcome.bytes_downloaded += written

    with ObjectClients(PARALLEL_FILES) as clients:
        urls.prepare()
        for_each(urls.in_order(), fetch, threads=PARALLEL_FILES)
    if urls.refusal is not None and not outcome.downloaded:
        raise urls.refusal
    order = {file.path: at for at, file in enumerate(plan.wanted)}
    outcome.failed.sort(key=lambda failure: order.get(failure.path, -1))
    return outcome


def _fetch(
    file: RemoteFile,
    root: Path,
    urls: _SignedUrls,
    clients: ObjectClients,
    on_bytes: OnBytes | None,
    stop: threading.Event,
) -> int:
    target = root / file.path
    target.parent.mkdir(parents=True, exist_ok=True)
    if not _stays_within(target, root.resolve()):
        raise TransferError("Manifest path leaves the output directory through a link.")
    wait = _FIRST_WAIT_S
    url = urls.of(file)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with open_object(url, clients) as found:
                return found.save(target, size=file.size, sha256=file.sha256, on_bytes=on_bytes, stop=stop)
        except TransferError as error:
            if attempt == ATTEMPTS:
                raise
            if error.status == 403:
                url = urls.renew(file)
        if stop.wait(wait):
            raise Stopped
        wait *= 2
    raise AssertionError("unreachable")


class _SignedUrls:
    """Signed URLs of files, asked for in batches when the first file of a batch is due."""

    def __init__(self, client: PlatformClient, path: str, files: Sequence[RemoteFile]) -> None:
        self._client = client
        self._path = path
        self._batches = [files[at : at + URLS_PER_REQUEST] for at in range(0, len(files), URLS_PER_REQUEST)]
        self._batch_of = {file.path: number for number, batch in enumerate(self._batches) for file in batch}
        self._urls: dict[str, str] = {}
        self._asked: dict[int, OsmosisError | None] = {}
        self._lock = threading.Lock()
        self.refusal: OsmosisError | None = None

    def prepare(self) -> None:
        """Ask for the first batch, so that the files begin in their order; a refusal is told file by file."""
        if self._batches:
            with suppress(OsmosisError):
                self.of(self._batches[0][0])

    def in_order(self) -> Iterator[RemoteFile]:
        """The files as they are best begun: batch by batch, in each the largest first, so that none of them ends late."""
        for batch in self._batches:
            yield from sorted(batch, key=lambda file: -file.size)

    def of(self, file: RemoteFile) -> str:
        """The URL of a file.

        Raises:
            OsmosisError: The platform gives none.
        """
        number = self._batch_of[file.path]
        with self._lock:
            if number not in self._asked:
                try:
                    self._urls |= self._ask(self._batches[number])
                    self._asked[number] = None
                except OsmosisError as error:
                    self.refusal = self._asked[number] = error
            if (error := self._asked[number]) is not None:
                raise error
            return self._need(self._urls, file)

    def renew(self, file: RemoteFile) -> str:
        """A fresh URL of a file."""
        return self._need(self._ask([file]), file)

    def _need(self, urls: Mapping[str, str], file: RemoteFile) -> str:
        if file.path not in urls:
            raise TransferError("The platform gave no download URL.")
        return urls[file.path]

    def _ask(self, files: Sequence[RemoteFile]) -> dict[str, str]:
        items = [{"path": file.path, **({"token": file.token} if file.token else {})} for file in files]
        reply = Record(self._client.post(self._path, {"items": items}, attempts=ATTEMPTS), "download URLs")
        key = next((name for name in ("items", "files", "urls") if name in reply), "items")
        by_token: dict[tuple[str | None, str], str] = {}
        by_path: dict[str, list[str]] = {}
        for item in reply.records(key):
            path = item.text("path")
            name = next((name for name in ("url", "presignedUrl", "presigned_url") if name in item), "url")
            by_token[item.maybe_text("token"), path] = item.text(name)
            by_path.setdefault(path, []).append(item.text(name))
        found: dict[str, str] = {}
        for file in files:
            same_path = by_path.get(file.path, [])
            url = by_token.get((file.token, file.path)) or (same_path[0] if len(same_path) == 1 else None)
            if url is not None:
                found[file.path] = url
        return found


def _stays_within(target: Path, real_root: Path) -> bool:
    """Whether no folder of the path is a link that leads out of the root, nor the place something else than a file."""
    try:
        if not target.parent.resolve().is_relative_to(real_root):
            return False
        return not target.is_symlink()
    except OSError:
        return False


def _is_present(target: Path, file: RemoteFile) -> bool:
    with suppress(OSError):
        found = target.lstat()
        if stat.S_ISREG(found.st_mode) and found.st_size == file.size:
            if file.sha256 is None:
                return True
            with target.open("rb") as opened:
                return hashlib.file_digest(opened, "sha256").hexdigest() == file.sha256.lower()
    return False
