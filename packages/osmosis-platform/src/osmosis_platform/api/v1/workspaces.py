"""Workspaces: listed, made, shown, renamed, left, deleted."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, Field

from osmosis_platform.api.bodies import StrictBody
from osmosis_platform.api.scope import ServicesDep, WorkspaceScope, allowed_caller, allowed_here
from osmosis_platform.clock import wire_time
from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.workspaces import Workspace, WorkspaceRepository
from osmosis_platform.domain.actor import Actor
from osmosis_platform.domain.permissions import Action
from osmosis_platform.identity.accounts import change_workspace, create_workspace, delete_workspace
from osmosis_platform.identity.members import leave_workspace
from osmosis_platform.settings import Settings

router = APIRouter(prefix="/api/v1/workspaces", tags=["workspaces"])


class WorkspaceView(BaseModel):
    """A workspace as the caller sees it."""

    id: str
    name: str
    role: str
    timezone: str
    has_billing_setup: bool
    repository_full_name: str | None
    created_at: str | None
    platform_url: str


class SeenView(BaseModel):
    """A workspace of the list."""

    id: str
    name: str
    role: str
    repository_full_name: str | None
    platform_url: str


class WorkspaceList(BaseModel):
    """Every workspace that the credential reaches, by name."""

    workspaces: list[SeenView]


class NewWorkspace(StrictBody):
    """A workspace to make."""

    name: str = Field(min_length=1, max_length=100)
    timezone: str = Field("UTC", max_length=100, description="Such as Europe/Berlin.")


class WorkspaceChange(StrictBody):
    """What can be changed of a workspace."""

    name: str | None = Field(None, max_length=100)
    timezone: str | None = Field(None, max_length=100)


class Confirmation(StrictBody):
    """The workspace's name, written by whoever means it."""

    name: str = Field(max_length=100)


@router.get("")
async def list_workspaces(
    services: ServicesDep, actor: Annotated[Actor, allowed_caller(Action.ACCOUNT_READ)]
) -> WorkspaceList:
    """The caller's workspaces."""
    found = await services.database.reading(lambda work: WorkspaceRepository(work).seen_by(actor.user_id))
    return WorkspaceList(
        workspaces=[
            SeenView(
                id=one.id,
                name=one.name,
                role=str(one.role),
                repository_full_name=one.repository_full_name,
                platform_url=f"{services.settings.base_url}/{one.name}",
            )
            for one in found
            if actor.only_workspace_id in {None, one.id}
        ]
    )


@router.post("", status_code=201)
async def make_workspace(
    services: ServicesDep, actor: Annotated[Actor, allowed_caller(Action.WORKSPACE_CREATE)], wanted: NewWorkspace
) -> WorkspaceView:
    """Makes a workspace with its hosted repository; the caller is its owner."""

    def make(work: UnitOfWork) -> WorkspaceView:
        made = create_workspace(services, work, actor, wanted.name, timezone=wanted.timezone)
        return _shown(work, services.settings, actor, made)

    return await services.database.writing(make)


@router.get("/{workspace}")
async def show_workspace(
    services: ServicesDep, scope: Annotated[WorkspaceScope, allowed_here(Action.WORKSPACE_READ)]
) -> WorkspaceView:
    """One workspace."""

    def read(work: UnitOfWork) -> WorkspaceView:
        found = WorkspaceRepository(work).get(scope.workspace_id)
        return _shown(work, services.settings, scope.actor, found)

    return await services.database.reading(read)


@router.patch("/{workspace}")
async def update_workspace(
    services: ServicesDep,
    scope: Annotated[WorkspaceScope, allowed_here(Action.WORKSPACE_UPDATE)],
    wanted: WorkspaceChange,
) -> WorkspaceView:
    """Renames a workspace or moves its time zone; the former name goes on leading to it."""

    def change(work: UnitOfWork) -> WorkspaceView:
        changed = change_workspace(work, scope.actor, scope.workspace_id, name=wanted.name, timezone=wanted.timezone)
        return _shown(work, services.settings, scope.actor, changed)

    return await services.database.writing(change)


@router.post("/{workspace}/leave", status_code=204)
async def send_leave(
    services: ServicesDep, scope: Annotated[WorkspaceScope, allowed_here(Action.WORKSPACE_LEAVE)]
) -> None:
    """Lets the caller go."""
    await services.database.writing(lambda work: leave_workspace(work, scope.actor, scope.workspace_id))


@router.post("/{workspace}/delete", status_code=204)
async def send_delete(
    services: ServicesDep,
    scope: Annotated[WorkspaceScope, allowed_here(Action.WORKSPACE_DELETE)],
    confirmation: Confirmation,
) -> None:
    """Takes a workspace away from all its members; its name, written out, confirms it."""
    await services.database.writing(
        lambda work: delete_workspace(work, scope.actor, scope.workspace_id, confirmed_name=confirmation.name)
    )


def _shown(work: UnitOfWork, settings: Settings, actor: Actor, workspace: Workspace) -> WorkspaceView:
    seen = WorkspaceRepository(work).seen_by_named(actor.user_id, workspace.id)
    assert seen is not None
    return WorkspaceView(
        id=workspace.id,
        name=workspace.name,
        role=str(seen.role),
        timezone=workspace.timezone,
        has_billing_setup=workspace.billing_ready or not settings.require_billing,
        repository_full_name=seen.repository_full_name,
        created_at=wire_time(workspace.created_at),
        platform_url=f"{settings.base_url}/{workspace.name}",
    )
