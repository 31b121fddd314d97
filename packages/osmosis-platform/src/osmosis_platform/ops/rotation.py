"""Replacing the master key so that a kill at any moment loses nothing: new file first, then the rows, then the name."""

from __future__ import annotations

import secrets
from pathlib import Path

from osmosis_platform import crashpoints
from osmosis_platform.db import schema
from osmosis_platform.db.repositories.audit import AuditRepository
from osmosis_platform.db.repositories.data_keys import MasterKeyRepository
from osmosis_platform.errors import InvalidRequestError, TakenError
from osmosis_platform.ops.instance import Instance
from osmosis_platform.secrets.master_key import KEY_BYTES, decode, key_place, waiting_place, write_key
from osmosis_platform.services import Services, open_services
from osmosis_platform.settings import Settings


def rotate_master_key(settings: Settings, new_key_file: Path | None = None) -> tuple[int, Path]:
    """Makes a new master key and wraps every data key by it.

    Args:
        settings: Of the platform, which is stopped.
        new_key_file: Where to write the new key; default: over the file of the old one.

    Returns:
        How many data keys were wrapped, and the file of the new key.

    Raises:
        TakenError: The platform runs, or there is a file where the new key should go.
        InvalidRequestError: The key comes from a variable, so there is no file to replace; or the new file cannot be
            written.
    """
    place = key_place(settings)
    if settings.master_key is not None and new_key_file is None:
        message = (
            "The master key comes from OSMOSIS_MASTER_KEY; give --new-key-file, and put its text there afterwards."
        )
        raise InvalidRequestError(message, code="MASTER_KEY")
    instance = Instance(settings)
    instance.acquire()
    try:
        finish_rotation(settings)
        services = open_services(settings)
        try:
            schema.migrate(services.database)
            services.vault.check(services.database)
            target = (new_key_file or place).absolute()
            waiting = target if new_key_file else waiting_place(settings)
            key = secrets.token_bytes(KEY_BYTES)
            _write(waiting, key)
            crashpoints.reach("keys.after-file")
            count = _rewrap(services, waiting)
            crashpoints.reach("keys.after-rows")
            if new_key_file is None:
                waiting.replace(place)
            return count, target
        finally:
            services.close()
    finally:
        instance.release()


def finish_rotation(settings: Settings) -> None:
    """Ends a rotation that was interrupted: takes the waiting key if the rows are under it already, drops it if not.

    Only for who holds the instance's lock; commands beside it read either key (`secrets.master_key.successors`).
    """
    waiting = waiting_place(settings)
    if settings.master_key is not None or not waiting.exists():
        return
    services = open_services(settings)
    try:
        if schema.current(services.database) is None:
            return
        with services.database.read() as work:
            known = MasterKeyRepository(work).current()
    finally:
        services.close()
    if known is not None and known.id == decode(waiting.read_text(encoding="ascii"), str(waiting)).id:
        waiting.replace(key_place(settings))
    else:
        waiting.unlink()


def _write(path: Path, key: bytes) -> None:
    try:
        write_key(path, key)
    except FileExistsError:
        message = f"There is already a file {path}, and no key is written over it; name another. Nothing was changed."
        raise TakenError(message, code="MASTER_KEY") from None
    except OSError as error:
        message = f"The new key cannot be written to {path}: {error.strerror}. Nothing was changed."
        raise InvalidRequestError(message, code="MASTER_KEY") from error


def _rewrap(services: Services, path: Path) -> int:
    new = decode(path.read_text(encoding="ascii"), str(path))
    with services.database.write() as work:
        count = services.vault.rotate(work, new)
        facts = {"data_keys": count, "master_key_id": new.id}
        AuditRepository(work).record(None, None, "keys.rotate", "master_key", new.id, facts)
    return count
