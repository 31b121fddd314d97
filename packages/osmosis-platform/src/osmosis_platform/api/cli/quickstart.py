"""What the quickstart wizard asks and notes (platform-api.md 6). The workspace comes by its id, not by a scope header."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from osmosis_platform.api.cli.workspaces import clone_url_of, is_billing_ready, reached_workspaces
from osmosis_platform.api.scope import ServicesDep, allowed_caller
from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.audit import AuditRepository
from osmosis_platform.db.repositories.workspaces import SeenWorkspace, WorkspaceRepository
from osmosis_platform.domain.actor import Actor
from osmosis_platform.domain.permissions import Action, authorize
from osmosis_platform.errors import MissingError

router = APIRouter(prefix="/api/cli", tags=["workspaces"])


class QuickstartRepo(BaseModel):
    """Whether the workspace has its repository."""

    connected: bool
    full_name: str | None
    clone_url: str | None = Field(
        description="Where it is cloned from; a path is one of this platform. 0.3.8 does not read it."
    )


class QuickstartResponse(BaseModel):
    """How far a workspace is."""

    repo: QuickstartRepo
    billing_ready: bool
    completed: bool


class CompleteRequest(BaseModel):
    """What the person came for."""

    model_config = ConfigDict(populate_by_name=True)
    organization_id: Annotated[str, Field(alias="organizationId", min_length=1, max_length=100)]
    intent: Literal["train", "eval", "benchmark", "explore"]


class CompleteResponse(BaseModel):
    """It is noted."""

    completed: bool = True


@router.get("/quickstart")
async def quickstart(
    organization_id: Annotated[str, Query(alias="organizationId", min_length=1, max_length=100)],
    services: ServicesDep,
    actor: Annotated[Actor, allowed_caller(Action.ACCOUNT_READ)],
) -> QuickstartResponse:
    """Says how far a workspace is; the wizard asks every five seconds."""

    def look(work: UnitOfWork) -> QuickstartResponse:
        seen = _seen(work, actor, organization_id)
        name = seen.repository_full_name
        url = None if name is None else clone_url_of(name, seen.repository_url)
        repo = QuickstartRepo(connected=seen.repository_id is not None, full_name=name, clone_url=url)
        completed = WorkspaceRepository(work).has_completed_quickstart(seen.id, actor.user_id)
        ready = is_billing_ready(services.settings, seen)
        return QuickstartResponse(repo=repo, billing_ready=ready, completed=completed)

    return await services.database.reading(look)


@router.post("/quickstart")
async def complete(
    body: CompleteRequest, services: ServicesDep, actor: Annotated[Actor, allowed_caller(Action.ACCOUNT_READ)]
) -> CompleteResponse:
    """Notes what the person came for; again replaces it."""

    def note(work: UnitOfWork) -> None:
        seen = _seen(work, actor, body.organization_id)
        WorkspaceRepository(work).complete_quickstart(seen.id, actor.user_id, body.intent)
        facts = {"intent": body.intent}
        AuditRepository(work).record(seen.id, actor, "quickstart.complete", "workspace", seen.id, facts)

    await services.database.writing(note)
    return CompleteResponse()


def _seen(work: UnitOfWork, actor: Actor, workspace_id: str) -> SeenWorkspace:
    for seen in reached_workspaces(work, actor):
        if seen.id == workspace_id:
            authorize(seen.role, Action.WORKSPACE_READ, actor=actor)
            return seen
    message = f"There is no workspace {workspace_id[:80]!r} that you are a member of; `GET /workspaces` lists yours."
    raise MissingError(message, field="organizationId", code="WORKSPACE_NOT_FOUND")
