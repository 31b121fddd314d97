"""Members of a workspace: listed, given another role, removed."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel

from osmosis_platform.api.bodies import StrictBody
from osmosis_platform.api.scope import ServicesDep, WorkspaceScope, allowed_here
from osmosis_platform.api.segments import Segment
from osmosis_platform.clock import wire_time
from osmosis_platform.db.repositories.memberships import Member, MembershipRepository
from osmosis_platform.domain.permissions import Action, Role
from osmosis_platform.identity.members import change_role, remove_member

router = APIRouter(prefix="/api/v1/workspaces/{workspace}/members", tags=["members"])

Manager = Annotated[WorkspaceScope, allowed_here(Action.MEMBERS_MANAGE)]


class MemberView(BaseModel):
    """A person in the workspace."""

    user_id: str
    email: str
    name: str | None
    role: Role
    joined_at: str | None


class MemberList(BaseModel):
    """Every member, in the order they joined."""

    members: list[MemberView]


class RoleChange(StrictBody):
    """Another role."""

    role: Role


@router.get("")
async def list_members(
    services: ServicesDep, scope: Annotated[WorkspaceScope, allowed_here(Action.MEMBERS_READ)]
) -> MemberList:
    """Who is in the workspace, and as what."""
    found = await services.database.reading(lambda work: MembershipRepository(work).all(scope.workspace_id))
    return MemberList(members=[_shown(one) for one in found])


@router.patch("/{user_id}")
async def update_member(services: ServicesDep, scope: Manager, user_id: Segment, wanted: RoleChange) -> MemberView:
    """Gives a member another role; only owners make and unmake owners, and one always stays."""
    changed = await services.database.writing(
        lambda work: change_role(work, scope.actor, scope.workspace_id, user_id, wanted.role)
    )
    return _shown(changed)


@router.delete("/{user_id}", status_code=204)
async def delete_member(services: ServicesDep, scope: Manager, user_id: Segment) -> None:
    """Lets a member go; their tokens for this workspace alone end."""
    await services.database.writing(lambda work: remove_member(work, scope.actor, scope.workspace_id, user_id))


def _shown(member: Member) -> MemberView:
    return MemberView(
        user_id=member.user_id,
        email=member.email,
        name=member.name,
        role=member.role,
        joined_at=wire_time(member.joined_at),
    )
