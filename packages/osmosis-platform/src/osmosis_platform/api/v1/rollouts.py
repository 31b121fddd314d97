"""Rollouts for pages and other clients, under `/api/v1/workspaces/{workspace}`. The command line has api/cli/rollouts.py."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Response

from osmosis_platform.api.cli.rollouts import Branch, RolloutItem, RolloutPage, facts_of, find_rollouts
from osmosis_platform.api.paging import MAX_LIMIT, Limit, Offset, answer, page
from osmosis_platform.api.scope import ServicesDep, WorkspaceScope, allowed_here
from osmosis_platform.api.segments import Segment
from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.repositories import RepositoryRepository
from osmosis_platform.db.repositories.rollouts import Rollout, RolloutRepository
from osmosis_platform.domain.permissions import Action
from osmosis_platform.errors import MissingError

router = APIRouter(prefix="/api/v1/workspaces/{workspace}", tags=["rollouts"])


class RolloutDetail(RolloutItem):
    """A rollout with where it lies."""

    branch: str
    active: bool
    tree_sha: str | None


@router.get("/rollouts", response_model=RolloutPage)
async def list_workspace_rollouts(
    scope: Annotated[WorkspaceScope, allowed_here(Action.ROLLOUTS_READ)],
    services: ServicesDep,
    branch: Branch = None,
    limit: Limit = MAX_LIMIT,
    offset: Offset = 0,
) -> Response:
    """The rollouts of a branch, by name."""
    items, total = await services.database.reading(
        lambda work: find_rollouts(work, scope.workspace_id, branch, limit=limit, offset=offset)
    )
    return answer(page("rollouts", [facts_of(one) for one in items], total, offset))


@router.get("/rollouts/{rollout}")
async def show_rollout(
    scope: Annotated[WorkspaceScope, allowed_here(Action.ROLLOUTS_READ)],
    services: ServicesDep,
    rollout: Segment,
    branch: Branch = None,
) -> RolloutDetail:
    """One rollout by name or id, also one that its branch does not have any more."""

    def find(work: UnitOfWork) -> Rollout | None:
        repository = RepositoryRepository(work).find_connected(scope.workspace_id)
        if repository is None:
            return None
        wanted = branch or repository.default_branch
        return RolloutRepository(work).find(scope.workspace_id, repository.id, wanted, rollout)

    found = await services.database.reading(find)
    if found is None:
        raise MissingError(f"There is no rollout {rollout[:128]!r} here; `osmosis rollout list` shows those that are.")
    return RolloutDetail(**facts_of(found), branch=found.branch, active=found.active, tree_sha=found.tree_sha)
