"""From a backup to a platform: on an empty data directory and an empty database, everything checked by its digest."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import sqlalchemy as sa
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from osmosis_platform import crashpoints
from osmosis_platform.blobs.store import check_key
from osmosis_platform.db import schema
from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.tables import metadata
from osmosis_platform.errors import InvalidRequestError, ServiceError, TakenError
from osmosis_platform.git.command import GitCommandError, run
from osmosis_platform.git.hosting import init, root
from osmosis_platform.ops.backup import FORMAT, KEY, MANIFEST, Say, backed_up_tables, decode_row
from osmosis_platform.secrets.key_parcel import unpack
from osmosis_platform.secrets.master_key import key_place, load_master_key, write_key
from osmosis_platform.services import Services
from osmosis_platform.settings import Settings

UNFINISHED = "restore.unfinished"
_BATCH = 500
_LINE = 64 << 20
_SMALL = {MANIFEST: 256 << 20, KEY: 64 << 10}  # members that are read as a whole, and how large they may be
_FACTS = {"files": dict, "schema": str, "master_key_id": str, "rows": int, "repositories": int, "blobs": int}
_BUNDLE = re.compile(r"re_[0-9a-z]{26}\.bundle")
_COPY = 4 << 20


class BackupDamagedError(InvalidRequestError):
    """The file is no backup, or not the one that was written."""

    code = "BACKUP_DAMAGED"


def restore(
    services: Services, source: Path, *, passphrase: bytes | None = None, say: Say = lambda _: None
) -> dict[str, Any]:
    """Brings a backup back. Check first, then write, rows last: whatever stops it, the target is empty or whole.

    Args:
        services: Of the new platform: its database holds no rows, its data directory no repositories.
        source: The backup.
        passphrase: Opens the master key in the backup, if it has one and the target none.
        say: Told what is being done.

    Returns:
        The manifest, without its list of files.

    Raises:
        TakenError: There is something at the target already.
        BackupDamagedError: A part is missing or changed, or it is of a newer version.
        InvalidRequestError: `MASTER_KEY`: the key at hand is not the one of the backup, or there is none.
    """
    _refuse_occupied(services)
    say("checking the digests")
    manifest, parcel = _verify(source)
    key_file = _take_key(services.settings, manifest["master_key_id"], parcel, passphrase, source)
    unfinished = services.settings.data_dir / UNFINISHED
    unfinished.touch(mode=0o600)
    try:
        schema.migrate(services.database)
        with tarfile.open(source, "r:") as archive, services.database.write() as work:
            say("rows")
            _restore_rows(work, archive)
            for member in archive:
                if member.name.startswith("blobs/"):
                    say(f"object {member.name.removeprefix('blobs/')}")
                    services.blobs.put(member.name.removeprefix("blobs/"), _chunks(archive, member))
                elif member.name.startswith("repositories/"):
                    say(f"repository {Path(member.name).stem}")
                    _restore_repository(services, archive, member)
            crashpoints.reach("restore.before-commit")
    except BaseException:
        shutil.rmtree(root(services.settings), ignore_errors=True)
        if key_file is not None:
            key_file.unlink(missing_ok=True)
        unfinished.unlink(missing_ok=True)
        raise
    unfinished.unlink(missing_ok=True)
    return {name: value for name, value in manifest.items() if name != "files"}


def refuse_unfinished(services: Services) -> None:
    """Keeps a platform from starting on the half of a restore that was killed.

    Raises:
        TakenError: `RESTORE_UNFINISHED`.
    """
    marker = services.settings.data_dir / UNFINISHED
    if not marker.exists():
        return
    if _table_with_rows(services) is None:
        message = (
            f"A restore into {services.settings.data_dir} was interrupted. Run it again, "
            f"or delete {marker.name} and repositories/ there to start anew."
        )
        raise TakenError(message, code="RESTORE_UNFINISHED")
    marker.unlink()  # the rows come last, so all of it is there


def _take_key(settings: Settings, wanted_id: str, parcel: Any, passphrase: bytes | None, source: Path) -> Path | None:
    """Sees to it that the backup's key is the platform's; the file it was written to, if it was."""
    place = key_place(settings)
    if settings.master_key is not None or place.exists():
        key = load_master_key(settings)
        if key.id != wanted_id:
            hint = f" Or take {key.source} away, so that the key in the backup is used." if parcel is not None else ""
            raise InvalidRequestError(
                f"The backup was made under another master key than the one of {key.source}. Put the key file of the "
                f"platform that was backed up there, or name it in OSMOSIS_MASTER_KEY_FILE, then restore.{hint}",
                code="MASTER_KEY",
            )
        return None
    if parcel is None:
        raise InvalidRequestError(
            f"The master key of the backup is not in it. Put the key file of the platform that was backed up into {place} "
            "(or name it in OSMOSIS_MASTER_KEY_FILE), then restore.",
            code="MASTER_KEY",
        )
    key = unpack(parcel, passphrase, str(source))
    if key.id != wanted_id:
        raise BackupDamagedError(f"{source} holds another master key than the one it was made under.")
    write_key(place, key.key)
    return place


def _refuse_occupied(services: Services) -> None:
    table = _table_with_rows(services)
    if table is not None:
        message = f"The database at the target is in use (table {table} has rows); restore into an empty one."
        raise TakenError(message, code="TARGET_IN_USE")
    folder = root(services.settings)
    if (services.settings.data_dir / UNFINISHED).exists():
        shutil.rmtree(folder, ignore_errors=True)  # of a restore that was killed: its rows never came
    if folder.is_dir() and any(folder.iterdir()):
        raise TakenError(f"{folder} holds repositories; restore into an empty data directory.", code="TARGET_IN_USE")


def _table_with_rows(services: Services) -> str | None:
    names = set(sa.inspect(services.database.engine).get_table_names())
    with services.database.read() as work:
        for table in metadata.sorted_tables:
            if table.name in names and work.execute(sa.select(sa.literal(1)).select_from(table).limit(1)).first():
                return table.name
    return None


def _verify(source: Path) -> tuple[dict[str, Any], Any]:
    """The manifest, and the master key's parcel if there is one, once every byte is what the manifest says.

    Digests tell damage, not malice: whoever changes a file can change the manifest too. So names, kinds and sizes are
    judged as those of a stranger, and the rows by the database.
    """
    found: dict[str, dict[str, Any]] = {}
    small: dict[str, bytes] = {}
    try:
        with tarfile.open(source, "r:") as archive:  # no compression, which could swell without end
            for member in archive:
                if not member.isfile() or member.issparse():
                    raise BackupDamagedError(
                        f"{source} holds {member.name[:200]!r}, which is no plain file; it is no backup."
                    )
                if member.name in found or member.name in small or not _is_ours(member.name):
                    raise BackupDamagedError(f"{source} holds {member.name[:200]!r}, which no backup holds, or twice.")
                limit = _SMALL.get(member.name)
                if limit is not None and member.size > limit:
                    raise BackupDamagedError(f"{source} holds a {member.name} of {member.size} bytes; it is no backup.")
                digest, size = hashlib.sha256(), 0
                for chunk in _chunks(archive, member):
                    digest.update(chunk)
                    size += len(chunk)
                    if limit is not None:
                        small[member.name] = small.get(member.name, b"") + chunk
                if member.name != MANIFEST:
                    found[member.name] = {"size": size, "sha256": digest.hexdigest()}
        manifest = json.loads(small[MANIFEST]) if MANIFEST in small else None
        parcel = json.loads(small[KEY]) if KEY in small else None
    except BackupDamagedError:
        raise
    except FileNotFoundError:
        raise InvalidRequestError(f"There is no file {source}.", code="BACKUP") from None
    except (PermissionError, IsADirectoryError) as error:
        raise InvalidRequestError(f"{source} cannot be read: {error.strerror}.", code="BACKUP") from None
    except Exception as error:  # tarfile and json have many ways to say that bytes are none of theirs
        raise BackupDamagedError(f"{source} cannot be read as a backup: {str(error)[:200]}.") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise BackupDamagedError(f"{source} has no manifest that this version reads; it is cut short, or is newer.")
    for name, kind in _FACTS.items():
        if not isinstance(manifest.get(name), kind):
            raise BackupDamagedError(f"The manifest of {source} has no proper `{name}`; it is no backup of ours.")
    files = manifest["files"]
    if files != found:
        wrong = sorted(name for name in {*files, *found} if files.get(name) != found.get(name))
        raise BackupDamagedError(f"{source} is damaged: {', '.join(wrong[:5])} differ from what was written.")
    if manifest["schema"] != schema.newest():
        theirs = manifest["schema"][:40]
        message = f"{source} is of schema {theirs}; this version is at {schema.newest()}. Restore with its own."
        raise BackupDamagedError(message)
    missing = [table.name for table in backed_up_tables() if f"tables/{table.name}.ndjson" not in found]
    if missing:
        raise BackupDamagedError(f"{source} lacks the tables {', '.join(missing[:5])}; it is no whole backup.")
    return manifest, parcel


def _is_ours(name: str) -> bool:
    folder, _, rest = name.partition("/")
    if folder == "tables":
        return rest.removesuffix(".ndjson") in {table.name for table in backed_up_tables()} and rest.endswith(".ndjson")
    if folder == "repositories":
        return _BUNDLE.fullmatch(rest) is not None
    if folder == "blobs":
        try:
            check_key(rest)
        except (ServiceError, ValueError):
            return False
        return True
    return name in _SMALL


def _restore_rows(work: UnitOfWork, archive: tarfile.TarFile) -> None:
    for table in backed_up_tables():
        stream = archive.extractfile(f"tables/{table.name}.ndjson")
        assert stream is not None
        number = 0
        try:
            batch: list[dict[str, Any]] = []
            while line := stream.readline(_LINE):
                number += 1
                if len(line) == _LINE:
                    raise ValueError("a line is too long")
                values = json.loads(line)
                if not isinstance(values, dict) or not values.keys() <= set(table.c.keys()):
                    raise ValueError("a line is no row")
                batch.append(decode_row(table, values))
                if len(batch) == _BATCH:
                    work.execute(table.insert(), batch)
                    batch = []
            if batch:
                work.execute(table.insert(), batch)
        except (ValueError, TypeError, ArithmeticError, RecursionError, SQLAlchemyError) as error:
            if isinstance(error, OperationalError):
                raise  # the database is away or full, which is no fault of the backup
            message = f"The backup is damaged: table {table.name} near line {number} holds no proper rows."
            raise BackupDamagedError(message) from error


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
        try:
            run(fetch, repository=building, config=["protocol.file.allow=always"], timeout_s=3600)
        except GitCommandError as error:
            raise BackupDamagedError(f"The backup is damaged: Git cannot read {member.name}.") from error
        building.rename(path)


def _chunks(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[bytes]:
    stream: IO[bytes] | None = archive.extractfile(member)
    assert stream is not None
    while chunk := stream.read(_COPY):
        yield chunk
