"""Objects as files of this machine, under `<data_dir>/objects`; uploads arrive in `<data_dir>/staging` (blobs.staging).

An object appears in one step: written beside, put on the disk, renamed. Its ETag is an extended attribute of the file.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from osmosis_platform.blobs.claims import PREFIX, Claims, UrlSigner
from osmosis_platform.blobs.staging import PartWriter, Staging, etag_of, sync_directory
from osmosis_platform.blobs.store import (
    OCTETS,
    BlobInfo,
    Upload,
    UploadedPart,
    check_key,
    check_parts,
    no_object,
    plan,
    upload_gone,
)
from osmosis_platform.clock import Clock
from osmosis_platform.errors import StorageFullError, UnavailableError
from osmosis_platform.ids import new_id
from osmosis_platform.settings import Settings

_CHUNK_BYTES = 1 << 20
_RESERVE_BYTES = 128 << 20
_ETAG = "user.osmosis.etag"
_COMPLETING = 0
_COMPLETED_S = 10.0


class FileStore:
    """The files backend (`BlobStore`).

    Args:
        settings: Data directory, base URL, lifetime of URLs.
        signing_key: Gives the key that signs URLs, when first needed.
        clock: The time of day.
    """

    def __init__(self, settings: Settings, *, signing_key: Callable[[], bytes], clock: Clock) -> None:
        self._settings = settings
        self.objects = settings.data_dir / "objects"
        self.staging = settings.data_dir / "staging"
        for directory in (self.objects, self.staging):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.signer = UrlSigner(signing_key, clock)
        self._busy: dict[str, set[int]] = {}  # parts of each upload that are being written; 0 while it is completed
        self._changed = threading.Condition()  # guards _busy

    def put(self, key: str, chunks: Iterable[bytes]) -> BlobInfo:
        """See `BlobStore`."""
        path = self._path(key)
        made = self.staging / f"{new_id('ob')}.tmp"
        digest = hashlib.sha256()
        try:
            with made.open("xb") as file:
                os.fchmod(file.fileno(), 0o600)
                for chunk in chunks:
                    digest.update(chunk)
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
            return self._publish(made, path, key, digest.hexdigest())
        except BaseException:
            made.unlink(missing_ok=True)
            raise

    def put_file(self, key: str, path: Path) -> BlobInfo:
        """See `BlobStore`; shares the file's blocks where it is on the same file system."""
        target = self._path(key)
        made = self.staging / f"{new_id('ob')}.tmp"
        try:
            try:
                os.link(path, made)
            except OSError:
                shutil.copyfile(path, made)
            made.chmod(0o600)
            with made.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                os.fsync(file.fileno())
            return self._publish(made, target, key, digest)
        except BaseException:
            made.unlink(missing_ok=True)
            raise

    def open(self, key: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """See `BlobStore`."""
        try:
            file = self._path(key).open("rb", buffering=0)
        except FileNotFoundError:
            raise no_object(key) from None

        def read() -> Iterator[bytes]:
            with file:
                file.seek(start)
                left = (1 << 62) if end is None else end - start
                while left > 0 and (chunk := file.read(min(_CHUNK_BYTES, left))):
                    left -= len(chunk)
                    yield chunk

        return read()

    @contextmanager
    def local(self, key: str) -> Generator[Path]:
        """See `BlobStore`."""
        path = self._path(key)
        if not path.is_file():
            raise no_object(key)
        yield path

    def head(self, key: str) -> BlobInfo | None:
        """See `BlobStore`."""
        return self._info(key, self._path(key))

    def delete(self, key: str) -> None:
        """See `BlobStore`."""
        self._path(key).unlink(missing_ok=True)

    def list(self, prefix: str) -> Iterator[BlobInfo]:
        """See `BlobStore`."""
        top = (
            self.objects / "/".join(check_key(f"{prefix.rstrip('/')}/x/x").split("/")[:-2]) if prefix else self.objects
        )
        found = [Path(folder) / name for folder, _, names in os.walk(top) for name in names]
        for path in sorted(found):
            info = self._info(path.relative_to(self.objects).as_posix(), path)
            if info is not None:
                yield info

    def presign_get(self, key: str, *, file_name: str, expires_s: int | None = None) -> str:
        """See `BlobStore`."""
        expires_at = self._expiry(expires_s)
        return self._url(Claims("GET", check_key(key), expires_at, file_name=file_name))

    def begin_upload(self, key: str, *, size_bytes: int) -> Upload:
        """See `BlobStore`.

        Raises:
            StorageFullError: The disk has no room for it.
        """
        check_key(key)
        free = shutil.disk_usage(self.staging).free
        if size_bytes + _RESERVE_BYTES > free:
            message = f"The platform's disk has no room for {size_bytes} bytes. An administrator must free some space."
            raise StorageFullError(message)
        planned = plan(size_bytes, self._settings.upload_part_bytes, self._settings.url_lifetime_s)
        upload = replace(planned, store_id=new_id("up"))
        Staging(self.staging, upload.store_id).create(key, upload)
        return self.renew_upload(key, upload)

    def renew_upload(self, key: str, upload: Upload) -> Upload:
        """See `BlobStore`."""
        expires_at = self._expiry(None)
        content_type = OCTETS if upload.method == "simple" else None
        urls = [
            self._url(Claims("PUT", key, expires_at, upload.size_of(number), content_type, upload.store_id, number))
            for number in range(1, upload.total_parts + 1)
        ]
        return replace(upload, urls=tuple(urls), expires_in=self._settings.url_lifetime_s)

    def uploaded_parts(self, key: str, upload: Upload) -> Sequence[UploadedPart]:
        """See `BlobStore`."""
        return Staging(self.staging, upload.store_id).parts()

    def complete_upload(self, key: str, upload: Upload, parts: Sequence[tuple[int, str]]) -> BlobInfo:
        """See `BlobStore`: the file that the parts were written into becomes the object; nothing is copied."""
        path = self._path(key)
        staging = Staging(self.staging, upload.store_id)
        with self._alone(upload.store_id, _COMPLETING):
            facts = staging.facts()
            if facts is None:
                info = self._info(key, path)
                if info is None or info.size_bytes != upload.size_bytes:
                    raise upload_gone()
                staging.remove()
                return info
            arrived = staging.parts()
            check_parts(upload, arrived, parts)
            try:
                info = self._publish(staging.data, path, key, etag_of(arrived))
            except FileNotFoundError:  # aborted meanwhile
                raise upload_gone() from None
            staging.remove()
            return info

    def abort_upload(self, key: str, upload: Upload) -> None:
        """See `BlobStore`."""
        Staging(self.staging, upload.store_id).remove()

    def sweep(self, before: datetime) -> int:
        """See `BlobStore`."""
        newest: dict[str, float] = {}
        with os.scandir(self.staging) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    upload_id = entry.name.partition(".")[0]
                    newest[upload_id] = max(newest.get(upload_id, 0.0), entry.stat().st_mtime)
        stale = [one for one, changed in newest.items() if changed < before.timestamp() and one not in self._busy]
        for upload_id in stale:
            Staging(self.staging, upload_id).remove()
            (self.staging / f"{upload_id}.tmp").unlink(missing_ok=True)
        return len(stale)

    @contextmanager
    def part(self, claims: Claims) -> Generator[PartWriter]:
        """Takes the body of a PUT whose claims were read; nobody else writes that part meanwhile.

        Raises:
            MissingError: `UPLOAD_GONE`.
            UnavailableError: Somebody else does, or the upload is just being completed.
        """
        assert claims.upload_id is not None and claims.part is not None and claims.size_bytes is not None
        staging = Staging(self.staging, claims.upload_id)
        with self._alone(claims.upload_id, claims.part):
            facts = staging.facts()
            if facts is None or facts["key"] != claims.key:
                raise upload_gone()
            offset = (claims.part - 1) * facts["part_size"]
            writer = PartWriter(staging, claims.part, offset, claims.size_bytes)
            try:
                yield writer
            finally:
                writer.close()

    @contextmanager
    def _alone(self, upload_id: str, part: int) -> Generator[None]:
        """Keeps a part to one writer, and an upload that is completed to its completer, which is waited for."""
        with self._changed:
            self._changed.wait_for(lambda: _COMPLETING not in self._busy.get(upload_id, ()), _COMPLETED_S)
            busy = self._busy.setdefault(upload_id, set())
            if _COMPLETING in busy or part in busy or (part == _COMPLETING and busy):
                message = "Another request is just writing this upload. Try again in a moment."
                raise UnavailableError(message, code="UPLOAD_BUSY", headers={"Retry-After": "1"})
            busy.add(part)
        try:
            yield
        finally:
            with self._changed:
                busy.discard(part)
                if not busy:
                    self._busy.pop(upload_id, None)
                self._changed.notify_all()

    def _path(self, key: str) -> Path:
        return self.objects / check_key(key)

    def _publish(self, made: Path, path: Path, key: str, etag: str) -> BlobInfo:
        if hasattr(os, "setxattr"):
            with suppress(OSError):  # file systems without attributes: the ETag is made of the file's time and size
                os.setxattr(made, _ETAG, etag.encode())
        _make_directories(path.parent, self.objects)
        made.replace(path)
        sync_directory(path.parent)
        info = self._info(key, path)
        assert info is not None
        return replace(info, etag=etag, sha256=etag if len(etag) == 64 else None)

    def _info(self, key: str, path: Path) -> BlobInfo | None:
        try:
            status = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        etag = f"{status.st_mtime_ns:x}-{status.st_size:x}"
        if hasattr(os, "getxattr"):
            with suppress(OSError):
                etag = os.getxattr(path, _ETAG).decode()
        modified_at = datetime.fromtimestamp(status.st_mtime, UTC)
        return BlobInfo(key, status.st_size, etag if len(etag) == 64 else None, modified_at, etag)

    def _expiry(self, expires_s: int | None) -> int:
        return int(self.signer.now().timestamp()) + (expires_s or self._settings.url_lifetime_s)

    def _url(self, claims: Claims) -> str:
        base = self._settings.base_url
        return f"{base}{PREFIX}{self.signer.sign(claims)}"


def _make_directories(path: Path, top: Path) -> None:
    """Makes the directories down from `top`, each of them on the disk."""
    missing = []
    while path != top and not path.exists():
        missing.append(path)
        path = path.parent
    for directory in reversed(missing):
        directory.mkdir(mode=0o700, exist_ok=True)
        sync_directory(directory.parent)
