"""The audit log of a workspace: in pages, newest first, and whole as NDJSON, oldest first, for keeping elsewhere."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from osmosis_platform.api.paging import MAX_LIMIT
from osmosis_platform.api.scope import ServicesDep, WorkspaceScope, allowed_here
from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.audit import AuditEntry, AuditRepository
from osmosis_platform.domain.permissions import Action

router = APIRouter(prefix="/api/v1/workspaces/{workspace}", tags=["audit"])

Reader = Annotated[WorkspaceScope, allowed_here(Action.AUDIT_READ)]

_AT_A_TIME = 500


class AuditView(BaseModel):
    """One thing that was done. `hash` covers it and the hash before it."""

    chain: str
    seq: int
    at: str
    actor_kind: str
    actor_id: str | None
    action: str
    resource_kind: str
    resource_id: str | None
    details: dict[str, Any]
    ip: str | None
    request_id: str | None
    previous_hash: str
    hash: str


class AuditPage(BaseModel):
    """One page; `next_before` leads to the older one."""

    entries: list[AuditView]
    has_more: bool
    next_before: int | None


@router.get("/audit")
async def list_entries(
    services: ServicesDep,
    scope: Reader,
    before: Annotated[int | None, Query(ge=1, le=1 << 53)] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT)] = MAX_LIMIT,
) -> AuditPage:
    """Who did what, newest first."""
    found = await services.database.reading(
        lambda work: AuditRepository(work).page(scope.workspace_id, before=before, limit=limit + 1)
    )
    shown, more = found[:limit], len(found) > limit
    return AuditPage(
        entries=[AuditView(**_facts(one)) for one in shown], has_more=more, next_before=shown[-1].seq if more else None
    )


@router.get("/audit.ndjson", response_class=StreamingResponse)
async def export(services: ServicesDep, scope: Reader) -> StreamingResponse:
    """Every entry, one JSON object a line, with what is needed to verify the chain."""

    async def lines() -> AsyncGenerator[bytes]:
        last = 0
        while True:
            found = await services.database.reading(partial(_next, scope.workspace_id, last))
            if not found:
                return
            yield "".join(json.dumps(_facts(one), ensure_ascii=False) + "\n" for one in found).encode()
            last = found[-1].seq

    name = f"audit-{scope.workspace_name}.ndjson"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(lines(), media_type="application/x-ndjson", headers=headers)


def _next(workspace_id: str, after: int, work: UnitOfWork) -> list[AuditEntry]:
    return AuditRepository(work).after(workspace_id, after, limit=_AT_A_TIME)


def _facts(entry: AuditEntry) -> dict[str, Any]:
    return {
        "seq": entry.seq,
        "chain": entry.chain,
        "at": entry.at.isoformat(),  # as the hash covers it, to the microsecond
        "actor_kind": entry.actor_kind,
        "actor_id": entry.actor_id,
        "action": entry.action,
        "resource_kind": entry.resource_kind,
        "resource_id": entry.resource_id,
        "details": dict(entry.details),
        "ip": entry.ip,
        "request_id": entry.request_id,
        "previous_hash": entry.previous_hash,
        "hash": entry.hash,
    }
