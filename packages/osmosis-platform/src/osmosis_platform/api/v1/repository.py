"""The repository of a workspace: shown, synced, connected to a remote, given back to the hosted one, renamed."""

from __future__ import annotations

from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Body
from pydantic import BaseModel, Field

from osmosis_platform.api.paging import MAX_LIMIT, Limit, Offset, page
from osmosis_platform.api.repositories import (
    Change,
    Connect,
    change,
    connect,
    connected,
    disconnect,
    renew_webhook,
    start_sync,
    try_connected,
    webhook_url,
)
from osmosis_platform.api.scope import ServicesDep, WorkspaceScope, allowed_here
from osmosis_platform.clock import wire_time
from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.repositories import Repository, RepositoryRepository
from osmosis_platform.db.repositories.syncs import Sync, SyncRepository
from osmosis_platform.domain.permissions import Action
from osmosis_platform.git.host_keys import fingerprints
from osmosis_platform.settings import Settings

router = APIRouter(prefix="/api/v1/workspaces/{workspace}/repository", tags=["repository"])

Reader = Annotated[WorkspaceScope, allowed_here(Action.REPOSITORY_READ)]
Syncer = Annotated[WorkspaceScope, allowed_here(Action.REPOSITORY_SYNC)]
Holder = Annotated[WorkspaceScope, allowed_here(Action.REPOSITORY_MANAGE)]


class RepositoryView(BaseModel):
    """The connected repository."""

    id: str
    kind: str
    full_name: str
    identity: str
    clone_url: str
    credential_kind: str
    deploy_public_key: str | None
    host_keys: list[str] = Field(description="Of an ssh remote: fingerprints of the keys that its host is known by.")
    default_branch: str
    last_synced_at: str | None
    created_at: str | None
    webhook_url: str | None


class ConnectedView(RepositoryView):
    """A repository just connected; the webhook's secret is shown this once."""

    webhook_secret: str | None = None


class SyncView(BaseModel):
    """One sync of the history."""

    id: str
    trigger: str
    status: str
    branch: str | None
    commit_sha: str | None
    author: str | None
    message: str | None
    rollout_count: int | None
    error_code: str | None
    error_message: str | None
    created_at: str | None
    started_at: str | None
    finished_at: str | None


class SyncPage(BaseModel):
    """One page of the history."""

    syncs: list[SyncView]
    total_count: int
    has_more: bool
    next_offset: int | None


class BranchView(BaseModel):
    """A branch."""

    name: str
    commit_sha: str
    is_default: bool


class BranchPage(BaseModel):
    """One page of branches."""

    branches: list[BranchView]
    total_count: int
    has_more: bool
    next_offset: int | None


class AnsweredView(BaseModel):
    """What the remote answered."""

    branch_count: int
    default_branch: str | None = Field(description="What its HEAD names.")


class WebhookSecret(BaseModel):
    """A new webhook secret, shown this once."""

    webhook_url: str
    webhook_secret: str


@router.get("")
async def show_repository(scope: Reader, services: ServicesDep) -> RepositoryView:
    """The repository that the workspace is connected to."""
    found = await services.database.reading(lambda work: connected(work, scope.workspace_id))
    return RepositoryView(**_facts(found, services.settings))


@router.get("/branches")
async def list_branches(
    scope: Reader, services: ServicesDep, limit: Limit = MAX_LIMIT, offset: Offset = 0
) -> BranchPage:
    """Every branch of the last sync, the default one first, then by name."""

    def read(work: UnitOfWork) -> tuple[str, dict[str, str]]:
        found = connected(work, scope.workspace_id)
        return found.default_branch, RepositoryRepository(work).branches(scope.workspace_id, found.id)

    default, known = await services.database.reading(read)
    names = sorted(known, key=lambda name: (name != default, name))
    items = [
        BranchView(name=name, commit_sha=known[name], is_default=name == default)
        for name in names[offset : offset + limit]
    ]
    return BranchPage(**page("branches", items, len(names), offset))


