"""From a backup to a platform: on an empty data directory and an empty database, everything checked by its digest."""

from __future__ import annotations

import hashlib
import json
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import sqlalchemy as sa

from osmosis_platform.db import schema
from osmosis_platform.db.tables import metadata
from osmosis_platform.errors import InvalidRequestError, TakenError
from osmosis_platform.git.command import run
from osmosis_platform.git.hosting import init, root
from osmosis_platform.ops.backup import FORMAT, MANIFEST, Say, backed_up_tables, decode_row
from osmosis_platform.services import Services

_BATCH = 500
_COPY = 4 << 20


class BackupDamagedError(InvalidRequestError):
    """The file is no backup, or not the one that was written."""

    code = "BACKUP_DAMAGED"


def restore(services: Services, source: Path, *, say: Say = lambda _: None) -> dict[str, Any]:
    """Brings a backup back. Check first, then write: a damaged file changes nothing.

    Args:
        services: Of the new platform: its database holds no rows, its data directory no repositories.
        source: The backup.
        say: Told what is being done.

    Returns:
        The manifest, without its list of files.

    Raises:
        TakenError: There is something at the target already.
        BackupDamagedError: A part is missing or changed, or it is of a newer version.
        MasterKeyError: The master key at hand is not the one of the backup.
    """
    _refuse_occupied(services)
    say("checking the digests")
    manifest = _verify(source)
    if manifest["master_key_id"] != services.vault.master_key_id:
        raise InvalidRequestError(
            "The backup was made under another master key. Put the key file of the platform that was backed up "
            f"into {services.settings.data_dir / 'master.key'} (or name it in OSMOSIS_MASTER_KEY_FILE), then restore.",
            code="MASTER_KEY",
        )
    schema.migrate(services.database)
    with tarfile.open(source) as archive:
        say("rows")
        _restore_rows(services, archive)
        for member in archive:
            if member.name.startswith("blobs/"):
                say(f"object {member.name.removeprefix('blobs/')}")
                services.blobs.put(member.name.removeprefix("blobs/"), _chunks(archive, member))
            elif member.name.startswith("repositories/"):
                say(f"repository {Path(member.name).stem}")
                _restore_repository(services, archive, member)
    return {name: value for name, value in manifest.items() if name != "files"}


def _refuse_occupied(services: Services) -> None:
    inspector = sa.inspect(services.database.engine)
    names = set(inspector.get_table_names()) & {table.name for table in metadata.sorted_tables}
    with services.database.read() as work:
        for table in metadata.sorted_tables:
            if table.name in names and work.execute(sa.select(sa.literal(1)).select_from(table).limit(1)).first():
                message = (
                    f"The database at the target is in use (table {table.name} has rows); restore into an empty one."
                )
                raise TakenError(message, code="TARGET_IN_USE")
    folder = root(services.settings)
    if folder.is_dir() and any(folder.iterdir()):
        raise TakenError(f"{folder} holds repositories; restore into an empty data directory.", code="TARGET_IN_USE")


def _verify(source: Path) -> dict[str, Any]:
    found: dict[str, dict[str, Any]] = {}
    manifest: dict[str, Any] | None = None
    try:
        with tarfile.open(source) as archive:
            for member in archive:
                if not member.isfile():
                    raise BackupDamagedError(
                        f"{source} holds {member.name}, which is no file; it is no backup of ours."
                    )
                if member.name == MANIFEST:
                    manifest = json.loads(b"".join(_chunks(archive, member)))
                    continue
                digest, size = hashlib.sha256(), 0
                for chunk in _chunks(archive, member):
                    digest.update(chunk)
                    size += len(chunk)
                found[member.name] = {"size": size, "sha256": digest.hexdigest()}
    except FileNotFoundError:
        raise InvalidRequestError(f"There is no file {source}.") from None
    except (tarfile.TarError, OSError, ValueError) as error:
        raise BackupDamagedError(f"{source} cannot be read as a backup: {error}.") from error
    if manifest is None or manifest.get("format") != FORMAT:
        raise BackupDamagedError(f"{source} has no manifest that this version reads; it is cut short, or is newer.")
    if manifest["files"] != found:
        wrong = sorted(name for name in {*manifest["files"], *found} if manifest["files"].get(name) != found.get(name))
        raise BackupDamagedError(f"{source} is damaged: {', '.join(wrong[:5])} differ from what was written.")
    if manifest["schema"] != schema.newest():
        message = (
            f"{source} is of schema {manifest['schema']}; this version is at {schema.newest()}. Restore with its own."
        )
        raise BackupDamagedError(message)
    return manifest


def _restore_rows(services: Services, archive: tarfile.TarFile) -> None:
    with services.database.write() as work:
        for table in backed_up_tables():
            stream = archive.extractfile(f"tables/{table.name}.ndjson")
            assert stream is not None
            batch: list[dict[str, Any]] = []
            for line in stream:
                batch.append(decode_row(table, json.loads(line)))
                if len(batch) == _BATCH:
                    work.execute(table.insert(), batch)
                    batch = []
            if batch:
                work.execute(table.insert(), batch)


def _restore_repository(services: Services, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
    path = root(services.settings) / f"{Path(member.name).stem}.git"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder) / "bundle"
        with bundle.open("wb") as stream:
            for chunk in _chunks(archive, member):
                stream.write(chunk)
        building = path.with_name(f".building-{path.name}-restore")
        shutil.rmtree(building, ignore_errors=True)
        init(building)
        fetch = ["fetch", "--quiet", str(bundle), "+refs/*:refs/*"]
        run(fetch, repository=building, config=["protocol.file.allow=always"], timeout_s=3600)
        building.rename(path)


def _chunks(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[bytes]:
    stream: IO[bytes] | None = archive.extractfile(member)
    assert stream is not None
    while chunk := stream.read(_COPY):
        yield chunk
