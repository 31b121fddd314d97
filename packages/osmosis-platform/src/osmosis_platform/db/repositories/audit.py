"""The audit log: appended in the transaction of what it tells, one hash chain per workspace and one for the platform."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.tables.audit import audit_entries
from osmosis_platform.domain.actor import Actor

PLATFORM_CHAIN = "platform"
_FIRST = "0" * 64


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
        """Appends an entry.

        Args:
            workspace_id: Whose chain; None for the platform's.
            actor: Who did it; None for the platform itself.
            action: What, for example `dataset.delete`.
            resource_kind: To what kind of thing.
            resource_id: To which.
            details: Further JSON facts, never a secret.
        """
        chain = workspace_id or PLATFORM_CHAIN
        if self._work.dialect == "postgresql":  # SQLite has one writer anyway
            self._work.execute(sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtext(f"audit:{chain}"))))
        newest = sa.select(audit_entries.c.seq, audit_entries.c.hash).where(audit_entries.c.chain == chain)
        last = self._work.execute(newest.order_by(audit_entries.c.seq.desc()).limit(1)).one_or_none()
        kind = "system" if actor is None else "token" if actor.token_id else "user"
        values: dict[str, Any] = {
            "chain": chain,
            "seq": 1 if last is None else last.seq + 1,
            "at": self._work.clock(),
            "actor_kind": kind,
            "actor_id": None if actor is None else actor.user_id,
            "action": action,
            "resource_kind": resource_kind,
            "resource_id": resource_id,
            "details": dict(details or {}),
            "ip": None if actor is None else actor.ip,
            "request_id": None if actor is None else actor.request_id,
            "previous_hash": _FIRST if last is None else last.hash,
        }
        self._work.execute(audit_entries.insert().values(**values, hash=_hash(values)))

    def page(self, workspace_id: str | None, *, before: int | None = None, limit: int = 50) -> list[AuditEntry]:
        """Entries of a chain, newest first, older than `before`."""
        query = sa.select(audit_entries).where(audit_entries.c.chain == (workspace_id or PLATFORM_CHAIN))
        if before is not None:
            query = query.where(audit_entries.c.seq < before)
        rows = self._work.execute(query.order_by(audit_entries.c.seq.desc()).limit(limit))
        return [AuditEntry(**row._mapping) for row in rows]

    def verify(self, workspace_id: str | None) -> int | None:
        """The first entry of a chain that was changed, or whose predecessor is gone; None when all is as it was written."""
        query = sa.select(audit_entries).where(audit_entries.c.chain == (workspace_id or PLATFORM_CHAIN))
        previous, expected = _FIRST, 1
        for row in self._work.execute(query.order_by(audit_entries.c.seq)):
            values = dict(row._mapping)
            stored = values.pop("hash")
            if values["seq"] != expected or values["previous_hash"] != previous or _hash(values) != stored:
                return expected
            previous, expected = stored, expected + 1
        return None


def _hash(values: Mapping[str, Any]) -> str:
    facts = {**values, "at": values["at"].isoformat()}
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()
