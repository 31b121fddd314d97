"""Whether this process answers (`/healthz`) and whether it can work (`/readyz`)."""

from __future__ import annotations

import sqlalchemy as sa
from fastapi import APIRouter, Request

from osmosis_platform.api.scope import open_to_all
from osmosis_platform.db.database import UnitOfWork

router = APIRouter(tags=["health"])


@router.get("/healthz", dependencies=[open_to_all("it says nothing but that the process answers")])
async def healthz() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


@router.get("/readyz", dependencies=[open_to_all("it says nothing but that the database answers")])
async def readyz(request: Request) -> dict[str, str]:
    """The database answers too; 503 when it does not."""

    def probe(work: UnitOfWork) -> None:
        work.execute(sa.select(1))

    await request.app.state.services.database.reading(probe)
    return {"status": "ready"}
