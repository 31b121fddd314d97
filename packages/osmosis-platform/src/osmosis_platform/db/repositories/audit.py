"""The audit log: appended in the transaction of what it tells, one hash chain per workspace and one for the platform."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.tables.audit import audit_entries
from osmosis_platform.db.tables.identity import workspaces
from osmosis_platform.domain.actor import Actor

PLATFORM_CHAIN = "platform"
FIRST = "0" * 64
"""The hash before a chain's first entry."""
_BATCH = 500
_DEEP = 8
_SAFE_INTEGER = 1 << 53


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One thing that was done. `hash` covers every field and the hash before it."""

    chain: str
    seq: int
    at: datetime
    actor_kind: str
    actor_id: str | None
    action: str
    resource_kind: str
    resource_id: str | None
    details: Mapping[str, Any]
    ip: str | None
    request_id: str | None
    previous_hash: str
    hash: str

    @property
    def is_unchanged(self) -> bool:
        """Whether the hash is that of the fields."""
        values = {name: getattr(self, name) for name in AuditEntry.__dataclass_fields__ if name != "hash"}
        return self.hash == _hash(values)


class AuditRepository:
    """Rows of `audit_entries`; there is no update and no delete."""

    def __init__(self, work: UnitOfWork) -> None:
        self._work = work

    def record(
        self,
        workspace_id: str | None,
        actor: Actor | None,
        action: str,
        resource_kind: str,
        resource_id: str | None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        """Appends an entry at the end of this transaction: whoever appends holds the chain until the commit.

        Args:
            workspace_id: Whose chain; None for the platform's.
            actor: Who did it; None for the platform itself.
            action: What, for example `dataset.delete`.
            resource_kind: To what kind of thing.
            resource_id: To which.
            details: Further JSON facts, never a secret.
        """
        facts = {} if actor is None or actor.token_id is None else {"token_id": actor.token_id}
        values: dict[str, Any] = {
            "chain": workspace_id or PLATFORM_CHAIN,
            "at": self._work.clock(),
            "actor_kind": "system" if actor is None else "token" if actor.token_id else "user",
            "actor_id": None if actor is None else actor.user_id,
            "action": action,
            "resource_kind": resource_kind,
            "resource_id": _plain(resource_id),
            "details": _plain({**(details or {}), **facts}),
            "ip": None if actor is None else _plain(actor.ip),
            "request_id": None if actor is None else actor.request_id,
        }
        self._work.before_commit(lambda: self._append(values))

    def page(self, workspace_id: str | None, *, before: int | None = None, limit: int = 50) -> list[AuditEntry]:
        """Entries of a chain, newest first, older than `before`."""
        query = sa.select(audit_entries).where(audit_entries.c.chain == (workspace_id or PLATFORM_CHAIN))
        if before is not None:
            query = query.where(audit_entries.c.seq < before)
        rows = self._work.execute(query.order_by(audit_entries.c.seq.desc()).limit(limit)).mappings()
        return [AuditEntry(**row) for row in rows]

    def walk(self, workspace_id: str | None) -> Iterator[AuditEntry]:
        """Every entry of a chain, oldest first, in constant memory."""
        after = 0
        while True:
            query = sa.select(audit_entries).where(
                audit_entries.c.chain == (workspace_id or PLATFORM_CHAIN), audit_entries.c.seq > after
            )
            rows = self._work.execute(query.order_by(audit_entries.c.seq).limit(_BATCH)).mappings().all()
            for row in rows:
                yield AuditEntry(**row)
            if len(rows) < _BATCH:
                return
            after = rows[-1]["seq"]

    def after(self, workspace_id: str | None, seq: int, *, limit: int) -> list[AuditEntry]:
        """Entries of a chain, oldest first, newer than `seq`: for exports."""
        query = sa.select(audit_entries).where(
            audit_entries.c.chain == (workspace_id or PLATFORM_CHAIN), audit_entries.c.seq > seq
        )
        rows = self._work.execute(query.order_by(audit_entries.c.seq).limit(limit))
        return [AuditEntry(**row._mapping) for row in rows]

    def verify(self, workspace_id: str | None) -> int | None:
        """The first entry of a chain that was changed, or whose predecessor is gone; None when all is as it was written.

        A chain cannot tell that its newest entries are gone: compare `head` with one kept elsewhere, as backups do.
        """
        previous, expected = FIRST, 1
        for entry in self.walk(workspace_id):
            if entry.seq != expected or entry.previous_hash != previous or not entry.is_unchanged:
                return expected
            previous, expected = entry.hash, expected + 1
        return None

    def head(self, workspace_id: str | None) -> tuple[int, str]:
        """How many entries a chain has, and the hash of the newest."""
        newest = sa.select(audit_entries.c.seq, audit_entries.c.hash).where(
            audit_entries.c.chain == (workspace_id or PLATFORM_CHAIN)
        )
        last = self._work.execute(newest.order_by(audit_entries.c.seq.desc()).limit(1)).one_or_none()
        return (0, FIRST) if last is None else (last.seq, last.hash)

    def _append(self, values: dict[str, Any]) -> None:
        chain = values["chain"]
        if self._work.dialect == "postgresql":  # SQLite has one writer anyway
            key = sa.func.hashtextextended(f"audit:{chain}", 0)
            self._work.execute(sa.select(sa.func.pg_advisory_xact_lock(key)))
        seq, previous = self.head(None if chain == PLATFORM_CHAIN else chain)
        row = {**values, "seq": seq + 1, "previous_hash": previous}
        self._work.execute(audit_entries.insert().values(**row, hash=_hash(row)))


class AuditIndex:
    """Which chains there are, whosever they are."""

    GLOBAL = "an administrator verifies every chain"

    def __init__(self, work: UnitOfWork) -> None:
        self._work = work

    def chains(self) -> list[tuple[str, str | None]]:
        """Every chain and the name of its workspace, deleted ones too; None for the platform's."""
        query = (
            sa.select(audit_entries.c.chain, workspaces.c.name)
            .distinct()
            .select_from(audit_entries.outerjoin(workspaces, workspaces.c.id == audit_entries.c.chain))
            .order_by(audit_entries.c.chain)
        )
        return [(chain, name) for chain, name in self._work.execute(query)]


def _hash(values: Mapping[str, Any]) -> str:
    facts = {**values, "at": values["at"].isoformat(timespec="microseconds")}
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any, depth: int = 0) -> Any:
    """A value as both databases give it back to the letter: they differ over NUL, surrogates, floats and long numbers."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if abs(value) < _SAFE_INTEGER else str(value)
    if isinstance(value, str):
        return str(value).replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    if depth < _DEEP and isinstance(value, Mapping):
        return {str(_plain(str(key))): _plain(one, depth + 1) for key, one in value.items()}
    if depth < _DEEP and isinstance(value, list | tuple | set | frozenset):
        return [
            _plain(one, depth + 1) for one in (sorted(value, key=str) if isinstance(value, set | frozenset) else value)
        ]
    return _plain(str(value))
