"""The caller's workspaces (platform-api.md 6)."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, Field

from osmosis_platform.api.bodies import StrictBody
from osmosis_platform.api.scope import ServicesDep, allowed_caller
from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.workspaces import SeenWorkspace, WorkspaceRepository
from osmosis_platform.domain.actor import Actor
from osmosis_platform.domain.permissions import Action
from osmosis_platform.identity.accounts import create_workspace
from osmosis_platform.settings import Settings

router = APIRouter(prefix="/api/cli", tags=["workspaces"])


class ConnectedRepo(BaseModel):
    """The repository a workspace is connected to."""

    id: str
    repo_full_name: str
    clone_url: str = Field(
        description="Where it is cloned from; a path is one of this platform. 0.3.8 does not read it."
    )


class ListedWorkspace(BaseModel):
    """A workspace as the caller sees it."""

    id: str
    name: str
    role: str
    has_billing_setup: bool
    connected_repo: ConnectedRepo | None


class NewWorkspace(StrictBody):
    """A workspace to make."""

    name: str = Field(min_length=1, max_length=100)


class WorkspacesResponse(BaseModel):
    """Every workspace of the caller."""

    workspaces: list[ListedWorkspace]


def is_billing_ready(settings: Settings, workspace: SeenWorkspace) -> bool:
    """Whether a workspace may spend: always, unless an administrator requires billing and has not marked it ready."""
    return workspace.billing_ready or not settings.require_billing


def clone_url_of(full_name: str, remote_url: str | None) -> str:
    """Where a repository is cloned from. Ours is a path: the client knows the platform by an address of its own."""
    return remote_url or f"/git/{full_name}.git"


def reached_workspaces(work: UnitOfWork, actor: Actor) -> list[SeenWorkspace]:
    """The caller's workspaces that the credential at hand reaches, by name."""
    seen = WorkspaceRepository(work).seen_by(actor.user_id)
    return [one for one in seen if actor.only_workspace_id in {None, one.id}]


@router.get("/workspaces")
async def workspaces(
    services: ServicesDep, actor: Annotated[Actor, allowed_caller(Action.ACCOUNT_READ)]
) -> WorkspacesResponse:
    """Lists the caller's workspaces, by name."""
    found = await services.database.reading(lambda work: reached_workspaces(work, actor))
    return WorkspacesResponse(workspaces=[_listed(services.settings, one) for one in found])


@router.post("/workspaces", status_code=201)
async def make_workspace(
    services: ServicesDep, actor: Annotated[Actor, allowed_caller(Action.WORKSPACE_CREATE)], wanted: NewWorkspace
) -> ListedWorkspace:
    """Makes a workspace with its hosted repository, for the wizard of our client; 0.3.8 does not know this."""

    def make(work: UnitOfWork) -> ListedWorkspace:
        made = create_workspace(services, work, actor, wanted.name)
        seen = WorkspaceRepository(work).seen_by_named(actor.user_id, made.id)
        assert seen is not None
        return _listed(services.settings, seen)

    return await services.database.writing(make)


def _listed(settings: Settings, seen: SeenWorkspace) -> ListedWorkspace:
    repo = None
    if seen.repository_id is not None and seen.repository_full_name is not None:
        repo = ConnectedRepo(
            id=seen.repository_id,
            repo_full_name=seen.repository_full_name,
            clone_url=clone_url_of(seen.repository_full_name, seen.repository_url),
        )
    return ListedWorkspace(
        id=seen.id,
        name=seen.name,
        role=str(seen.role),
        has_billing_setup=is_billing_ready(settings, seen),
        connected_repo=repo,
    )
