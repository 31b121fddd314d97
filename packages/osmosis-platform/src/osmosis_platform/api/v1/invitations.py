"""Invitations: made (their link is in that answer only), listed, taken back, accepted."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, Field, SecretStr

from osmosis_platform.api.bodies import StrictBody
from osmosis_platform.api.scope import ServicesDep, WorkspaceScope, allowed_caller, allowed_here
from osmosis_platform.api.segments import Segment
from osmosis_platform.clock import wire_time
from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.invitations import InvitationRepository
from osmosis_platform.db.repositories.workspaces import WorkspaceRepository
from osmosis_platform.domain.actor import Actor
from osmosis_platform.domain.permissions import Action, Role
from osmosis_platform.errors import ForbiddenError
from osmosis_platform.identity.members import INVITATION_DAYS, accept_invitation, invite, revoke_invitation

router = APIRouter(prefix="/api/v1", tags=["invitations"])

Manager = Annotated[WorkspaceScope, allowed_here(Action.INVITATIONS_MANAGE)]


class InvitationView(BaseModel):
    """An open invitation, without its secret."""

    id: str
    email: str | None = Field(description="The only person it is for; null for whoever has the link.")
    role: Role
    created_at: str | None
    expires_at: str | None


class InvitationList(BaseModel):
    """Every open invitation, newest first."""

    invitations: list[InvitationView]


class NewInvitation(StrictBody):
    """An invitation to make."""

    role: Role = Role.MEMBER
    email: str | None = Field(None, max_length=254)
    days: int = Field(INVITATION_DAYS, ge=1, le=90)


class MadeInvitation(BaseModel):
    """A new invitation; its link is shown this once."""

    id: str
    link: str
    role: Role
    email: str | None
    expires_at: str | None


class Acceptance(StrictBody):
    """The end of an invitation's link."""

    secret: SecretStr = Field(max_length=300)


class Accepted(BaseModel):
    """Where the caller is a member now."""

    workspace_id: str
    workspace: str


@router.get("/workspaces/{workspace}/invitations")
async def list_invitations(
    services: ServicesDep, scope: Annotated[WorkspaceScope, allowed_here(Action.INVITATIONS_READ)]
) -> InvitationList:
    """Who may still come in."""
    found = await services.database.reading(lambda work: InvitationRepository(work).open(scope.workspace_id))
    return InvitationList(
        invitations=[
            InvitationView(
                id=one.id,
                email=one.email,
                role=one.role,
                created_at=wire_time(one.created_at),
                expires_at=wire_time(one.expires_at),
            )
            for one in found
        ]
    )


@router.post("/workspaces/{workspace}/invitations", status_code=201)
async def create_invitation(services: ServicesDep, scope: Manager, wanted: NewInvitation) -> MadeInvitation:
    """Makes a link that lets one person in."""
    issued = await services.database.writing(
        lambda work: invite(
            work, scope.actor, scope.workspace_id, role=wanted.role, email=wanted.email, days=wanted.days
        )
    )
    return MadeInvitation(
        id=issued.id,
        link=f"{services.settings.base_url}/invitation#{issued.secret}",
        role=issued.role,
        email=issued.email,
        expires_at=wire_time(issued.expires_at),
    )


@router.delete("/workspaces/{workspace}/invitations/{invitation_id}", status_code=204)
async def delete_invitation(services: ServicesDep, scope: Manager, invitation_id: Segment) -> None:
    """Takes an open invitation back."""
    await services.database.writing(
        lambda work: revoke_invitation(work, scope.actor, scope.workspace_id, invitation_id)
    )


@router.post("/invitations/accept")
async def accept(
    services: ServicesDep, actor: Annotated[Actor, allowed_caller(Action.ACCOUNT_WRITE)], wanted: Acceptance
) -> Accepted:
    """Makes the caller a member."""
    if actor.only_workspace_id is not None:
        message = "This token is for one workspace only; accept the invitation with another, or in a browser."
        raise ForbiddenError(message, code="TOKEN_REACH")

    def join(work: UnitOfWork) -> Accepted:
        invitation = accept_invitation(work, actor, wanted.secret.get_secret_value())
        name = WorkspaceRepository(work).get(invitation.workspace_id).name
        return Accepted(workspace_id=invitation.workspace_id, workspace=name)

    return await services.database.writing(join)
