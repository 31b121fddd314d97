"""Sign-in with the identity provider: there and back. What its answer is worth is identity.oidc's."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from osmosis_platform.api.pages.cookies import INVITATION_COOKIE, OIDC_COOKIE, drop, set_private, set_session
from osmosis_platform.api.pages.rendering import go_to, local_page, page
from osmosis_platform.api.pages.visitors import SignInNeededError, VisitorDep
from osmosis_platform.api.scope import ServicesDep, client_ip, open_to_all
from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.audit import AuditRepository
from osmosis_platform.errors import ForbiddenError, MissingError, ServiceError, UnauthorizedError
from osmosis_platform.identity.members import find_invitation
from osmosis_platform.identity.oidc import ATTEMPT_S, Attempt, IdentityProvider, account_of, connect_identity
from osmosis_platform.identity.sessions import OpenedSession, open_session
from osmosis_platform.identity.tokens import actor_of
from osmosis_platform.services import Services

router = APIRouter(prefix="/auth/oidc", include_in_schema=False)


@router.get("/start", dependencies=[open_to_all("signing in")])
async def start(request: Request, services: ServicesDep, visitor: VisitorDep) -> Response:
    """Leads to the provider."""
    provider = _provider(services)
    connect = "connect" in request.query_params
    if connect and visitor is None:
        raise SignInNeededError("You are signed out; sign in again.")
    if connect and request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
        raise ForbiddenError("Connect the provider from your account's page.", code="CSRF")
    address, attempt = await provider.begin(next_page=local_page(request.query_params.get("next")), connect=connect)
    answer = go_to(address)
    key = services.vault.derive("oidc-attempt")
    set_private(answer, services.settings, OIDC_COOKIE, attempt.sealed(key), ATTEMPT_S)
    return answer


@router.get("/callback", dependencies=[open_to_all("the provider's answer, bound to this browser by its cookie")])
async def callback(request: Request, services: ServicesDep, visitor: VisitorDep) -> Response:
    """Takes the provider's answer, once."""
    provider = _provider(services)
    key = services.vault.derive("oidc-attempt")
    now_s = services.clock().timestamp()
    attempt = Attempt.unseal(request.cookies.get(OIDC_COOKIE, ""), key, now_s)
    try:
        if attempt is None:
            message = "This sign-in was begun elsewhere, or too long ago. Start again."
            raise UnauthorizedError(message, code="OIDC_INVALID")
        identity = await provider.finish(attempt, dict(request.query_params))
        if attempt.connect:
            if visitor is None:
                raise SignInNeededError("You are signed out; sign in again.")
            await services.database.writing(lambda work: connect_identity(work, visitor, identity))
            answer: Response = go_to("/account?done=connected")
        else:
            secret = request.cookies.get(INVITATION_COOKIE)

            def enter(work: UnitOfWork) -> OpenedSession:
                ip = client_ip(request)
                user = account_of(work, identity, is_invited=_is_invited(work, secret, identity.email), ip=ip)
                agent = request.headers.get("user-agent")
                opened = open_session(work, user.id, days=services.settings.session_days, ip=ip, user_agent=agent)
                facts = {"provider": provider.issuer}
                AuditRepository(work).record(None, actor_of(user, ip=ip), "session.open", "session", opened.id, facts)
                return opened

            opened = await services.database.writing(enter)
            answer = go_to(attempt.next)
            set_session(answer, services.settings, opened)
    except ServiceError as error:
        if isinstance(error, SignInNeededError) or error.status >= 500:
            raise
        facts = {"next": attempt.next if attempt else "/", "setup_open": False, "provider": provider.name}
        answer = page(request, "sign_in", status=error.status, failure=error, **facts)
    drop(answer, services.settings, OIDC_COOKIE)
    return answer


def _provider(services: Services) -> IdentityProvider:
    if services.identity_provider is None:
        raise MissingError("No identity provider is configured here; sign in with a password.", code="OIDC_OFF")
    return services.identity_provider


def _is_invited(work: UnitOfWork, secret: str | None, email: str | None) -> bool:
    if secret is None:
        return False
    try:
        invitation, _ = find_invitation(work, secret)
    except MissingError:
        return False
    return invitation.email in {None, email}
