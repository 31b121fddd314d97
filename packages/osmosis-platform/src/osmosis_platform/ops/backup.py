"""One file that holds everything of a platform: rows, objects, repositories; made while the platform runs.

A tar of `tables/<table>.ndjson`, `repositories/<id>.bundle`, `blobs/<key>`, `master-key.json` if it was asked for and,
last, `manifest.json` with the size and SHA-256 of each. Rows come from one snapshot of the database; objects are never
changed once they have a row, and repositories are bundled by Git. It is the same for SQLite and PostgreSQL, files and S3,
so that either restores into either.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import sqlalchemy as sa

from osmosis_platform.clock import wire_time
from osmosis_platform.db import schema
from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.tables import metadata
from osmosis_platform.db.types import UtcTime
from osmosis_platform.errors import MissingError, TakenError, UnavailableError
from osmosis_platform.git.command import run
from osmosis_platform.git.hosting import root
from osmosis_platform.services import Services

FORMAT = 1
MANIFEST = "manifest.json"
KEY = "master-key.json"
_COPY = 4 << 20
# jobs that run and who runs them belong to the machine that was backed up
_LEFT_OUT = frozenset({"workers"})

type Say = Callable[[str], None]


class _Archive:
    """A tar that notes what went into it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._tar = tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT)
        self.files: dict[str, dict[str, Any]] = {}

    def add(self, name: str, stream: IO[bytes], size: int) -> None:
        """Adds exactly `size` bytes of a stream."""
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode = size, 0o600
        hashing = _Hashing(stream)
        self._tar.addfile(entry, hashing)  # type: ignore[arg-type]
        self.files[name] = {"size": size, "sha256": hashing.digest.hexdigest()}

    def finish(self, facts: dict[str, Any]) -> None:
        """Adds the manifest and closes the tar."""
        data = json.dumps({**facts, "files": self.files}, indent=1).encode()
        entry = tarfile.TarInfo(MANIFEST)
        entry.size, entry.mode = len(data), 0o600
        self._tar.addfile(entry, io.BytesIO(data))
        self._tar.close()


class _Hashing:
    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self.digest = stream, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self.digest.update(data)
        return data


def back_up(
    services: Services,
    target: Path,
    *,
    with_key: bool = False,
    passphrase: bytes | None = None,
    say: Say = lambda _: None,
) -> dict[str, Any]:
    """Writes a backup; the file appears under its name only when it is whole and on the disk.

    The master key is not in it unless asked for: with it, whoever finds the backup has every secret.

    Args:
        services: Of the platform, which may be running.
        target: The file to write; it must not exist.
        with_key: Whether it carries the master key.
        passphrase: What the key is encrypted under; None for a key that everybody can read who reads the file.
        say: Told what is being written.

    Returns:
        The manifest, without its list of files.

    Raises:
        TakenError: The file exists.
        UnavailableError: It cannot be written, or the platform's data cannot be read.
    """
    if target.exists():
        raise TakenError(f"{target} exists; a backup never replaces a file. Choose another name.")
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb", buffering=_COPY) as stream:
            archive = _Archive(stream)
            if with_key:
                data = json.dumps(services.vault.parcel(passphrase)).encode()
                archive.add(KEY, io.BytesIO(data), len(data))
            rows = _add_tables(services, archive, say)
            repositories = _add_repositories(services, archive, say)
            blobs = _add_blobs(services, archive, say)
            facts = {
                "format": FORMAT,
                "schema": schema.newest(),
                "made_at": wire_time(datetime.now(UTC)),
                "master_key_id": services.vault.master_key_id,
                "rows": rows,
                "repositories": repositories,
                "blobs": blobs,
            }
            archive.finish(facts)
            stream.flush()
            os.fsync(descriptor)
        partial.rename(target)
    except OSError as error:
        raise UnavailableError(
            f"The backup {target} cannot be written: {error.strerror or error}.", code="BACKUP"
        ) from error
    finally:
        partial.unlink(missing_ok=True)
    return facts


def encode_row(table: sa.Table, row: sa.RowMapping) -> dict[str, Any]:
    """A row as JSON: times as text, bytes as base64."""
    values = {}
    for column in table.c:
        value = row[column]
        if value is not None and isinstance(column.type, UtcTime):
            value = value.isoformat()
        elif value is not None and isinstance(column.type, sa.LargeBinary):
            value = base64.b64encode(value).decode()
        values[column.name] = value
    return values


def decode_row(table: sa.Table, values: dict[str, Any]) -> dict[str, Any]:
    """A row from its JSON."""
    row = {}
    for column in table.c:
        value = values.get(column.name)
        if value is not None and isinstance(column.type, UtcTime):
            value = datetime.fromisoformat(value)
        elif value is not None and isinstance(column.type, sa.LargeBinary):
            value = base64.b64decode(value, validate=True)
        row[column.name] = value
    return row


def backed_up_tables() -> list[sa.Table]:
    """The tables of a backup, each after those that it refers to."""
    return [table for table in metadata.sorted_tables if table.name not in _LEFT_OUT]


def table_lines(work: UnitOfWork, table: sa.Table) -> Iterator[bytes]:
    """A table's rows in the order of its key, one JSON line each."""
    query = sa.select(table).order_by(*table.primary_key.columns)
    rows = work.connection.execution_options(yield_per=1000).execute(query)
    for row in rows.mappings():
        yield json.dumps(encode_row(table, row), sort_keys=True, separators=(",", ":")).encode() + b"\n"


def _add_tables(services: Services, archive: _Archive, say: Say) -> int:
    count = 0
    with services.database.read() as work:
        if work.dialect == "postgresql":
            work.connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        for table in backed_up_tables():
            say(f"table {table.name}")
            with tempfile.TemporaryFile() as lines:
                for line in table_lines(work, table):
                    lines.write(line)
                    count += 1
                size = lines.tell()
                lines.seek(0)
                archive.add(f"tables/{table.name}.ndjson", lines, size)
    return count


def _add_repositories(services: Services, archive: _Archive, say: Say) -> int:
    count = 0
    for path in sorted(root(services.settings).glob("re_*.git")):
        if not run(["for-each-ref", "--count=1"], repository=path).strip():
            continue  # Git bundles no empty repository, and there is nothing to keep
        say(f"repository {path.stem}")
        with tempfile.TemporaryDirectory() as folder:
            bundle = Path(folder) / "bundle"
            run(["bundle", "create", "--quiet", str(bundle), "--all"], repository=path, timeout_s=3600)
            with bundle.open("rb") as stream:
                archive.add(f"repositories/{path.stem}.bundle", stream, bundle.stat().st_size)
        count += 1
    return count


def _add_blobs(services: Services, archive: _Archive, say: Say) -> int:
    count = 0
    for info in services.blobs.list(""):
        say(f"object {info.key}")
        try:
            with services.blobs.local(info.key) as path, path.open("rb") as stream:
                archive.add(f"blobs/{info.key}", stream, os.fstat(stream.fileno()).st_size)
            count += 1
        except (MissingError, FileNotFoundError):  # of something that was deleted since the list was made
            continue
    return count
