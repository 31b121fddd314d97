"""Who asks and where: FastAPI dependencies that every route declares, with the action it performs.

How to declare a route (the matrix test reads it, and OpenAPI shows it as `x-osmosis-action`):

    /api/cli                          scope: Annotated[WorkspaceScope, allowed(Action.DATASETS_READ)]
    /api/v1/workspaces/{workspace}/   scope: Annotated[WorkspaceScope, allowed_here(Action.DATASETS_READ)]
    signed in, no workspace           actor: Annotated[Actor, allowed_caller(Action.TOKENS_READ)]
    no credential                     dependencies=[open_to_all("why")]

Each checks role and token scopes before the route runs; where the action depends on the body or on whose thing it is,
declare the least and call `scope.require(Action.X, owner_id=...)` in the route too. What is allowed to whom is in
domain.permissions; how credentials are found is in identity.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import structlog
from fastapi import APIRouter, Depends, Path, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.sessions import SessionRepository
from osmosis_platform.db.repositories.tokens import TokenRepository
from osmosis_platform.db.repositories.workspaces import SeenWorkspace, WorkspaceRepository
from osmosis_platform.domain.actor import Actor
from osmosis_platform.domain.permissions import Action, Role, authorize
from osmosis_platform.errors import (
    ForbiddenError,
    InvalidRequestError,
    MissingError,
    ServiceError,
    TakenError,
    UnauthorizedError,
)
from osmosis_platform.identity.sessions import authenticate_session, is_csrf_token
from osmosis_platform.identity.tokens import Authenticated, authenticate_token
from osmosis_platform.services import Services

log = structlog.get_logger(__name__)

SESSION_COOKIE = "osmosis_session"
CSRF_HEADER = "X-Osmosis-CSRF"
_SAFE = {"GET", "HEAD", "OPTIONS"}
_IDENTITY = re.compile(r"(?:[a-z0-9][a-z0-9.:_\-]*|\[[0-9a-f:.]+\](?::\d+)?)(/[a-z0-9._\-~]+)+")
_IDENTITY_LIMIT = 400


@dataclass(frozen=True, slots=True)
class WorkspaceScope:
    """A member at work in a workspace.

    Attributes:
        actor: The person and the credential at hand.
        workspace_name: As it is now, whatever name was asked for.
        repository_id: Of the connected repository, if any.
        repository_full_name: `owner/repo` of it.
    """

    actor: Actor
    workspace_id: str
    workspace_name: str
    role: Role
    repository_id: str | None = None
    repository_full_name: str | None = None

    def require(self, action: Action, *, owner_id: str | None = None) -> None:
        """Lets the action pass or raises ForbiddenError.

        Args:
            action: What is asked.
            owner_id: Whose thing it is, where that matters.
        """
        authorize(self.role, action, actor=self.actor, owner_id=owner_id)


def services_of(request: Request) -> Services:
    """The parts of this process."""
    return request.app.state.services


def client_ip(request: Request) -> str | None:
    """Where the request came from; the server has applied trusted proxies already."""
    return request.client.host if request.client else None


def request_id(request: Request) -> str | None:
    """The id of the request, as its answer and the log name it."""
    return getattr(request.state, "request_id", None)


type _Find[T] = Callable[[UnitOfWork, Actor], T]
type _Credential = Callable[[UnitOfWork], Authenticated]


async def _asked[T](request: Request, credential: _Credential, find: _Find[T]) -> T:
    """What is found for who asks, in one read of both; the credential's use is noted even if nothing is found."""
    services = services_of(request)
    seen: list[Authenticated] = []

    def read(work: UnitOfWork) -> T:
        seen.append(credential(work))
        return find(work, seen[0].actor)

    try:
        return await services.database.reading(read)
    finally:
        if seen:
            await _note_use(services, seen[0])


