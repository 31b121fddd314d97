"""The page of secrets: names, setting and deleting. No value ever comes back, not even into the form that failed."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from osmosis_platform.api.cli.secrets import SecretToDelete, SecretToSet, put, remove
from osmosis_platform.api.pages.pager import Pager
from osmosis_platform.api.pages.rendering import go_to
from osmosis_platform.api.pages.visitors import Sent, SentDep, member_may
from osmosis_platform.api.pages.workspace import may, workspace_page
from osmosis_platform.api.scope import ServicesDep, WorkspaceScope
from osmosis_platform.db.repositories.secrets import SecretRepository
from osmosis_platform.domain.permissions import Action
from osmosis_platform.errors import ServiceError
from osmosis_platform.secrets.keeping import Scope
from osmosis_platform.services import Services

router = APIRouter(prefix="/{workspace}/secrets", include_in_schema=False)


@router.get("")
async def show_secrets(
    request: Request, services: ServicesDep, scope: Annotated[WorkspaceScope, member_may(Action.SECRETS_READ)]
) -> Response:
    """Names of secrets, the person's own and the workspace's."""
    return await _secrets(request, services, scope)


@router.post("")
async def send_secret(
    request: Request,
    services: ServicesDep,
    form: SentDep,
    scope: Annotated[WorkspaceScope, member_may(Action.SECRETS_WRITE_PERSONAL)],
) -> Response:
    """Adds a secret or replaces its value."""
    value = form["value"].replace("\r\n", "\n")  # what browsers make of line ends
    if value.count("\n") == 1:
        value = value.removesuffix("\n")  # it came along with the copy, and spoils a header
    wanted = SecretToSet(name=form["name"].strip(), value=value, scope=_whose(form))
    try:
        await put(services, scope, wanted)
    except ServiceError as error:
        if error.status >= 500:
            raise
        given = {"name": form["name"], "scope": form["scope"]}
        return await _secrets(request, services, scope, status=error.status, failure=error, given=given)
    return go_to(f"/{scope.workspace_name}/secrets?done=set")


@router.post("/delete")
async def send_delete(
    request: Request,
    services: ServicesDep,
    form: SentDep,
    scope: Annotated[WorkspaceScope, member_may(Action.SECRETS_WRITE_PERSONAL)],
) -> Response:
    """Deletes a secret."""
    try:
        await remove(services, scope, SecretToDelete(name=form["name"], scope=_whose(form)))
    except ServiceError as error:
        if error.status >= 500:
            raise
        error.field = None
        return await _secrets(request, services, scope, status=error.status, failure=error)
    return go_to(f"/{scope.workspace_name}/secrets?done=deleted")


def _whose(form: Sent) -> Scope:
    return "workspace" if form["scope"] == "workspace" else "user"


async def _secrets(request: Request, services: Services, scope: WorkspaceScope, **facts: Any) -> Response:
    pager = Pager(request, f"/{scope.workspace_name}/secrets")
    found, total = await services.database.reading(
        lambda work: SecretRepository(work).page(
            scope.workspace_id, scope.actor.user_id, ("workspace", "user"), limit=pager.size, offset=pager.offset
        )
    )
    usual = {
        "secrets": found,
        "shown": pager.over(total),
        "may_write": may(scope, Action.SECRETS_WRITE_PERSONAL),
        "may_write_workspace": may(scope, Action.SECRETS_WRITE_WORKSPACE),
    }
    return workspace_page(request, "secrets", scope, "/secrets", **(usual | facts))
