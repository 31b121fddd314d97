"""Who a token is (platform-api.md 4.2), and which workspace a clone belongs to if any."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Header
from pydantic import BaseModel

from osmosis_platform.api.scope import ServicesDep, allowed_caller, scope_of_repository
from osmosis_platform.clock import wire_time
from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.users import User
from osmosis_platform.domain.actor import Actor
from osmosis_platform.domain.permissions import Action
from osmosis_platform.errors import ForbiddenError, InvalidRequestError, MissingError, TakenError

router = APIRouter(prefix="/api/cli", tags=["auth"])


class WireUser(BaseModel):
    """A person."""

    id: str
    email: str
    name: str | None


class VerifiedWorkspace(BaseModel):
    """The workspace of the clone at hand."""

    id: str
    name: str
    role: str


class VerifyResponse(BaseModel):
    """Whose the token is and how long it counts."""

    user: WireUser
    token_id: str | None
    expires_at: str | None
    workspace: VerifiedWorkspace | None


def wire_user(user: User) -> WireUser:
    """A person as the wire has them."""
    return WireUser(id=user.id, email=user.email, name=user.name)


@router.get("/verify")
async def verify(
    services: ServicesDep,
    actor: Annotated[Actor, allowed_caller(Action.ACCOUNT_READ)],
    x_osmosis_git: Annotated[str | None, Header(description="owner/repo of the clone at hand.")] = None,
) -> VerifyResponse:
    """Says whose the token is; the workspace only where the clone leads to one, since asking must not fail for that."""

    def resolve(work: UnitOfWork) -> VerifiedWorkspace | None:
        if x_osmosis_git is None:
            return None
        try:
            scope = scope_of_repository(work, actor, x_osmosis_git.strip().lower())
        except (InvalidRequestError, MissingError, ForbiddenError, TakenError):
            return None
        return VerifiedWorkspace(id=scope.workspace_id, name=scope.workspace_name, role=str(scope.role))

    workspace = await services.database.reading(resolve)
    ends = None if actor.expires_at_us is None else datetime.fromtimestamp(actor.expires_at_us / 1_000_000, UTC)
    user = WireUser(id=actor.user_id, email=actor.email, name=actor.name)
    return VerifyResponse(user=user, token_id=actor.token_id, expires_at=wire_time(ends), workspace=workspace)
