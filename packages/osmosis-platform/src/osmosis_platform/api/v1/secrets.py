"""`/api/v1/workspaces/{workspace}/secrets`: the same as /api/cli, addressed by the path."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Response

from osmosis_platform.api.cli.secrets import (
    ListScope,
    SecretItem,
    SecretPage,
    SecretToDelete,
    SecretToSet,
    page_url,
    put,
    read_page,
    remove,
)
from osmosis_platform.api.paging import MAX_LIMIT, Limit, Offset, answer, page
from osmosis_platform.api.scope import ServicesDep, WorkspaceScope, allowed_here
from osmosis_platform.api.segments import Segment
from osmosis_platform.domain.permissions import Action
from osmosis_platform.secrets.keeping import Scope

router = APIRouter(prefix="/api/v1/workspaces/{workspace}/secrets", tags=["secrets"])


@router.get("", response_model=SecretPage)
async def list_secrets(
    member: Annotated[WorkspaceScope, allowed_here(Action.SECRETS_READ)],
    services: ServicesDep,
    scope: ListScope = "all",
    limit: Limit = MAX_LIMIT,
    offset: Offset = 0,
) -> Response:
    """Names of secrets, never values."""
    items, total = await read_page(services, member, scope, limit, offset)
    url = page_url(services, member)
    return answer(page("environment_secrets", items, total, offset, platform_url=url))


@router.put("")
async def set_one(
    body: SecretToSet,
    member: Annotated[WorkspaceScope, allowed_here(Action.SECRETS_WRITE_PERSONAL)],
    services: ServicesDep,
) -> SecretItem:
    """Adds a secret or replaces its value."""
    return SecretItem(**await put(services, member, body))


@router.delete("/{scope}/{name}", status_code=204)
async def delete_one(
    scope: Scope,
    name: Segment,
    member: Annotated[WorkspaceScope, allowed_here(Action.SECRETS_WRITE_PERSONAL)],
    services: ServicesDep,
) -> Response:
    """Deletes a secret."""
    await remove(services, member, SecretToDelete(name=name, scope=scope))
    return Response(status_code=204)
