"""Whether the audit log is as it was written: every chain by its hashes, and against an export that was kept elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from osmosis_platform.db.database import Database
from osmosis_platform.db.repositories.audit import FIRST, PLATFORM_CHAIN, AuditEntry, AuditIndex, AuditRepository
from osmosis_platform.errors import InvalidRequestError

_FIELDS = frozenset(AuditEntry.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class ChainReport:
    """What was found of one chain.

    Attributes:
        chain: A workspace id, or `platform`.
        workspace: The workspace's name; None for the platform's chain.
        entries: How many there are.
        head: The hash of the newest; keep it elsewhere to notice when newest entries go.
        broken_at: The first entry that was changed or whose predecessor is gone; None when all is as it was written.
    """

    chain: str
    workspace: str | None
    entries: int
    head: str
    broken_at: int | None


def check_chains(database: Database) -> list[ChainReport]:
    """Verifies every chain, those of deleted workspaces too, in constant memory."""
    with database.read() as work:
        repository = AuditRepository(work)
        reports = []
        for chain, name in AuditIndex(work).chains():
            workspace_id = None if chain == PLATFORM_CHAIN else chain
            broken = repository.verify(workspace_id)
            entries, head = repository.head(workspace_id)
            reports.append(ChainReport(chain, name, entries, head, broken))
    return reports


def check_export(database: Database, path: Path) -> ChainReport:
    """Verifies an export (`audit.ndjson`) by its own hashes, then that the database still holds each of its entries.

    So entries that were cut off the end of a chain since the export show, and so does a chain that was written anew.

    Args:
        database: Of the platform it came from.
        path: One JSON object a line, oldest first, from the first entry on.

    Returns:
        The chain as the export has it; `broken_at` is the first entry that is wrong in it or other than the database's.

    Raises:
        InvalidRequestError: The file is no export.
    """
    previous, count, chain, broken = FIRST, 0, None, None
    with database.read() as work:
        index = AuditIndex(work)
        stored: Iterator[AuditEntry] = iter(())
        for entry in _entries(path):
            count += 1
            if chain is None:
                chain = entry.chain
                stored = AuditRepository(work).walk(None if chain == PLATFORM_CHAIN else chain)
            is_whole = entry.chain == chain and entry.seq == count and entry.previous_hash == previous
            same = next(stored, None)
            if broken is None and not (
                is_whole and entry.is_unchanged and same is not None and same.hash == entry.hash
            ):
                broken = count
            previous = entry.hash
        if chain is None:
            raise InvalidRequestError(f"{path} holds no entry of an audit log.", code="AUDIT_EXPORT")
        return ChainReport(chain, dict(index.chains()).get(chain), count, previous, broken)


def _entries(path: Path) -> Iterator[AuditEntry]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                facts: dict[str, Any] = json.loads(line)
                facts["at"] = datetime.fromisoformat(facts["at"])
                entry = AuditEntry(**{name: facts[name] for name in _FIELDS})
            except (ValueError, KeyError, TypeError) as error:
                message = f"{path}, line {number} is no entry of an audit log ({type(error).__name__}: {error})."
                raise InvalidRequestError(message[:500], code="AUDIT_EXPORT") from None
            yield entry
