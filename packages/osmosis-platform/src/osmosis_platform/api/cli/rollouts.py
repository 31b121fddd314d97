"""`GET /api/cli/rollouts`: the rollouts of a branch (platform-api.md 7). Syncs write them; there is no create."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel

from osmosis_platform.api.paging import MAX_LIMIT, Limit, Offset, answer, page
from osmosis_platform.api.scope import ServicesDep, WorkspaceScope, allowed
from osmosis_platform.clock import wire_time
from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.repositories import RepositoryRepository
from osmosis_platform.db.repositories.rollouts import Rollout, RolloutRepository
from osmosis_platform.domain.permissions import Action
from osmosis_platform.errors import MissingError

router = APIRouter(prefix="/api/cli", tags=["rollouts"])

type Branch = Annotated[str | None, Query(min_length=1, max_length=500, description="Default: the default branch.")]


class RolloutItem(BaseModel):
    """A rollout as the client lists it."""

    id: str
    name: str
    description: str | None
    repo_full_name: str | None
    last_synced_at: str | None
    last_synced_commit_sha: str | None
    created_at: str | None


class RolloutPage(BaseModel):
    """One page of rollouts."""

    rollouts: list[RolloutItem]
    total_count: int
    has_more: bool
    next_offset: int | None


@router.get("/rollouts", response_model=RolloutPage)
async def list_rollouts(
    scope: Annotated[WorkspaceScope, allowed(Action.ROLLOUTS_READ)],
    services: ServicesDep,
    branch: Branch = None,
    limit: Limit = MAX_LIMIT,
    offset: Offset = 0,
) -> Response:
    """The rollouts of the branch's newest synced commit, by name."""
    items, total = await services.database.reading(
        lambda work: find_rollouts(work, scope.workspace_id, branch, limit=limit, offset=offset)
    )
    return answer(page("rollouts", [facts_of(one) for one in items], total, offset))


def find_rollouts(
    work: UnitOfWork, workspace_id: str, branch: str | None, *, limit: int, offset: int
) -> tuple[list[Rollout], int]:
    """One page of a branch's rollouts, and how many there are; none where nothing is connected or synced yet.

    Raises:
        MissingError: `BRANCH_NOT_FOUND`: a branch was named and the repository has none of that name.
    """
    repositories = RepositoryRepository(work)
    repository = repositories.find_connected(workspace_id)
    if repository is None:
        return [], 0
    if branch is not None and not repositories.has_branch(workspace_id, repository.id, branch):
        message = f"{repository.full_name} has no branch {branch[:200]!r}. Push it; the platform syncs after each push."
        raise MissingError(message, code="BRANCH_NOT_FOUND", field="branch")
    wanted = branch or repository.default_branch
    return RolloutRepository(work).page(workspace_id, repository.id, wanted, limit=limit, offset=offset)


def facts_of(rollout: Rollout) -> dict[str, Any]:
    """The fields of `RolloutItem`."""
    return {
        "id": rollout.id,
        "name": rollout.name,
        "description": rollout.description,
        "repo_full_name": rollout.repo_full_name,
        "last_synced_at": wire_time(rollout.last_synced_at),
        "last_synced_commit_sha": rollout.commit_sha,
        "created_at": wire_time(rollout.created_at),
    }
