"""The pages of the repository: what is connected, a remote instead of it and back, syncs, rollouts."""

from __future__ import annotations

from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import SecretStr, ValidationError

from osmosis_platform.api import repositories
from osmosis_platform.api.cli.rollouts import find_rollouts
from osmosis_platform.api.pages.pager import Pager
from osmosis_platform.api.pages.rendering import go_to
from osmosis_platform.api.pages.visitors import Sent, SentDep, member_may
from osmosis_platform.api.pages.workspace import clone_command, may, workspace_page
from osmosis_platform.api.scope import ServicesDep, WorkspaceScope
from osmosis_platform.api.segments import Segment
from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.repositories import Repository, RepositoryRepository
from osmosis_platform.db.repositories.syncs import SyncRepository
from osmosis_platform.domain.permissions import Action
from osmosis_platform.errors import InvalidRequestError, MissingError, ServiceError, UnavailableError
from osmosis_platform.events.log import read_page
from osmosis_platform.git.host_keys import fingerprints
from osmosis_platform.git.remote import RemoteError
from osmosis_platform.services import Services

router = APIRouter(prefix="/{workspace}", include_in_schema=False)

GIT = "/integrations/git"
_NEWEST, _BRANCHES, _LINES = 5, 200, 200
_FIELDS = ("url", "token", "username", "known_hosts", "default_branch")

Reader = Annotated[WorkspaceScope, member_may(Action.REPOSITORY_READ)]
Holder = Annotated[WorkspaceScope, member_may(Action.REPOSITORY_MANAGE)]


@router.get(GIT)
async def show_git(request: Request, services: ServicesDep, scope: Reader) -> Response:
    """The repository and its newest syncs."""
    return await _git(request, services, scope)


@router.post(GIT + "/sync")
async def send_sync(
    services: ServicesDep, _form: SentDep, scope: Annotated[WorkspaceScope, member_may(Action.REPOSITORY_SYNC)]
) -> Response:
    """Queues a sync."""
    await services.database.writing(lambda work: repositories.start_sync(work, scope))
    return go_to(f"/{scope.workspace_name}{GIT}?done=sync")


@router.post(GIT + "/test")
async def send_test(request: Request, services: ServicesDep, _form: SentDep, scope: Holder) -> Response:
    """Asks the connected remote, and says what it said."""
    try:
        answered = await anyio.to_thread.run_sync(repositories.try_connected, services, scope)
    except ServiceError as error:
        return await _git(request, services, scope, **_told(error))
    return await _git(request, services, scope, answered=answered)


@router.get(GIT + "/connect")
async def show_connect(request: Request, scope: Holder) -> Response:
    """The form that connects a remote."""
    return workspace_page(request, "git_connect", scope, GIT)


@router.post(GIT + "/connect")
async def send_connect(request: Request, services: ServicesDep, form: SentDep, scope: Holder) -> Response:
    """Tries a remote, or follows it from now on; then the webhook's secret is shown this once."""
    given = {name: form[name] for name in _FIELDS if name != "token"}
    try:
        wanted = _wanted(form)
        if form["decision"] == "test":
            answered = await anyio.to_thread.run_sync(repositories.try_remote, services, scope, wanted)
            return workspace_page(request, "git_connect", scope, GIT, given=given, answered=answered)
        _, secret = await anyio.to_thread.run_sync(repositories.connect, services, scope, wanted)
    except ServiceError as error:
        return workspace_page(request, "git_connect", scope, GIT, given=given, **_told(error))
    return await _git(request, services, scope, fresh_secret=secret, is_new=True)


@router.post(GIT + "/webhook")
async def send_webhook(request: Request, services: ServicesDep, _form: SentDep, scope: Holder) -> Response:
    """Makes another webhook secret and shows it this once."""
    try:
        _, secret = await services.database.writing(lambda work: repositories.renew_webhook(services, work, scope))
    except ServiceError as error:
        return await _git(request, services, scope, **_told(error))
    return await _git(request, services, scope, fresh_secret=secret)


@router.post(GIT + "/change")
async def send_change(request: Request, services: ServicesDep, form: SentDep, scope: Holder) -> Response:
    """Chooses the default branch, renames a hosted repository, or replaces a remote's token or host keys."""
    names = ("default_branch", "full_name", "username", "token", "known_hosts")
    values = {name: form[name].strip() for name in names if form[name]}
    if "known_hosts" in values:
        values["known_hosts"] = _lines(values["known_hosts"])
    try:
        try:
            wanted = repositories.Change.model_validate(values)
        except ValidationError as error:
            raise _malformed(error) from None
        await anyio.to_thread.run_sync(repositories.change, services, scope, wanted)
    except ServiceError as error:
        values.pop("token", None)
        return await _git(request, services, scope, given=values, **_told(error))
    return go_to(f"/{scope.workspace_name}{GIT}?done=saved")


@router.post(GIT + "/disconnect")
async def send_disconnect(request: Request, services: ServicesDep, _form: SentDep, scope: Holder) -> Response:
    """Goes back to the hosted repository."""
    try:
        await services.database.writing(lambda work: repositories.disconnect(work, scope))
    except ServiceError as error:
        return await _git(request, services, scope, **_told(error))
    return go_to(f"/{scope.workspace_name}{GIT}?done=disconnected")


