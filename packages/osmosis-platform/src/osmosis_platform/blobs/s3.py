"""Objects in S3 or a store that speaks it, through boto3; bytes of clients go there and back without touching us."""

from __future__ import annotations

import hashlib
import io
import tempfile
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

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
from osmosis_platform.errors import InvalidRequestError, StorageFullError, UnavailableError
from osmosis_platform.settings import Settings

MIN_PART_BYTES = 5 << 20
_CHUNK_BYTES = 1 << 20
_SPOOL_BYTES = 8 << 20
_ABSENT = {"NoSuchKey", "NoSuchUpload", "404", "NotFound"}
_FULL = {"EntityTooLarge", "QuotaExceeded", "XMinioStorageFull", "InsufficientStorage", "507"}


class S3Store:
    """The S3 backend (`BlobStore`). Credentials come from boto3's own chain (variables, files, instance roles).

    Args:
        settings: Bucket, prefix, endpoints, region, lifetime of URLs.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._bucket = settings.s3_bucket or ""
        self._prefix = f"{settings.s3_prefix.strip('/')}/" if settings.s3_prefix.strip("/") else ""

    def put(self, key: str, chunks: Iterable[bytes]) -> BlobInfo:
        """See `BlobStore`; spooled to a file first, because the store wants to know the length and the hash."""
        digest = hashlib.sha256()
        with tempfile.SpooledTemporaryFile(_SPOOL_BYTES) as file:
            for chunk in chunks:
                digest.update(chunk)
                file.write(chunk)
            file.seek(0)
            return self._send(key, file, digest.hexdigest())

    def put_file(self, key: str, path: Path) -> BlobInfo:
        """See `BlobStore`."""
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            file.seek(0)
            return self._send(key, file, digest)

    def open(self, key: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """See `BlobStore`."""
        if end is not None and end <= start:
            return iter(())
        wanted = {} if (start, end) == (0, None) else {"Range": f"bytes={start}-{'' if end is None else end - 1}"}
        with _translated(key):
            body = self._client.get_object(Bucket=self._bucket, Key=self._name(key), **wanted)["Body"]

        def read() -> Iterator[bytes]:
            with _translated(key):
                yield from body.iter_chunks(_CHUNK_BYTES)

        return read()

    @contextmanager
    def local(self, key: str) -> Generator[Path]:
        """See `BlobStore`; a copy in the data directory that goes with the block."""
        scratch = self._settings.data_dir / "tmp"
        scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=scratch, prefix="object-") as file:
            for chunk in self.open(key):
                file.write(chunk)
            file.flush()
            yield Path(file.name)

    def head(self, key: str) -> BlobInfo | None:
        """See `BlobStore`."""
        from botocore.exceptions import ClientError

        with _translated(key):
            try:
                found = self._client.head_object(Bucket=self._bucket, Key=self._name(key))
            except ClientError as error:
                if error.response["Error"]["Code"] in _ABSENT:
                    return None
                raise
        sha256 = found.get("Metadata", {}).get("sha256")
        return BlobInfo(key, found["ContentLength"], sha256, found["LastModified"], found["ETag"].strip('"'))

    def delete(self, key: str) -> None:
        """See `BlobStore`."""
        with _translated(key):
            self._client.delete_object(Bucket=self._bucket, Key=self._name(key))

    def list(self, prefix: str) -> Iterator[BlobInfo]:
        """See `BlobStore`."""
        if prefix:
            check_key(f"{prefix.rstrip('/')}/x/x")
            prefix = f"{prefix.rstrip('/')}/"
        with _translated(prefix):
            pages = self._client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self._bucket, Prefix=f"{self._prefix}{prefix}"):
                for found in page.get("Contents", ()):
                    key = found["Key"].removeprefix(self._prefix)
                    yield BlobInfo(key, found["Size"], None, found["LastModified"], found["ETag"].strip('"'))

    def presign_get(self, key: str, *, file_name: str, expires_s: int | None = None) -> str:
        """See `BlobStore`."""
        parameters = {
            "Key": self._name(key),
            "ResponseContentDisposition": f"attachment; filename*=UTF-8''{quote(file_name, safe='')}",
            "ResponseContentType": OCTETS,
        }
        return self._presign("get_object", parameters, expires_s)

    def begin_upload(self, key: str, *, size_bytes: int) -> Upload:
        """See `BlobStore`."""
        name = self._name(key)
        part_size = max(MIN_PART_BYTES, self._settings.upload_part_bytes)
        planned = plan(size_bytes, part_size, self._settings.url_lifetime_s)
        # Also for a single PUT: until it is completed it is no object, and its URL is worth nothing afterwards.
        with _translated(key):
            begun = self._client.create_multipart_upload(Bucket=self._bucket, Key=name, ContentType=OCTETS)
        return self.renew_upload(key, replace(planned, store_id=begun["UploadId"]))

    def renew_upload(self, key: str, upload: Upload) -> Upload:
        """See `BlobStore`."""
        place = {"Key": self._name(key), "UploadId": upload.store_id}
        urls = [
            self._presign("upload_part", {**place, "PartNumber": number}, None)
            for number in range(1, upload.total_parts + 1)
        ]
        return replace(upload, urls=tuple(urls), expires_in=self._settings.url_lifetime_s)

    def uploaded_parts(self, key: str, upload: Upload) -> Sequence[UploadedPart]:
        """See `BlobStore`."""
        return self._parts(key, upload) or []

    def complete_upload(self, key: str, upload: Upload, parts: Sequence[tuple[int, str]]) -> BlobInfo:
        """See `BlobStore`."""
        arrived = self._parts(key, upload)
        if arrived is None:
            return self._completed(key, upload)
        check_parts(upload, arrived, parts)
        listed = [{"PartNumber": part.number, "ETag": f'"{part.etag}"'} for part in arrived]
        with _translated(key):
            self._client.complete_multipart_upload(
                Bucket=self._bucket,
                Key=self._name(key),
                UploadId=upload.store_id,
                MultipartUpload={"Parts": listed},
            )
        return self._completed(key, upload)

    def abort_upload(self, key: str, upload: Upload) -> None:
        """See `BlobStore`."""
        from botocore.exceptions import ClientError

        with _translated(key):
            try:
                self._client.abort_multipart_upload(Bucket=self._bucket, Key=self._name(key), UploadId=upload.store_id)
            except ClientError as error:
                if error.response["Error"]["Code"] not in _ABSENT:
                    raise

    def sweep(self, before: datetime) -> int:
        """See `BlobStore`; S3 tells when an upload began, not when its last part came."""
        swept = 0
        with _translated("uploads"):
            pages = self._client.get_paginator("list_multipart_uploads")
            for page in pages.paginate(Bucket=self._bucket, Prefix=self._prefix):
                for found in page.get("Uploads", ()):
                    if found["Initiated"] < before:
                        self._client.abort_multipart_upload(
                            Bucket=self._bucket, Key=found["Key"], UploadId=found["UploadId"]
                        )
                        swept += 1
        return swept

    @cached_property
    def _client(self) -> Any:
        return self._connect(self._settings.s3_endpoint)

    @cached_property
    def _public(self) -> Any:
        """Signs the URLs of clients, who may know the store by another name."""
        endpoint = self._settings.s3_public_endpoint
        return self._connect(endpoint) if endpoint else self._client

    def _connect(self, endpoint: str | None) -> Any:
        import boto3
        from botocore.config import Config

        config = Config(
            signature_version="s3v4",
            s3={"addressing_style": "path" if endpoint else "auto"},
            request_checksum_calculation="when_required",  # presigned PUTs must not ask clients for checksum headers
            response_checksum_validation="when_required",
            connect_timeout=10,
            read_timeout=60,
            retries={"max_attempts": 4, "mode": "standard"},
        )
        session = boto3.session.Session()
        return session.client("s3", endpoint_url=endpoint, region_name=self._settings.s3_region, config=config)

    def _send(self, key: str, file: Any, sha256: str) -> BlobInfo:
        from boto3.s3.transfer import TransferConfig

        name = self._name(key)
        serial = TransferConfig(use_threads=False, multipart_chunksize=_SPOOL_BYTES)
        extra = {"ContentType": OCTETS, "Metadata": {"sha256": sha256}}
        with _translated(key):
            self._client.upload_fileobj(_Unclosed(file), self._bucket, name, ExtraArgs=extra, Config=serial)
        info = self.head(key)
        if info is None:
            raise UnavailableError("The object store lost what was just put into it. Try again.")
        return info

    def _parts(self, key: str, upload: Upload) -> Sequence[UploadedPart] | None:
        """What arrived of a multipart upload; None when the store does not know it any more."""
        from botocore.exceptions import ClientError

        with _translated(key):
            try:
                pages = self._client.get_paginator("list_parts")
                return [
                    UploadedPart(part["PartNumber"], part["Size"], part["ETag"].strip('"'))
                    for page in pages.paginate(Bucket=self._bucket, Key=self._name(key), UploadId=upload.store_id)
                    for part in page.get("Parts", ())
                ]
            except ClientError as error:
                if error.response["Error"]["Code"] in _ABSENT:
                    return None
                raise

    def _completed(self, key: str, upload: Upload) -> BlobInfo:
        info = self.head(key)
        if info is None:
            raise upload_gone()
        if info.size_bytes != upload.size_bytes:
            message = f"The upload has {info.size_bytes} bytes instead of {upload.size_bytes}. Send it again."
            raise InvalidRequestError(message, code="PART_MISMATCH", field="parts")
        return info

    def _presign(self, operation: str, parameters: dict[str, Any], expires_s: int | None) -> str:
        lifetime = expires_s or self._settings.url_lifetime_s
        with _translated("URL"):
            return self._public.generate_presigned_url(
                operation, Params={"Bucket": self._bucket, **parameters}, ExpiresIn=lifetime
            )

    def _name(self, key: str) -> str:
        return self._prefix + check_key(key)


class _Unclosed(io.RawIOBase):
    """Reads a file and leaves it open: the transfer closes what it is given, which is not its to close."""

    def __init__(self, file: Any) -> None:
        super().__init__()
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._file.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()


@contextmanager
def _translated(key: str) -> Generator[None]:
    """Tells absent objects, a full store and one that does not answer apart."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        if code == "NoSuchUpload":
            raise upload_gone() from error
        if code in _ABSENT:
            raise no_object(key) from error
        if code in _FULL:
            raise StorageFullError("The object store takes no more. An administrator must make room.") from error
        message = f"The object store refused ({code}); see s3_bucket, s3_endpoint and the AWS variables."
        raise UnavailableError(message, code="STORE_REFUSED") from error
    except BotoCoreError as error:
        message = f"The object store does not answer now ({type(error).__name__}); nothing was changed. Try again."
        raise UnavailableError(message, headers={"Retry-After": "2"}) from error
