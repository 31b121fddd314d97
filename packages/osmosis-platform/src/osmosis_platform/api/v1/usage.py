"""`/api/v1/workspaces/{workspace}/usage` and quotas: what was used, what it cost, and the limits."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import AwareDatetime, BaseModel, Field

from osmosis_platform.api.scope import ServicesDep, WorkspaceScope, allowed_caller, allowed_here
from osmosis_platform.clock import wire_time
from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.audit import AuditRepository
from osmosis_platform.db.repositories.usage import QuotaRepository, UsageRepository
from osmosis_platform.db.repositories.workspaces import WorkspaceRepository
from osmosis_platform.domain.actor import Actor
from osmosis_platform.domain.permissions import Action
from osmosis_platform.errors import InvalidRequestError
from osmosis_platform.usage.quotas import NAMES, set_quota, used_of

router = APIRouter(prefix="/api/v1", tags=["usage"])

_MONTH = timedelta(days=30)
_FIRST = datetime.min.replace(tzinfo=UTC)


class UsageItem(BaseModel):
    """What was used of one kind; `cost_usd` is null where no price is set."""

    kind: str
    unit: str
    quantity: float
    records: int
    cost_usd: float | None


class QuotaItem(BaseModel):
    """A limit; `used` is null where nothing adds up."""

    name: str
    what: str
    limit: float | None
    used: float | None


class UsageSummary(BaseModel):
    """A span of time and what was used in it."""

    since: str
    until: str
    usage: list[UsageItem]
    quotas: list[QuotaItem]


class QuotaToSet(BaseModel):
    """A limit; null removes it."""

    value: float | None = Field(ge=0, allow_inf_nan=False)


@router.get("/workspaces/{workspace}/usage")
async def summary(
    scope: Annotated[WorkspaceScope, allowed_here(Action.USAGE_READ)],
    services: ServicesDep,
    since: Annotated[AwareDatetime | None, Query(description="Default: 30 days ago.")] = None,
    until: Annotated[AwareDatetime | None, Query(description="Default: now.")] = None,
) -> UsageSummary:
    """What this workspace used, and its limits."""
    end = services.clock() if until is None else _utc(until, "until")
    begin = max(end, _FIRST + _MONTH) - _MONTH if since is None else _utc(since, "since")
    if begin >= end:
        raise InvalidRequestError("`since` must be before `until`.", field="since")

    read = partial(summary_of, workspace_id=scope.workspace_id, begin=begin, end=end)
    return await services.database.reading(read)


@router.put("/platform/quotas/{name}", status_code=204)
async def set_for_all(
    name: str,
    body: QuotaToSet,
    actor: Annotated[Actor, allowed_caller(Action.PLATFORM_ADMINISTER)],
    services: ServicesDep,
) -> Response:
    """Sets the limit of every workspace that has none of its own."""

    def write(work: UnitOfWork) -> None:
        set_quota(work, None, name, body.value)
        AuditRepository(work).record(None, actor, "quota.set", "quota", name, {"value": body.value})

    await services.database.writing(write)
    return Response(status_code=204)


@router.put("/platform/workspaces/{workspace_id}/quotas/{name}", status_code=204)
async def set_for_one(
    workspace_id: str,
    name: str,
    body: QuotaToSet,
    actor: Annotated[Actor, allowed_caller(Action.PLATFORM_ADMINISTER)],
    services: ServicesDep,
) -> Response:
    """Sets the limit of one workspace."""

    def write(work: UnitOfWork) -> None:
        WorkspaceRepository(work).get(workspace_id)
        set_quota(work, workspace_id, name, body.value)
        AuditRepository(work).record(workspace_id, actor, "quota.set", "quota", name, {"value": body.value})

    await services.database.writing(write)
    return Response(status_code=204)


def summary_of(work: UnitOfWork, *, workspace_id: str, begin: datetime, end: datetime) -> UsageSummary:
    """What a workspace used in `[begin, end)`, and its limits as they are now."""
    limits = QuotaRepository(work).all(workspace_id)
    return UsageSummary(
        since=wire_time(begin) or "",
        until=wire_time(end) or "",
        usage=[
            UsageItem(
                kind=total.kind,
                unit=total.unit,
                quantity=total.quantity,
                records=total.records,
                cost_usd=total.cost_usd,
            )
            for total in UsageRepository(work).totals(workspace_id, begin, end)
        ],
        quotas=[
            QuotaItem(name=name, what=what, limit=limits.get(name), used=used_of(work, workspace_id, name))
            for name, what in NAMES.items()
        ],
    )


def _utc(moment: datetime, field: str) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise InvalidRequestError(f"`{field}` is before the year 1 or after the year 9999.", field=field) from None
