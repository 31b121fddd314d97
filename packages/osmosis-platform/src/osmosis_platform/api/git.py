"""The git host, `/git/<workspace>/<repository>.git`: who may clone and push. Git itself answers, through git/backend.py.

For git a credential is a password: a personal access token, with any user name. A bearer header will do too.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import anyio.to_thread
import structlog
from fastapi import APIRouter, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from osmosis_platform.api.scope import client_ip, request_id, services_of
from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.repositories import Repository, RepositoryIndex
from osmosis_platform.db.repositories.tokens import TokenRepository
from osmosis_platform.domain.actor import Actor
from osmosis_platform.domain.permissions import Action, Role, authorize
from osmosis_platform.errors import (
    ForbiddenError,
    InvalidRequestError,
    MissingError,
    ServiceError,
    TooLargeError,
    UnauthorizedError,
    UnavailableError,
)
from osmosis_platform.git import hosting
from osmosis_platform.git.backend import GitExchange
from osmosis_platform.git.plumbing import size_bytes
from osmosis_platform.identity.tokens import authenticate_token
from osmosis_platform.jobs.queue import enqueue

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from osmosis_platform.services import Services

log = structlog.get_logger(__name__)
router = APIRouter(tags=["git"])

_PATH = re.compile(
    r"/git/(?P<workspace>[A-Za-z0-9][A-Za-z0-9._-]{0,127})/(?P<name>[A-Za-z0-9][A-Za-z0-9._-]{0,127}?)\.git"
    r"/(?P<operation>info/refs|git-upload-pack|git-receive-pack)"
)
_SERVICES = {"service=git-upload-pack": Action.GIT_READ, "service=git-receive-pack": Action.GIT_WRITE}
_CHALLENGE = {"WWW-Authenticate": 'Basic realm="Osmosis: any user name, an access token as password", charset="UTF-8"'}
_WAIT_S = 30.0
_SYNC_S = 20.0
_PUSHES_KEPT = 4


async def serve(request: Request) -> Response:
    """One request of a git client."""
    found = _PATH.fullmatch(request.scope["path"])
    if found is None or ".." in request.scope["path"]:
        raise MissingError(
            "There is no such git URL here; clone <platform>/git/<workspace>/<repository>.git over HTTP."
        )
    action = _action(request, found["operation"])
    services = services_of(request)
    actor = await _authenticate(request, services)
    repository, role = await services.database.reading(
        lambda work: _find(work, actor, found["workspace"], found["name"])
    )
    try:
        authorize(role, action, actor=actor)
    except ForbiddenError as error:
        return _plain(error)
    path = await anyio.to_thread.run_sync(hosting.ensure, services, repository)
    if found["operation"] == "git-receive-pack":
        await anyio.to_thread.run_sync(_check_room, path, repository, services.settings.max_push_bytes)
    exchange = GitExchange(
        repository=path,
        operation=found["operation"],
        query=request.url.query if found["operation"] == "info/refs" else "",
        user=actor.user_id,
        max_push_bytes=services.settings.max_push_bytes,
    )
    if found["operation"] == "git-receive-pack":
        exchange.finish = lambda: _note_push(services, repository, actor)
    return _Exchange(exchange, _slots(request, services, actor.user_id))


# Not API routes: git's protocol has no place in OpenAPI, and its answers are git's own.
router.add_route("/git/{path:path}", serve, methods=["GET", "POST"], include_in_schema=False)


class _Exchange(Response):
    """A response that takes the connection over."""

    def __init__(self, exchange: GitExchange, slots: tuple[asyncio.Semaphore, asyncio.Semaphore]) -> None:
        self._exchange, self._slots = exchange, slots
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        mine, everybodys = self._slots
        async with _slot(mine), _slot(everybodys):
            await self._exchange.serve(scope, receive, send)


@asynccontextmanager
async def _slot(slots: asyncio.Semaphore) -> AsyncGenerator[None]:
    try:
        await asyncio.wait_for(slots.acquire(), _WAIT_S)
    except TimeoutError:
        message = "Too many git clients are being served now; try again in a moment."
        raise UnavailableError(message, code="GIT_BUSY", headers={"Retry-After": "10"}) from None
    try:
        yield
    finally:
        slots.release()


def _slots(request: Request, services: Services, user_id: str) -> tuple[asyncio.Semaphore, asyncio.Semaphore]:
    """The person's slots and everybody's: one person's slow clients must leave some to the others."""
    state, count = request.app.state, services.settings.git_processes
    if not hasattr(state, "git_slots"):
        state.git_slots, state.git_slots_of = asyncio.Semaphore(count), WeakValueDictionary()
    mine = state.git_slots_of.get(user_id)
    if mine is None:
        mine = state.git_slots_of[user_id] = asyncio.Semaphore(max(1, count * 3 // 4))
    return mine, state.git_slots


def _action(request: Request, operation: str) -> Action:
    """What the request does, from its method, path and query."""
    wanted = "GET" if operation == "info/refs" else "POST"
    if request.method != wanted:
        raise InvalidRequestError(f"{operation} takes {wanted} only.")
    if operation == "info/refs":
        if request.url.query not in _SERVICES:
            message = "Only git's smart protocol is served here; use git 1.6.6 or newer over HTTP."
            raise InvalidRequestError(message, code="GIT_DUMB_PROTOCOL")
        return _SERVICES[request.url.query]
    if request.headers.get("content-type") != f"application/x-{operation}-request":
        raise InvalidRequestError(f"The content type of {operation} is application/x-{operation}-request.")
    if operation == "git-receive-pack" and "content-encoding" in request.headers:
        # Git never does. What is small on the way could name branches without end.
        raise InvalidRequestError("The body of a push is not compressed as a whole; its pack is.")
    return _SERVICES[f"service={operation}"]


async def _authenticate(request: Request, services: Services) -> Actor:
    token = _token(request.headers.get("authorization"))
    if token is None:
        message = "This repository needs a sign-in: give any user name and an access token as the password."
        raise UnauthorizedError(message, code="AUTH_HEADER_MISSING", headers=_CHALLENGE)
    place = {"ip": client_ip(request), "request_id": request_id(request)}
    try:
        found = await services.database.reading(lambda work: authenticate_token(work, token, **place))
    except UnauthorizedError as error:
        raise UnauthorizedError(error.message, code=error.error_code, headers=_CHALLENGE) from None
    token_id = found.actor.token_id
    if found.note_use and token_id is not None:
        try:
            await services.database.writing(lambda work: TokenRepository(work).touch(token_id), durable=False)
        except ServiceError as error:
            log.warning("last use not noted", error=error.message)
    return found.actor


def _token(header: str | None) -> str | None:
    """The token of a Basic password or a bearer header."""
    kind, _, text = (header or "").strip().partition(" ")
    if kind.lower() == "bearer":
        return text.strip() or None
    if kind.lower() != "basic":
        return None
    try:
        name, _, password = base64.b64decode(text.strip(), validate=True).decode("utf-8").partition(":")
    except (binascii.Error, ValueError):
        return None
    # Some tools put the token into the user name of a URL and leave the password empty.
    return password or name or None


def _find(work: UnitOfWork, actor: Actor, workspace: str, name: str) -> tuple[Repository, Role]:
    found = RepositoryIndex(work).by_path(workspace, name, actor.user_id)
    reached = found is not None and actor.only_workspace_id in {None, found[0].workspace_id}
    if found is None or found[1] is None or not reached:
        message = f"There is no repository {workspace}/{name} that you have access to; check the URL and the token."
        raise MissingError(message, code="REPOSITORY_NOT_FOUND")
    return found[0], Role(found[1])


def _plain(error: ServiceError) -> Response:
    """A refusal as git shows it: it prints the text of plain bodies only."""
    return Response(error.message + "\n", error.status, media_type="text/plain; charset=utf-8")


def _check_room(path: Path, repository: Repository, max_push_bytes: int) -> None:
    """Pushes one by one must not fill the disk either."""
    limit = _PUSHES_KEPT * max_push_bytes
    if (size := size_bytes(path)) > limit:
        message = f"{repository.full_name} takes {size} bytes; the limit is {limit}. Keep data in datasets instead."
        raise TooLargeError(message, code="REPOSITORY_FULL")


async def _note_push(services: Services, repository: Repository, actor: Actor) -> None:
    """Syncs what was pushed before the client sees the end, so that its next command sees the rollouts.

    A sync that fails or takes long goes on as a job; the push itself is done and stays.
    """
    from osmosis_platform.git.sync import sync_now

    def sync() -> None:
        sync_now(services, repository.workspace_id, repository.id, "push")

    def later(work: UnitOfWork) -> None:
        payload = {"repository_id": repository.id, "trigger": "push"}
        key = f"repository.sync:{repository.id}"
        enqueue(work, repository.workspace_id, "repository.sync", payload, subject_id=repository.id, unique_key=key)

    log.info("pushed", repository=repository.id, user=actor.user_id)
    if repository.disconnected_at is not None:
        return
    try:
        with anyio.fail_after(_SYNC_S):
            await anyio.to_thread.run_sync(sync, abandon_on_cancel=True)
    except Exception as error:
        log.warning("sync of a push goes on as a job", repository=repository.id, cause=str(error))
        try:
            await services.database.writing(later)
        except ServiceError as again:
            log.warning("the poll will find the push", repository=repository.id, cause=again.message)
