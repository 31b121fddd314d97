"""Who looks at a page and whether a form is ours: the pages' counterparts of api.scope's dependencies."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import quote, urlsplit

from fastapi import Depends, Path, Request

from osmosis_platform.api.scope import SESSION_COOKIE, Declared, WorkspaceScope, scope_of_path, session_actor
from osmosis_platform.db.repositories.workspaces import WorkspaceRepository
from osmosis_platform.domain.actor import Actor
from osmosis_platform.domain.permissions import Action, authorize
from osmosis_platform.errors import ForbiddenError, MissingError, UnauthorizedError
from osmosis_platform.identity.names import RESERVED
from osmosis_platform.identity.sessions import csrf_token, is_csrf_token
from osmosis_platform.services import Services
from osmosis_platform.settings import Settings

_FIELDS = 200
_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")


class SignInNeededError(UnauthorizedError):
    """Nobody is signed in; the answer leads to the sign-in page and from there back."""

    code = "SESSION_OVER"


@dataclass(frozen=True, slots=True)
class Sent:
    """The fields of a form that came from one of our own pages."""

    values: dict[str, str]
    chosen: dict[str, list[str]]

    def __getitem__(self, name: str) -> str:
        return self.values.get(name, "")


async def visitor(request: Request) -> Actor | None:
    """Whoever is signed in, if anybody; pages find them in the request's state."""
    cookie = request.cookies.get(SESSION_COOKIE)
    if not cookie:
        return None
    try:
        actor = await session_actor(request, cookie, check_csrf=False)
    except UnauthorizedError:
        return None
    request.state.person, request.state.csrf = actor, csrf_token(cookie)
    return actor


async def person(request: Request) -> Actor:
    """Whoever is signed in.

    Raises:
        SignInNeededError: Nobody is.
    """
    actor = await visitor(request)
    if actor is None:
        raise SignInNeededError("You are signed out; sign in again.")
    return actor


async def sent(request: Request) -> Sent:
    """The form of a POST.

    Raises:
        ForbiddenError: `CSRF`: it came from another site, or without the mark that only our pages can make.
    """
    form = await plain(request)
    cookie = request.cookies.get(SESSION_COOKIE)
    if cookie and await visitor(request) is not None and not is_csrf_token(cookie, form["csrf"]):
        raise _foreign()
    return form


async def plain(request: Request) -> Sent:
    """The form of a POST that changes nothing of a signed-in person's; still never from another site."""
    services: Services = request.app.state.services
    if not _is_from_here(request, services.settings):
        raise _foreign()
    async with request.form(max_files=0, max_fields=_FIELDS) as form:
        pairs = [(key, value) for key, value in form.multi_items() if isinstance(value, str)]
    chosen: dict[str, list[str]] = {}
    for key, value in pairs:
        chosen.setdefault(key, []).append(value)
    return Sent(dict(pairs), chosen)


def _is_from_here(request: Request, settings: Settings) -> bool:
    site = request.headers.get("sec-fetch-site")
    if site is not None and site not in {"same-origin", "none"}:
        return False
    origin = request.headers.get("origin")
    if origin is None:
        return True  # no browser: nothing to ride on
    ours = urlsplit(settings.base_url).netloc.lower()
    try:
        return urlsplit(origin).netloc.lower() in {ours, request.headers.get("host", "").lower()}
    except ValueError:  # no browser writes such an origin
        return False


def _foreign() -> ForbiddenError:
    return ForbiddenError(
        "This form is not one of this platform's, or too old. Go back, reload it, send it again.", code="CSRF"
    )


def sign_in_address(request: Request) -> str:
    """The sign-in page that leads back to the page at hand."""
    here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return "/sign-in" if request.method != "GET" or here == "/" else f"/sign-in?next={quote(here, safe='/')}"


class _OfPerson(Declared):
    def __init__(self, action: Action) -> None:
        self.action = action

    async def __call__(self, request: Request) -> Actor:
        actor = await person(request)
        assert self.action is not None
        authorize(None, self.action, actor=actor)
        return actor


class _InWorkspace(Declared):
    def __init__(self, action: Action) -> None:
        self.action = action

    async def __call__(self, request: Request, workspace: Annotated[str, Path()]) -> WorkspaceScope:
        if workspace.lower() in RESERVED or not _NAME.fullmatch(workspace):
            raise MissingError(f"There is no page {request.url.path[:80]} on this platform.")
        actor = await person(request)
        services: Services = request.app.state.services
        try:
            scope = await services.database.reading(lambda work: scope_of_path(work, actor, workspace))
        except MissingError as error:  # in words for who looks at a page
            error.message = (
                f"There is no workspace {workspace} that {actor.email} is a member of. Check the address, "
                "or ask whoever sent it to invite you."
            )
            raise
        assert self.action is not None
        scope.require(self.action)
        found = await services.database.reading(lambda work: WorkspaceRepository(work).get(scope.workspace_id))
        request.state.workspace, request.state.zone = found, found.timezone
        return scope


def person_may(action: Action) -> Any:
    """For pages outside of workspaces: whoever is signed in."""
    return Depends(_OfPerson(action))


def member_may(action: Action) -> Any:
    """For pages of a workspace: one of its members who may do this."""
    return Depends(_InWorkspace(action))


VisitorDep = Annotated[Actor | None, Depends(visitor)]
SentDep = Annotated[Sent, Depends(sent)]
PlainDep = Annotated[Sent, Depends(plain)]