def _credential_of(request: Request) -> _Credential:
    """A bearer token; for /api/v1 also a session cookie.

    Raises:
        UnauthorizedError: There is none. What is there may still not count, or be a browser's write without the header
            that only our pages can make (`CSRF`): the credential says so when it is asked.
    """
    header = request.headers.get("authorization")
    if header is None and not request.url.path.startswith("/api/cli"):
        cookie = request.cookies.get(SESSION_COOKIE)
        if cookie:
            return _session(request, cookie, check_csrf=request.method not in _SAFE)
    if header is None:
        message = "This needs a sign-in: send `Authorization: Bearer <token>`, or run `osmosis auth login`."
        raise UnauthorizedError(message, code="AUTH_HEADER_MISSING", headers={"WWW-Authenticate": "Bearer"})
    kind, _, text = header.strip().partition(" ")
    text = text.strip()
    if kind.lower() != "bearer" or not text:
        message = "The Authorization header holds no bearer token; send `Authorization: Bearer <token>`."
        raise UnauthorizedError(message, code="TOKEN_MISSING", headers={"WWW-Authenticate": "Bearer"})
    return lambda work: authenticate_token(work, text, ip=client_ip(request), request_id=request_id(request))


def _session(request: Request, cookie: str, *, check_csrf: bool) -> _Credential:
    def authenticate(work: UnitOfWork) -> Authenticated:
        found = authenticate_session(work, cookie, ip=client_ip(request), request_id=request_id(request))
        if found is None:
            raise UnauthorizedError("You are signed out; sign in again.", code="SESSION_OVER")
        if check_csrf and not is_csrf_token(cookie, request.headers.get(CSRF_HEADER)):
            message = f"This change did not come from a page of this platform ({CSRF_HEADER} is missing or wrong)."
            raise ForbiddenError(message + " Reload the page and try again.", code="CSRF")
        return found

    return authenticate


def _no_more(_work: UnitOfWork, actor: Actor) -> Actor:
    return actor


async def session_actor(request: Request, cookie: str, *, check_csrf: bool) -> Actor:
    """The person behind a session cookie.

    Raises:
        UnauthorizedError: `SESSION_OVER`.
        ForbiddenError: `CSRF`.
    """
    return await _asked(request, _session(request, cookie, check_csrf=check_csrf), _no_more)


async def caller(request: Request) -> Actor:
    """The person behind a bearer token or, for /api/v1, a session cookie.

    Raises:
        UnauthorizedError: No credential, or one that does not count.
        ForbiddenError: `CSRF`.
    """
    return await _asked(request, _credential_of(request), _no_more)


def scope_of_headers(work: UnitOfWork, actor: Actor, git: Sequence[str], names: Sequence[str]) -> WorkspaceScope:
    """The workspace of /api/cli, by exactly one of the two headers (platform-api.md 2 and 3.3).

    Args:
        work: A transaction.
        actor: Who asks.
        git: What X-Osmosis-Git says, each time it was sent.
        names: The same of X-Osmosis-Workspace.

    Raises:
        InvalidRequestError: `GIT_SCOPE_HEADER_REQUIRED`, `GIT_SCOPE_HEADER_INVALID`, `WORKSPACE_SCOPE_HEADER_CONFLICT`.
        MissingError: `GIT_REPOSITORY_NOT_CONNECTED`.
        ForbiddenError: `GIT_REPOSITORY_ACCESS_DENIED`, `WORKSPACE_SCOPE_HEADER_ACCESS_DENIED`.
        TakenError: `GIT_SCOPE_AMBIGUOUS`.
    """
    if len(git) + len(names) > 1:
        message = "Send one of X-Osmosis-Git and X-Osmosis-Workspace, once; leave out --workspace, or leave the clone."
        raise InvalidRequestError(message, code="WORKSPACE_SCOPE_HEADER_CONFLICT")
    if names:
        return scope_of_name(work, actor, names[0].strip())
    if not git:
        message = "Say which workspace: work in a clone of its repository, or give --workspace NAME."
        raise InvalidRequestError(message, code="GIT_SCOPE_HEADER_REQUIRED")
    return scope_of_repository(work, actor, git[0].strip().lower())


