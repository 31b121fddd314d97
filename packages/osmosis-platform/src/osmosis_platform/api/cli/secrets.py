"""`/api/cli/environment-secrets`: names of secrets, never values (platform-api.md 15)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from osmosis_platform.api.paging import MAX_LIMIT, Limit, Offset, answer, page
from osmosis_platform.api.scope import ServicesDep, WorkspaceScope, allowed
from osmosis_platform.clock import wire_time
from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.secrets import SecretName, SecretRepository
from osmosis_platform.domain.permissions import Action
from osmosis_platform.secrets.keeping import Scope, delete_secret, set_secret
from osmosis_platform.services import Services

router = APIRouter(prefix="/api/cli/environment-secrets", tags=["secrets"])

type ListScope = Annotated[Literal["all", "workspace", "user"], Query(description="Whose secrets; user: your own.")]


class SecretItem(BaseModel):
    """A secret as clients see it; there is no value on the way out."""

    id: str
    name: str
    scope: Scope
    created_at: str
    updated_at: str
    creator_name: str
    updater_name: str


class SecretPage(BaseModel):
    """One page of secrets."""

    environment_secrets: list[SecretItem]
    total_count: int
    has_more: bool
    next_offset: int | None
    platform_url: str


class SecretSet(SecretItem):
    """A secret that was just set."""

    platform_url: str


class SecretToSet(BaseModel):
    """A name, its value and whose it is."""

    name: str
    value: str = Field(repr=False)
    scope: Scope


class SecretToDelete(BaseModel):
    """Which secret."""

    name: str
    scope: Scope


def item_of(secret: SecretName) -> dict[str, Any]:
    """A secret on the wire."""
    return {
        "id": secret.id,
        "name": secret.name,
        "scope": secret.scope,
        "created_at": wire_time(secret.created_at),
        "updated_at": wire_time(secret.updated_at),
        "creator_name": secret.creator_name,
        "updater_name": secret.updater_name,
    }


def page_url(services: Services, scope: WorkspaceScope) -> str:
    """The page that lists them."""
    return f"{services.settings.base_url}/{scope.workspace_name}/secrets"


async def read_page(
    services: Services, scope: WorkspaceScope, which: str, limit: int, offset: int
) -> tuple[list[dict[str, Any]], int]:
    """Items of a page and how many there are in all."""
    scopes = ("workspace", "user") if which == "all" else (which,)
    found, total = await services.database.reading(
        lambda work: SecretRepository(work).page(
            scope.workspace_id, scope.actor.user_id, scopes, limit=limit, offset=offset
        )
    )
    return [item_of(secret) for secret in found], total


async def put(services: Services, scope: WorkspaceScope, body: SecretToSet) -> dict[str, Any]:
    """Sets a secret and gives it as clients see it."""
    if body.scope == "workspace":
        scope.require(Action.SECRETS_WRITE_WORKSPACE)

    def write(work: UnitOfWork) -> SecretName:
        set_secret(
            services.vault, work, scope.workspace_id, scope.actor, scope=body.scope, name=body.name, value=body.value
        )
        found = SecretRepository(work).find_name(scope.workspace_id, scope.actor.user_id, body.scope, body.name)
        assert found is not None
        return found

    return item_of(await services.database.writing(write))


async def remove(services: Services, scope: WorkspaceScope, body: SecretToDelete) -> None:
    """Deletes a secret."""
    if body.scope == "workspace":
        scope.require(Action.SECRETS_WRITE_WORKSPACE)
    await services.database.writing(
        lambda work: delete_secret(work, scope.workspace_id, scope.actor, scope=body.scope, name=body.name)
    )


@router.get("", response_model=SecretPage)
async def list_secrets(
    scope_: Annotated[WorkspaceScope, allowed(Action.SECRETS_READ)],
    services: ServicesDep,
    scope: ListScope = "all",
    limit: Limit = MAX_LIMIT,
    offset: Offset = 0,
) -> Response:
    """Names, by name: the workspace's and your own."""
    items, total = await read_page(services, scope_, scope, limit, offset)
    url = page_url(services, scope_)
    return answer(page("environment_secrets", items, total, offset, platform_url=url))


@router.post("")
async def set_one(
    body: SecretToSet,
    scope: Annotated[WorkspaceScope, allowed(Action.SECRETS_WRITE_PERSONAL)],
    services: ServicesDep,
) -> SecretSet:
    """Adds a secret or replaces its value."""
    return SecretSet(**await put(services, scope, body), platform_url=page_url(services, scope))


@router.delete("", status_code=204)
async def delete_one(
    body: SecretToDelete,
    scope: Annotated[WorkspaceScope, allowed(Action.SECRETS_WRITE_PERSONAL)],
    services: ServicesDep,
) -> Response:
    """Deletes a secret; the body names it."""
    await remove(services, scope, body)
    return Response(status_code=204)