@router.get("/syncs")
async def list_syncs(scope: Reader, services: ServicesDep, limit: Limit = MAX_LIMIT, offset: Offset = 0) -> SyncPage:
    """The history of syncs, newest first. The log of one is the log stream of its id."""

    def read(work: UnitOfWork) -> tuple[list[Sync], int]:
        found = connected(work, scope.workspace_id)
        return SyncRepository(work).page(scope.workspace_id, found.id, limit=limit, offset=offset)

    items, total = await services.database.reading(read)
    return SyncPage(**page("syncs", [sync_view(one) for one in items], total, offset))


@router.post("/sync", status_code=202)
async def sync_repository(scope: Syncer, services: ServicesDep) -> SyncView:
    """Starts a sync; while one waits already, that one is answered."""
    return sync_view(await services.database.writing(lambda work: start_sync(work, scope)))


@router.post("/test")
async def test_connection(scope: Holder, services: ServicesDep) -> AnsweredView:
    """Asks the connected remote for its branches with the credential it has; nothing is fetched."""
    answered = await anyio.to_thread.run_sync(try_connected, services, scope)
    return AnsweredView(branch_count=answered.branches, default_branch=answered.default_branch)


@router.post("/connect", status_code=201)
async def connect_remote(scope: Holder, services: ServicesDep, wanted: Annotated[Connect, Body()]) -> ConnectedView:
    """Follows a remote from now on, instead of what was followed before, and starts the first sync.

    A hosted repository stays as it is and comes back when the remote is disconnected. For ssh the answer holds the deploy
    key to add on the other side. The webhook secret is shown here only.
    """
    made, secret = await anyio.to_thread.run_sync(connect, services, scope, wanted)
    return ConnectedView(**_facts(made, services.settings), webhook_secret=secret)


@router.post("/disconnect")
async def disconnect_remote(scope: Holder, services: ServicesDep) -> RepositoryView:
    """Stops following the remote; the workspace's hosted repository is connected again."""
    back = await services.database.writing(lambda work: disconnect(work, scope))
    return RepositoryView(**_facts(back, services.settings))


@router.patch("")
async def change_repository(scope: Holder, services: ServicesDep, wanted: Annotated[Change, Body()]) -> RepositoryView:
    """Renames a hosted repository, chooses the default branch, or replaces a remote's token.

    After a rename, clones need the new URL: the old name is free for others.
    """
    found = await anyio.to_thread.run_sync(change, services, scope, wanted)
    return RepositoryView(**_facts(found, services.settings))


@router.post("/webhook")
async def renew_webhook_secret(scope: Holder, services: ServicesDep) -> WebhookSecret:
    """Makes a new webhook secret; the old one does not count any more."""
    found, secret = await services.database.writing(lambda work: renew_webhook(services, work, scope))
    return WebhookSecret(webhook_url=webhook_url(found, services.settings), webhook_secret=secret)


def sync_view(sync: Sync) -> SyncView:
    """A sync on the wire."""
    facts: dict[str, Any] = {name: getattr(sync, name) for name in SyncView.model_fields}
    for name in ("created_at", "started_at", "finished_at"):
        facts[name] = wire_time(facts[name])
    return SyncView(**facts)


def _facts(repository: Repository, settings: Settings) -> dict[str, Any]:
    hosted = repository.kind == "hosted"
    return {
        "id": repository.id,
        "kind": repository.kind,
        "full_name": repository.full_name,
        "identity": repository.identity,
        "clone_url": f"{settings.base_url}/git/{repository.full_name}.git" if hosted else repository.remote_url,
        "credential_kind": repository.credential_kind,
        "deploy_public_key": repository.deploy_public_key,
        "host_keys": fingerprints(repository.known_hosts),
        "default_branch": repository.default_branch,
        "last_synced_at": wire_time(repository.last_synced_at),
        "created_at": wire_time(repository.created_at),
        "webhook_url": None if hosted else webhook_url(repository, settings),
    }