def scope_of_path(work: UnitOfWork, actor: Actor, workspace: str) -> WorkspaceScope:
    """The workspace of /api/v1/workspaces/{workspace}/...; strangers learn nothing, not even that it exists.

    Raises:
        MissingError: There is none that this credential reaches.
    """
    found = WorkspaceRepository(work).seen_by_named(actor.user_id, workspace)
    if found is None or not _is_reached(actor, found.id):
        raise MissingError(
            f"There is no workspace {workspace[:80]!r} that you are a member of. `GET /api/cli/workspaces` lists yours.",
            code="WORKSPACE_NOT_FOUND",
        )
    return _scope(actor, found)


def scope_of_name(work: UnitOfWork, actor: Actor, name: str) -> WorkspaceScope:
    """The workspace of a name, former name or id.

    Raises:
        ForbiddenError: `WORKSPACE_SCOPE_HEADER_ACCESS_DENIED`: unknown, or not the caller's; nobody learns which.
    """
    found = WorkspaceRepository(work).seen_by_named(actor.user_id, name) if name else None
    if found is None or not _is_reached(actor, found.id):
        raise ForbiddenError(
            f"There is no workspace {name[:80]!r} that you are a member of. Check --workspace; "
            "the workspaces page lists yours.",
            code="WORKSPACE_SCOPE_HEADER_ACCESS_DENIED",
        )
    return _scope(actor, found)


def scope_of_repository(work: UnitOfWork, actor: Actor, identity: str) -> WorkspaceScope:
    """The caller's workspace that is connected to a repository. The name is only a key: it proves nothing.

    Raises:
        InvalidRequestError: `GIT_SCOPE_HEADER_INVALID`.
        MissingError: `GIT_REPOSITORY_NOT_CONNECTED`, also where only workspaces of others are connected.
        ForbiddenError: `GIT_REPOSITORY_ACCESS_DENIED`: the token is for another workspace.
        TakenError: `GIT_SCOPE_AMBIGUOUS`: several of the caller's workspaces are.
    """
    if len(identity) > _IDENTITY_LIMIT or not _IDENTITY.fullmatch(identity) or ".." in identity:
        message = "X-Osmosis-Git must be the owner/repo of the clone's origin, lower-case and without .git."
        raise InvalidRequestError(message, code="GIT_SCOPE_HEADER_INVALID")
    found = WorkspaceRepository(work).seen_by_connected(actor.user_id, identity)
    reached = [one for one in found if _is_reached(actor, one.id)]
    if len(reached) > 1:
        names = ", ".join(one.name for one in reached)
        message = f"{identity} is connected to several of your workspaces ({names}); say which with --workspace NAME."
        raise TakenError(message, code="GIT_SCOPE_AMBIGUOUS")
    if reached:
        return _scope(actor, reached[0])
    if found:
        message = f"This token is for another workspace than the one connected to {identity}; use another token."
        raise ForbiddenError(message, code="GIT_REPOSITORY_ACCESS_DENIED")
    message = f"No workspace of yours is connected to {identity}. Connect it on the workspace's Git page, "
    raise MissingError(message + "or give --workspace NAME.", code="GIT_REPOSITORY_NOT_CONNECTED")


def _scope(actor: Actor, seen: SeenWorkspace) -> WorkspaceScope:
    return WorkspaceScope(actor, seen.id, seen.name, seen.role, seen.repository_id, seen.repository_full_name)


def _is_reached(actor: Actor, workspace_id: str) -> bool:
    return actor.only_workspace_id in {None, workspace_id}


async def _note_use(services: Services, found: Authenticated) -> None:
    """Writes when the credential was last used, at most once a minute; a busy or full database is no reason to fail."""
    if not found.note_use:
        return

    def note(work: UnitOfWork) -> None:
        actor = found.actor
        if actor.token_id is not None:
            TokenRepository(work).touch(actor.token_id)
        elif actor.session_id is not None:
            SessionRepository(work).touch(actor.session_id)

    try:
        await services.database.writing(note, durable=False)
    except ServiceError as error:
        log.warning("last use not noted", error=error.message)


