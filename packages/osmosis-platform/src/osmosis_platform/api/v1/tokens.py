"""The caller's access tokens: listed, made (their text is in that answer only), revoked."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, Field

from osmosis_platform.api.bodies import StrictBody
from osmosis_platform.api.scope import ServicesDep, allowed_caller
from osmosis_platform.api.segments import Segment
from osmosis_platform.clock import wire_time
from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.audit import AuditRepository
from osmosis_platform.db.repositories.tokens import TokenRepository
from osmosis_platform.db.repositories.workspaces import WorkspaceRepository
from osmosis_platform.domain.actor import Actor
from osmosis_platform.domain.permissions import ALL_SCOPES, Action
from osmosis_platform.errors import ForbiddenError, MissingError
from osmosis_platform.identity.tokens import IssuedToken, check_scopes, issue_token

router = APIRouter(prefix="/api/v1/tokens", tags=["tokens"])

Reader = Annotated[Actor, allowed_caller(Action.TOKENS_READ)]
Writer = Annotated[Actor, allowed_caller(Action.TOKENS_WRITE)]


class TokenView(BaseModel):
    """A token, without its text."""

    id: str
    kind: str
    name: str
    scopes: list[str]
    workspace_id: str | None = Field(description="The one workspace it is for; null for all of the caller's.")
    created_at: str | None
    expires_at: str | None
    last_used_at: str | None


class TokenList(BaseModel):
    """Every token of the caller that is not revoked, newest first."""

    tokens: list[TokenView]


class NewToken(StrictBody):
    """A token to make."""

    name: str = Field(min_length=1, max_length=100)
    scopes: list[str] = Field(default=[ALL_SCOPES], max_length=100)
    expires_in_days: int = Field(90, ge=1, le=3650)
    workspace: str | None = Field(None, max_length=100, description="Name or id of the only workspace it is for.")


class MadeToken(BaseModel):
    """A new token; `token` is shown this once."""

    id: str
    token: str
    expires_at: str | None


@router.get("")
async def list_tokens(services: ServicesDep, actor: Reader) -> TokenList:
    """The caller's tokens; with a token for one workspace, those for it alone."""
    found = await services.database.reading(
        lambda work: TokenRepository(work).of_user(actor.user_id, only_workspace_id=actor.only_workspace_id)
    )
    return TokenList(
        tokens=[
            TokenView(
                id=one.id,
                kind=one.kind,
                name=one.name,
                scopes=list(one.scopes),
                workspace_id=one.workspace_id,
                created_at=wire_time(one.created_at),
                expires_at=wire_time(one.expires_at),
                last_used_at=wire_time(one.last_used_at),
            )
            for one in found
        ]
    )


@router.post("", status_code=201)
async def create_token(services: ServicesDep, actor: Writer, wanted: NewToken) -> MadeToken:
    """Makes a token; never one that reaches further than the credential at hand."""

    def make(work: UnitOfWork) -> IssuedToken:
        workspace_id = None
        if wanted.workspace is not None:
            seen = WorkspaceRepository(work).seen_by_named(actor.user_id, wanted.workspace)
            if seen is None:
                message = f"There is no workspace {wanted.workspace!r} that you are a member of."
                raise MissingError(message, code="WORKSPACE_NOT_FOUND", field="workspace")
            workspace_id = seen.id
        return make_token(work, actor, wanted.name, wanted.scopes, wanted.expires_in_days, workspace_id)

    issued = await services.database.writing(make)
    return MadeToken(id=issued.id, token=issued.secret, expires_at=wire_time(issued.expires_at))


@router.delete("/{token_id}", status_code=204)
async def delete_token(services: ServicesDep, actor: Writer, token_id: Segment) -> None:
    """Revokes a token; from this moment on it is refused."""
    await services.database.writing(lambda work: revoke_token(work, actor, token_id))


def make_token(
    work: UnitOfWork, actor: Actor, name: str, scopes: Sequence[str], days: int, workspace_id: str | None
) -> IssuedToken:
    """Makes a personal token of the caller.

    Raises:
        ForbiddenError: `TOKEN_REACH`: the token would reach further than the one at hand.
        InvalidRequestError: The name or a scope does not fit.
    """
    chosen = check_scopes(scopes)
    beyond = ALL_SCOPES not in actor.scopes and not set(chosen) <= actor.scopes
    if beyond or actor.only_workspace_id not in {None, workspace_id}:
        message = (
            "A token cannot make one that reaches further than itself; choose its scopes and workspace, or sign in."
        )
        raise ForbiddenError(message, code="TOKEN_REACH")
    ends = work.clock() + timedelta(days=days)
    issued = issue_token(
        work, actor.user_id, kind="personal", name=name, scopes=chosen, expires_at=ends, workspace_id=workspace_id
    )
    facts = {"kind": "personal", "name": name, "scopes": chosen, "expires_at": wire_time(ends)}
    AuditRepository(work).record(workspace_id, actor, "token.create", "token", issued.id, facts)
    return issued


def revoke_token(work: UnitOfWork, actor: Actor, token_id: str) -> None:
    """Ends a token of the caller; with a token for one workspace, only one that is for it alone.

    Raises:
        MissingError: There is none that counts.
    """
    if not TokenRepository(work).revoke(actor.user_id, token_id, only_workspace_id=actor.only_workspace_id):
        message = "You have no such token, or it is revoked already; your account's page shows yours."
        raise MissingError(message, code="TOKEN_NOT_FOUND")
    AuditRepository(work).record(None, actor, "token.revoke", "token", token_id, {})