@router.get(GIT + "/syncs")
async def show_syncs(request: Request, services: ServicesDep, scope: Reader) -> Response:
    """The history of syncs, newest first."""
    pager = Pager(request, f"/{scope.workspace_name}{GIT}/syncs")

    def read(work: UnitOfWork) -> tuple[Any, int]:
        found = RepositoryRepository(work).find_connected(scope.workspace_id)
        if found is None:
            return [], 0
        return SyncRepository(work).page(scope.workspace_id, found.id, limit=pager.size, offset=pager.offset)

    syncs, total = await services.database.reading(read)
    return workspace_page(request, "syncs", scope, GIT, syncs=syncs, shown=pager.over(total))


@router.get(GIT + "/syncs/{sync_id}")
async def show_sync(request: Request, services: ServicesDep, sync_id: Segment, scope: Reader) -> Response:
    """One sync with its log."""
    sync = await services.database.reading(lambda work: SyncRepository(work).get(scope.workspace_id, sync_id))
    if sync is None:
        raise MissingError("There is no such sync in this workspace; polls that found nothing new are not kept.")

    def read() -> Any:
        return read_page(services, scope.workspace_id, sync.id, cursor=None, limit=_LINES, direction="older")

    log = await anyio.to_thread.run_sync(read)
    return workspace_page(request, "sync", scope, GIT, sync=sync, lines=log.lines, older=None)


@router.get("/rollouts")
async def show_rollouts(
    request: Request, services: ServicesDep, scope: Annotated[WorkspaceScope, member_may(Action.ROLLOUTS_READ)]
) -> Response:
    """The rollouts of a branch, by name."""
    branch = request.query_params.get("branch", "").strip() or None
    pager = Pager(request, f"/{scope.workspace_name}/rollouts")

    def read(work: UnitOfWork) -> dict[str, Any]:
        found = RepositoryRepository(work).find_connected(scope.workspace_id)
        default = found.default_branch if found else None
        wanted = None if branch == default else branch
        names = sorted(RepositoryRepository(work).branches(scope.workspace_id, found.id)) if found else []
        facts: dict[str, Any] = {"branch": wanted, "default_branch": default, "branches": names[:_BRANCHES]}
        try:
            rollouts, total = find_rollouts(work, scope.workspace_id, wanted, limit=pager.size, offset=pager.offset)
        except MissingError as error:
            error.field = None
            return facts | {"status": 404, "failure": error, "rollouts": [], "shown": pager.over(0)}
        return facts | {"rollouts": rollouts, "shown": pager.over(total)}

    return workspace_page(request, "rollouts", scope, "/rollouts", **await services.database.reading(read))


async def _git(request: Request, services: Services, scope: WorkspaceScope, **facts: Any) -> Response:
    def read(work: UnitOfWork) -> tuple[Repository | None, list[Any], int]:
        found = RepositoryRepository(work).find_connected(scope.workspace_id)
        if found is None:
            return None, [], 0
        return found, *SyncRepository(work).page(scope.workspace_id, found.id, limit=_NEWEST, offset=0)

    repository, syncs, total = await services.database.reading(read)
    usual: dict[str, Any] = {
        "repository": repository,
        "syncs": syncs,
        "total": total,
        "may_sync": may(scope, Action.REPOSITORY_SYNC),
        "may_manage": may(scope, Action.REPOSITORY_MANAGE),
    }
    if repository is not None:
        usual["clone"] = clone_command(services, repository)
        if repository.kind == "remote":
            usual["webhook_url"] = repositories.webhook_url(repository, services.settings)
            usual["host_keys"] = fingerprints(repository.known_hosts)
    return workspace_page(request, "git", scope, GIT, **(usual | facts))


def _wanted(form: Sent) -> repositories.Connect:
    values: dict[str, Any] = {name: form[name].strip() for name in _FIELDS if form[name].strip()}
    if "token" in values:
        values["token"] = SecretStr(values["token"])
    if "known_hosts" in values:
        values["known_hosts"] = _lines(values["known_hosts"])
    try:
        return repositories.Connect.model_validate(values)
    except ValidationError as error:
        raise _malformed(error) from None


def _lines(text: str) -> str:
    """Of a text area: browsers send carriage returns, which ssh does not take."""
    return text.replace("\r\n", "\n") + "\n"


def _malformed(error: ValidationError) -> InvalidRequestError:
    finding = error.errors(include_input=False)[0]
    field = str(finding["loc"][0])
    if finding["type"] == "missing":
        return InvalidRequestError("Write the address of the repository.", field=field)
    return InvalidRequestError(f"This does not fit: {finding['msg']}.", field=field)


def _told(error: ServiceError) -> dict[str, Any]:
    """What went wrong, for the page that was at hand; what is the platform's fault goes on to the page of errors."""
    if error.status >= 500 and not isinstance(error, RemoteError | UnavailableError):
        raise error
    return {"failure": error, "status": error.status if error.status < 500 else 400}
