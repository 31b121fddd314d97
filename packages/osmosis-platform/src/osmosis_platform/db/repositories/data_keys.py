"""Master keys (only a check value of each) and the data keys that they wrap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.tables.secrets import data_keys, master_keys
from osmosis_platform.ids import new_id


@dataclass(frozen=True, slots=True)
class MasterKeyCheck:
    """A value that only the right master key opens."""

    id: str
    nonce: bytes
    ciphertext: bytes


@dataclass(frozen=True, slots=True)
class WrappedKey:
    """A data key of a workspace, wrapped by a master key."""

    id: str
    workspace_id: str
    master_key_id: str
    nonce: bytes
    wrapped: bytes


class MasterKeyRepository:
    """Rows of `master_keys`."""

    GLOBAL = "the master key belongs to the platform"

    def __init__(self, work: UnitOfWork) -> None:
        self._work = work

    def current(self) -> MasterKeyCheck | None:
        """The key that is in use."""
        query = sa.select(master_keys.c.id, master_keys.c.check_nonce, master_keys.c.check_ciphertext)
        row = self._work.execute(query.where(master_keys.c.retired_at.is_(None))).one_or_none()
        return None if row is None else MasterKeyCheck(row[0], bytes(row[1]), bytes(row[2]))

    def lock(self) -> None:
        """Lets one process at a time choose the first key (SQLite has one writer anyway)."""
        if self._work.dialect == "postgresql":
            self._work.execute(sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtextextended("master key", 0))))

    def add(self, key: MasterKeyCheck) -> None:
        """Notes a key that is used from now on; the one before is retired."""
        now = self._work.clock()
        in_use = master_keys.c.retired_at.is_(None) & (master_keys.c.id != key.id)
        self._work.execute(master_keys.update().where(in_use).values(retired_at=now))
        known = self._work.execute(sa.select(master_keys.c.id).where(master_keys.c.id == key.id)).one_or_none()
        values = {"check_nonce": key.nonce, "check_ciphertext": key.ciphertext, "retired_at": None}
        if known is None:
            self._work.execute(master_keys.insert().values(id=key.id, created_at=now, **values))
        else:
            self._work.execute(master_keys.update().where(master_keys.c.id == key.id).values(**values))

    def wrapped_by_others(self, master_key_id: str) -> list[WrappedKey]:
        """Every data key that another master key wraps."""
        query = sa.select(*_COLUMNS).where(data_keys.c.master_key_id != master_key_id).order_by(data_keys.c.id)
        return [_wrapped(row) for row in self._work.execute(query)]

    def rewrap(self, data_key_id: str, master_key_id: str, nonce: bytes, wrapped: bytes) -> None:
        """Replaces the wrapping of a data key; what it encrypted stays."""
        values = {"master_key_id": master_key_id, "nonce": nonce, "wrapped": wrapped}
        self._work.execute(data_keys.update().where(data_keys.c.id == data_key_id).values(**values))


class DataKeyRepository:
    """Rows of `data_keys`; the workspace id may be `platform`."""

    def __init__(self, work: UnitOfWork) -> None:
        self._work = work

    def current(self, workspace_id: str) -> WrappedKey | None:
        """The newest key of a workspace that is not retired."""
        query = sa.select(*_COLUMNS).where(data_keys.c.workspace_id == workspace_id, data_keys.c.retired_at.is_(None))
        row = self._work.execute(query.order_by(data_keys.c.created_at.desc()).limit(1)).one_or_none()
        return None if row is None else _wrapped(row)

    def find(self, workspace_id: str, data_key_id: str) -> WrappedKey | None:
        """One key of a workspace, retired or not."""
        query = sa.select(*_COLUMNS).where(data_keys.c.workspace_id == workspace_id, data_keys.c.id == data_key_id)
        row = self._work.execute(query).one_or_none()
        return None if row is None else _wrapped(row)

    def add(self, workspace_id: str, master_key_id: str, key_id: str, nonce: bytes, wrapped: bytes) -> None:
        """A new key of a workspace."""
        values = {"master_key_id": master_key_id, "nonce": nonce, "wrapped": wrapped, "created_at": self._work.clock()}
        self._work.execute(data_keys.insert().values(id=key_id, workspace_id=workspace_id, **values))

    def retire(self, workspace_id: str) -> None:
        """Makes the next value be encrypted under a new key."""
        in_use = (data_keys.c.workspace_id == workspace_id) & data_keys.c.retired_at.is_(None)
        self._work.execute(data_keys.update().where(in_use).values(retired_at=self._work.clock()))


_COLUMNS = [data_keys.c[name] for name in ("id", "workspace_id", "master_key_id", "nonce", "wrapped")]


def _wrapped(row: sa.Row[*tuple[Any, ...]]) -> WrappedKey:
    key_id, workspace_id, master_key_id, nonce, wrapped = row
    return WrappedKey(key_id, workspace_id, master_key_id, bytes(nonce), bytes(wrapped))


def new_data_key_id() -> str:
    """The id of a data key that is about to be wrapped; it is part of what the wrapping authenticates."""
    return new_id("dk")