async def _services(request: Request) -> Services:
    """`services_of` as a dependency: FastAPI would call one that is not async in a thread, at 0.2 ms a request."""
    return services_of(request)


ServicesDep = Annotated[Services, Depends(_services)]


class Declared:
    """What a route says of itself: an action, or why it is open. Its subclasses are callable as dependencies."""

    action: Action | None = None
    open_because: str | None = None


# Read as they come, since a header that is sent twice is a fault of its own; `show_actions` tells OpenAPI of them.
_SCOPE_HEADERS = {
    "x-osmosis-git": "owner/repo of the connected repository.",
    "x-osmosis-workspace": "Name of the workspace.",
}


class _Acting(Declared):
    """One dependency for who asks, where, and whether they may: a chain of them costs a third of a list page."""

    def __init__(self, action: Action) -> None:
        self.action = self.needs = action


class _InHeader(_Acting):
    async def __call__(self, request: Request) -> WorkspaceScope:
        git, names = (request.headers.getlist(name) for name in _SCOPE_HEADERS)
        scope = await _asked(
            request, _credential_of(request), lambda work, actor: scope_of_headers(work, actor, git, names)
        )
        scope.require(self.needs)
        return scope


class _InPath(_Acting):
    async def __call__(
        self,
        request: Request,
        workspace: Annotated[str, Path(description="Name, former name or id of the workspace.")],
    ) -> WorkspaceScope:
        scope = await _asked(
            request, _credential_of(request), lambda work, actor: scope_of_path(work, actor, workspace)
        )
        scope.require(self.needs)
        return scope


class _OfCaller(_Acting):
    async def __call__(self, request: Request) -> Actor:
        actor = await _asked(request, _credential_of(request), _no_more)
        authorize(None, self.needs, actor=actor)
        return actor


class _Open(Declared):
    def __init__(self, why: str) -> None:
        self.open_because = why

    async def __call__(self) -> None:
        return None


def allowed(action: Action) -> Any:
    """For /api/cli: the workspace of the scope headers, if the caller may do this there. See the top of this file."""
    return Depends(_InHeader(action))


def allowed_here(action: Action) -> Any:
    """For /api/v1/workspaces/{workspace}/...: that workspace, if the caller may do this there."""
    return Depends(_InPath(action))


def allowed_caller(action: Action) -> Any:
    """For routes without a workspace: the caller, if the credential may do this."""
    return Depends(_OfCaller(action))


def open_to_all(why: str) -> Any:
    """For routes that need no credential, or check one of their own: says why."""
    return Depends(_Open(why))


def declared(route: APIRoute) -> Declared | None:
    """What a route declares of itself; None when its author forgot."""
    return _find(route.dependant, lambda call: isinstance(call, Declared))


def _find(dependant: Dependant, wanted: Callable[[Any], bool]) -> Any:
    for child in dependant.dependencies:
        if wanted(child.call):
            return child.call
        deeper = _find(child, wanted)
        if deeper is not None:
            return deeper
    return None


def show_actions(router: APIRouter) -> None:
    """Writes what every route of a router declares into the OpenAPI document; called before the router is included."""
    for route in router.routes:
        said = declared(route) if isinstance(route, APIRoute) else None
        if isinstance(route, APIRoute) and said is not None:
            facts: dict[str, Any] = {"x-osmosis-action": str(said.action)} if said.action else {}
            if said.open_because:
                facts["x-osmosis-open"] = said.open_because
            if isinstance(said, _InHeader):
                facts["parameters"] = [_shown_header(name, text) for name, text in _SCOPE_HEADERS.items()]
            route.openapi_extra = {**(route.openapi_extra or {}), **facts}


def _shown_header(name: str, description: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "description": description, "schema": {"type": "string"}}
