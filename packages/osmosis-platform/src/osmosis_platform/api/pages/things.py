"""Usage, billing and API keys of a workspace, and honest pages for what is not here yet."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from osmosis_platform.api.pages.home import TOKEN_SCOPES, make_token
from osmosis_platform.api.pages.pager import Pager
from osmosis_platform.api.pages.visitors import SentDep, member_may
from osmosis_platform.api.pages.workspace import workspace_page
from osmosis_platform.api.scope import ServicesDep, WorkspaceScope
from osmosis_platform.api.v1.usage import summary_of
from osmosis_platform.db.repositories.tokens import TokenRepository
from osmosis_platform.domain.permissions import Action
from osmosis_platform.errors import ServiceError
from osmosis_platform.services import Services

router = APIRouter(prefix="/{workspace}", include_in_schema=False)

_SPANS = (7, 30, 90, 365)
_NOT_YET = {
    "training": ("Training runs", Action.RUNS_READ, "Training is not on this platform yet."),
    "evals": (
        "Evaluation runs",
        Action.RUNS_READ,
        "Evaluations do not run on this platform yet; they run on your machine.",
    ),
    "benchmarks": ("Benchmarks", Action.BENCHMARKS_READ, "Benchmarks are not on this platform yet."),
    "models": ("Models", Action.MODELS_READ, "Models are not kept or served on this platform yet."),
}
_COMMANDS = {"evals": "osmosis eval run configs/eval/default.toml"}


@router.get("/usage")
async def show_usage(
    request: Request,
    services: ServicesDep,
    scope: Annotated[WorkspaceScope, member_may(Action.USAGE_READ)],
    days: Annotated[int, Query(ge=1, le=3650)] = 30,
) -> Response:
    """What the workspace used, and its limits."""
    end = services.clock()
    read = partial(summary_of, workspace_id=scope.workspace_id, begin=end - timedelta(days=days), end=end)
    summary = await services.database.reading(read)
    return workspace_page(request, "usage", scope, "/usage", summary=summary, days=days, spans=_SPANS)


@router.get("/billing")
async def show_billing(
    request: Request, services: ServicesDep, scope: Annotated[WorkspaceScope, member_may(Action.WORKSPACE_READ)]
) -> Response:
    """Whether the workspace may spend."""
    if not services.settings.require_billing:
        title, text = "Nothing to pay", "This platform asks for no billing: its administrator carries the cost."
    elif request.state.workspace.billing_ready:
        title, text = "Billing is ready", "An administrator of this platform marked this workspace as ready."
    else:
        title = "Billing is not ready"
        text = "An administrator of this platform has to mark this workspace as ready before it may spend."
    return workspace_page(request, "plain", scope, "/billing", heading="Billing", title=title, text=text, command=None)


@router.get("/api-keys")
async def show_keys(
    request: Request, services: ServicesDep, scope: Annotated[WorkspaceScope, member_may(Action.WORKSPACE_READ)]
) -> Response:
    """The person's tokens for this workspace only."""
    return await _keys(request, services, scope)


@router.post("/api-keys")
async def send_key(
    request: Request,
    services: ServicesDep,
    form: SentDep,
    scope: Annotated[WorkspaceScope, member_may(Action.WORKSPACE_READ)],
) -> Response:
    """Makes such a token and shows it this once."""
    try:
        issued = await services.database.writing(
            lambda work: make_token(work, scope.actor, form, workspace_id=scope.workspace_id)
        )
    except ServiceError as error:
        if error.status >= 500:
            raise
        error.field = "token-name" if error.field == "name" else None
        return await _keys(request, services, scope, status=error.status, failure=error, given=form.values)
    return await _keys(request, services, scope, fresh_token=issued.secret)


async def _keys(request: Request, services: Services, scope: WorkspaceScope, **facts: Any) -> Response:
    mine = await services.database.reading(lambda work: TokenRepository(work).of_user(scope.actor.user_id))
    here = [one for one in mine if one.workspace_id == scope.workspace_id]
    tokens, shown = Pager(request, f"/{scope.workspace_name}/api-keys").cut(here)
    return workspace_page(
        request,
        "api_keys",
        scope,
        "/api-keys",
        tokens=tokens,
        shown=shown,
        scopes=TOKEN_SCOPES,
        token_action=f"/{scope.workspace_name}/api-keys",
        **facts,
    )


def _add_not_yet(section: str, heading: str, action: Action, text: str) -> None:
    async def show(request: Request, scope: WorkspaceScope = member_may(action)) -> Response:  # noqa: B008 - the annotation cannot see `action`
        facts = {"heading": heading, "title": "Not here yet", "text": text, "command": _COMMANDS.get(section)}
        return workspace_page(request, "plain", scope, f"/{section}", **facts)

    router.add_api_route(f"/{section}", show, methods=["GET"], name=f"show_{section}")
    router.add_api_route(f"/{section}/{{rest:path}}", show, methods=["GET"], name=f"show_{section}_page")


for _section, (_heading, _action, _text) in _NOT_YET.items():
    _add_not_yet(_section, _heading, _action, _text)
