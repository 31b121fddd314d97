"""What a workspace holds, as plain lists: datasets, secrets, repository, keys; and honest pages for what is not here yet."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from osmosis_platform.api.pages.home import TOKEN_SCOPES, make_token
from osmosis_platform.api.pages.visitors import SentDep, member_may
from osmosis_platform.api.pages.workspace import clone_command, workspace_page
from osmosis_platform.api.scope import ServicesDep, WorkspaceScope
from osmosis_platform.api.segments import Segment
from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.datasets import DatasetRepository
from osmosis_platform.db.repositories.repositories import RepositoryRepository
from osmosis_platform.db.repositories.rollouts import RolloutRepository
from osmosis_platform.db.repositories.secrets import SecretRepository
from osmosis_platform.db.repositories.syncs import SyncRepository
from osmosis_platform.db.repositories.tokens import TokenRepository
from osmosis_platform.domain.permissions import Action
from osmosis_platform.errors import MissingError, ServiceError
from osmosis_platform.services import Services

router = APIRouter(prefix="/{workspace}", include_in_schema=False)

_SHOWN = 100
_SCOPES = ("workspace", "user")
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


@router.get("/datasets")
async def show_datasets(
    request: Request, services: ServicesDep, scope: Annotated[WorkspaceScope, member_may(Action.DATASETS_READ)]
) -> Response:
    """The newest datasets."""
    found, total = await services.database.reading(
        lambda work: DatasetRepository(work).page(scope.workspace_id, limit=_SHOWN, offset=0)
    )
    return workspace_page(request, "datasets", scope, "/datasets", datasets=found, total=total)


@router.get("/datasets/{dataset_id}")
async def show_dataset(
    request: Request,
    services: ServicesDep,
    dataset_id: Segment,
    scope: Annotated[WorkspaceScope, member_may(Action.DATASETS_READ)],
) -> Response:
    """One dataset."""
    found = await services.database.reading(lambda work: DatasetRepository(work).find(scope.workspace_id, dataset_id))
    if found is None:
        raise MissingError("There is no such dataset in this workspace; it may have been replaced or deleted.")
    return workspace_page(request, "dataset", scope, "/datasets", dataset=found)


@router.get("/secrets")
async def show_secrets(
    request: Request, services: ServicesDep, scope: Annotated[WorkspaceScope, member_may(Action.SECRETS_READ)]
) -> Response:
    """Names of secrets, the person's own and the workspace's."""
    found, total = await services.database.reading(
        lambda work: SecretRepository(work).page(
            scope.workspace_id, scope.actor.user_id, _SCOPES, limit=_SHOWN, offset=0
        )
    )
    return workspace_page(request, "secrets", scope, "/secrets", secrets=found, total=total)


@router.get("/integrations/git")
async def show_git(
    request: Request, services: ServicesDep, scope: Annotated[WorkspaceScope, member_may(Action.REPOSITORY_READ)]
) -> Response:
    """The repository, its syncs and its rollouts."""
    place = scope.workspace_id

    def read(work: UnitOfWork) -> dict[str, Any]:
        found = RepositoryRepository(work).find_connected(place)
        if found is None:
            return {"repository": None, "syncs": [], "rollouts": []}
        syncs, _ = SyncRepository(work).page(place, found.id, limit=20, offset=0)
        rollouts, _ = RolloutRepository(work).page(place, found.id, found.default_branch, limit=_SHOWN, offset=0)
        return {"repository": found, "syncs": syncs, "rollouts": rollouts, "clone": clone_command(services, found)}

    return workspace_page(request, "git", scope, "/integrations/git", **await services.database.reading(read))


@router.get("/rollouts")
async def show_rollouts(
    request: Request, services: ServicesDep, scope: Annotated[WorkspaceScope, member_may(Action.REPOSITORY_READ)]
) -> Response:
    """Rollouts are shown with the repository they come from."""
    return await show_git(request, services, scope)


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
        if error.field != "name":
            error.field = None
        return await _keys(request, services, scope, status=error.status, failure=error, given=form.values)
    return await _keys(request, services, scope, fresh_token=issued.secret)


async def _keys(request: Request, services: Services, scope: WorkspaceScope, **facts: Any) -> Response:
    mine = await services.database.reading(lambda work: TokenRepository(work).of_user(scope.actor.user_id))
    return workspace_page(
        request,
        "api_keys",
        scope,
        "/api-keys",
        tokens=[one for one in mine if one.workspace_id == scope.workspace_id],
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
