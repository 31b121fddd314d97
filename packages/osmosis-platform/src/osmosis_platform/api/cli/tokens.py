"""Ending a token (platform-api.md 4.4): what `osmosis auth logout` does."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel

from osmosis_platform.api.scope import ServicesDep, allowed_caller
from osmosis_platform.api.segments import Segment
from osmosis_platform.api.v1.tokens import revoke_token
from osmosis_platform.domain.actor import Actor
from osmosis_platform.domain.permissions import Action, authorize

router = APIRouter(prefix="/api/cli", tags=["auth"])


class RevokedResponse(BaseModel):
    """The token does not count any more."""

    revoked: bool = True


@router.delete("/tokens/{token_id}")
async def revoke(
    token_id: Segment, services: ServicesDep, actor: Annotated[Actor, allowed_caller(Action.TOKENS_REVOKE_OWN)]
) -> RevokedResponse:
    """Ends the token at hand, or another of the same person; from this moment on it is refused."""
    if token_id != actor.token_id:
        authorize(None, Action.TOKENS_WRITE, actor=actor)
    await services.database.writing(lambda work: revoke_token(work, actor, token_id))
    return RevokedResponse()
