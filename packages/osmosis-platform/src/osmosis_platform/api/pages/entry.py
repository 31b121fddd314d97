"""Coming in: set-up, sign-in with a password, sign-out, invitations. Sign-in with a provider is in provider.py."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from osmosis_platform.api.pages.cookies import INVITATION_COOKIE, INVITATION_S, drop, set_private, set_session
from osmosis_platform.api.pages.rendering import asset, go_to, local_page, page
from osmosis_platform.api.pages.visitors import PlainDep, Sent, SentDep, VisitorDep
from osmosis_platform.api.scope import SESSION_COOKIE, ServicesDep, client_ip, open_to_all
from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.audit import AuditRepository
from osmosis_platform.db.repositories.invitations import Invitation
from osmosis_platform.db.repositories.throttles import ThrottleRepository
from osmosis_platform.db.repositories.users import User
from osmosis_platform.db.repositories.workspaces import WorkspaceRepository
from osmosis_platform.errors import MissingError, ServiceError, TooManyRequestsError
from osmosis_platform.identity.accounts import create_user
from osmosis_platform.identity.members import accept_invitation, find_invitation
from osmosis_platform.identity.passwords import hash_in_thread
from osmosis_platform.identity.sessions import OpenedSession, close_session, open_session
from osmosis_platform.identity.setup import finish_setup, is_setup_open
from osmosis_platform.identity.sign_in import sign_in
from osmosis_platform.identity.tokens import actor_of
from osmosis_platform.services import Services

router = APIRouter(include_in_schema=False)

_SETUP_TRIES, _SETUP_WINDOW_S = 20, 600


@router.get("/assets/{name}", dependencies=[open_to_all("the look of the pages")])
async def show_asset(name: str) -> Response:
    """Style sheet, script and icon."""
    return asset(name)


@router.get(
    "/setup", dependencies=[open_to_all("there is no account yet; the set-up token is checked when it is sent")]
)
async def show_setup(request: Request, services: ServicesDep) -> Response:
    """The form of the first account; the token is in the fragment, which browsers do not send."""
    if not await services.database.reading(is_setup_open):
        return _setup_is_over(request)
    return page(request, "setup")


@router.post("/setup", dependencies=[open_to_all("the set-up token is in the form")])
async def send_setup(request: Request, services: ServicesDep, form: SentDep) -> Response:
    """Makes the first account and its workspace, and signs in."""
    if not await services.database.reading(is_setup_open):
        return _setup_is_over(request)
    ip = client_ip(request)

    def finish(work: UnitOfWork, hashed: str) -> tuple[OpenedSession, str]:
        user, workspace = finish_setup(
            services,
            work,
            form["token"].strip().lstrip("#"),
            email=form["email"],
            name=form["name"],
            password_hash=hashed,
            workspace=form["workspace"],
        )
        return _open(services, work, user, request), workspace.name

    try:
        await _throttled(services, f"setup:{ip}", _SETUP_TRIES, _SETUP_WINDOW_S)
        hashed = await hash_in_thread(form["password"])
        opened, name = await services.database.writing(lambda work: finish(work, hashed))
    except ServiceError as error:
        if error.status >= 500:
            raise
        if error.error_code in {"NAME_INVALID", "NAME_RESERVED", "NAME_TAKEN"}:
            error.field = "workspace"
        if error.error_code == "SETUP_TOKEN_INVALID":
            error.field = "token"
        return page(request, "setup", status=error.status, failure=error, given=_given(form))
    return _signed_in(services, opened, f"/{name}")


@router.get("/sign-in", dependencies=[open_to_all("signing in")])
async def show_sign_in(request: Request, services: ServicesDep, visitor: VisitorDep) -> Response:
    """The form; who is signed in goes on."""
    target = local_page(request.query_params.get("next"))
    if visitor is not None:
        return go_to(target)
    facts = await _sign_in_facts(request, services, target)
    left = "signed-out" in request.query_params
    is_over = not left and SESSION_COOKIE in request.cookies  # it ended, or was ended from elsewhere
    return page(request, "sign_in", signed_out=left, is_over=is_over, **facts)


@router.post("/sign-in", dependencies=[open_to_all("signing in")])
async def send_sign_in(request: Request, services: ServicesDep, form: SentDep) -> Response:
    """Checks the password and opens a session."""
    target = local_page(form["next"])
    try:
        opened = await sign_in(
            services,
            form["email"],
            form["password"],
            ip=client_ip(request),
            user_agent=request.headers.get("user-agent"),
        )
    except ServiceError as error:
        if error.status >= 500:
            raise
        facts = await _sign_in_facts(request, services, target)
        shown = page(request, "sign_in", status=error.status, failure=error, given=_given(form), **facts)
        shown.headers.update(error.headers)
        return shown
    return _signed_in(services, opened, target)


@router.post("/sign-out", dependencies=[open_to_all("signing out of the session at hand, if there is one")])
async def send_sign_out(services: ServicesDep, visitor: VisitorDep, form: SentDep) -> Response:
    """Closes the session."""
    if visitor is not None:

        def close(work: UnitOfWork) -> None:
            if close_session(work, visitor):
                AuditRepository(work).record(None, visitor, "session.close", "session", visitor.session_id, {})

        await services.database.writing(close)
    answer = go_to("/sign-in?signed-out")
    drop(answer, services.settings, SESSION_COOKIE)
    return answer


@router.get("/invitation", dependencies=[open_to_all("whoever has the link may read it")])
async def show_invitation(request: Request, services: ServicesDep, visitor: VisitorDep) -> Response:
    """What the invitation is to, once its secret came from the fragment; before, the field for it."""
    secret = request.cookies.get(INVITATION_COOKIE)
    if secret is None:
        return page(request, "invitation", invitation=None)
    try:
        invitation, name = await services.database.reading(lambda work: find_invitation(work, secret))
    except MissingError as error:
        shown = page(request, "invitation", status=404, invitation=None, failure=error)
        drop(shown, services.settings, INVITATION_COOKIE)
        return shown
    return page(request, "invitation", invitation=invitation, invited=name)


@router.post("/invitation", dependencies=[open_to_all("the invitation's secret is in the form")])
async def send_invitation(request: Request, services: ServicesDep, form: PlainDep) -> Response:
    """Keeps the secret in a cookie while its holder signs in or makes an account."""
    secret = form["token"].strip().rpartition("#")[2]
    try:
        await _throttled(services, f"invitation:{client_ip(request)}", _SETUP_TRIES, _SETUP_WINDOW_S)
        await services.database.reading(lambda work: find_invitation(work, secret))
    except ServiceError as error:
        return page(request, "invitation", status=error.status, invitation=None, failure=error)
    answer = go_to("/invitation")
    set_private(answer, services.settings, INVITATION_COOKIE, secret, INVITATION_S)
    return answer


@router.post("/invitation/accept", dependencies=[open_to_all("the invitation's secret is in its cookie")])
async def accept(request: Request, services: ServicesDep, visitor: VisitorDep, form: SentDep) -> Response:
    """Lets the signed-in person in, or makes an account for a new one."""
    secret = request.cookies.get(INVITATION_COOKIE)
    if secret is None:
        return go_to("/invitation")

    def join(work: UnitOfWork, hashed: str | None) -> tuple[OpenedSession | None, str]:
        invitation, _ = find_invitation(work, secret)
        opened, actor = None, visitor
        if actor is None:
            user = create_user(work, invitation.email or form["email"], name=form["name"], password_hash=hashed)
            actor = actor_of(user, ip=client_ip(request))
            opened = _open(services, work, user, request)
        accept_invitation(work, actor, secret)
        return opened, WorkspaceRepository(work).get(invitation.workspace_id).name

    try:
        hashed = None
        if visitor is None:
            await services.database.reading(lambda work: find_invitation(work, secret))
            hashed = await hash_in_thread(form["password"])
        opened, name = await services.database.writing(lambda work: join(work, hashed))
    except ServiceError as error:
        if error.status >= 500:
            raise
        found = await services.database.reading(lambda work: _invitation_or_none(work, secret))
        facts: dict[str, Any] = {"invitation": None} if found is None else {"invitation": found[0], "invited": found[1]}
        return page(request, "invitation", status=error.status, failure=error, given=_given(form), **facts)
    answer = go_to(f"/{name}") if opened is None else _signed_in(services, opened, f"/{name}")
    drop(answer, services.settings, INVITATION_COOKIE)
    return answer


def _open(services: Services, work: UnitOfWork, user: User, request: Request) -> OpenedSession:
    ip = client_ip(request)
    opened = open_session(
        work, user.id, days=services.settings.session_days, ip=ip, user_agent=request.headers.get("user-agent")
    )
    AuditRepository(work).record(None, actor_of(user, ip=ip), "session.open", "session", opened.id, {})
    return opened


def _signed_in(services: Services, opened: OpenedSession, target: str) -> Response:
    answer = go_to(target)
    set_session(answer, services.settings, opened)
    return answer


def _setup_is_over(request: Request) -> Response:
    return page(
        request,
        "message",
        heading="Set-up is done",
        text="This platform has its first account. Sign in, or ask a member of a workspace for an invitation.",
        action=("/sign-in", "Sign in"),
    )


async def _sign_in_facts(request: Request, services: Services, target: str) -> dict[str, Any]:
    secret = request.cookies.get(INVITATION_COOKIE)

    def read(work: UnitOfWork) -> tuple[bool, tuple[Invitation, str] | None]:
        return is_setup_open(work), None if secret is None else _invitation_or_none(work, secret)

    setup_open, invited = await services.database.reading(read)
    provider = services.identity_provider
    return {
        "next": target,
        "setup_open": setup_open,
        "invited": invited[1] if invited and target == "/invitation" else None,
        "provider": provider.name if provider else None,
    }


def _invitation_or_none(work: UnitOfWork, secret: str) -> tuple[Invitation, str] | None:
    try:
        return find_invitation(work, secret)
    except MissingError:
        return None


async def _throttled(services: Services, key: str, limit: int, window_s: float) -> None:
    tries = await services.database.writing(lambda work: ThrottleRepository(work).hit(key, window_s), durable=False)
    if tries > limit:
        message = "Too many attempts from here; wait ten minutes."
        raise TooManyRequestsError(message, headers={"Retry-After": str(int(window_s))})


def _given(form: Sent) -> dict[str, str]:
    """What a form is filled with again: everything but passwords."""
    return {key: value for key, value in form.values.items() if key not in {"password", "current", "csrf"}}
