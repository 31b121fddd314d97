"""The pages of a person: their workspaces, and their account with its tokens, browsers, name and password."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from osmosis_platform.api.pages.pager import Pager
from osmosis_platform.api.pages.rendering import go_to, local_page, page
from osmosis_platform.api.pages.visitors import Sent, SentDep, person_may
from osmosis_platform.api.scope import ServicesDep
from osmosis_platform.api.segments import Segment
from osmosis_platform.api.v1 import tokens
from osmosis_platform.api.v1.account import close_others, rename_person, replace_password
from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.audit import AuditRepository
from osmosis_platform.db.repositories.sessions import SessionRepository
from osmosis_platform.db.repositories.tokens import TokenRepository
from osmosis_platform.db.repositories.users import UserRepository
from osmosis_platform.db.repositories.workspaces import WorkspaceRepository
from osmosis_platform.domain.actor import Actor
from osmosis_platform.domain.permissions import ALL_SCOPES, SCOPES, Action
from osmosis_platform.errors import InvalidRequestError, ServiceError, TakenError
from osmosis_platform.identity.accounts import create_workspace
from osmosis_platform.identity.oidc import disconnect_identity
from osmosis_platform.identity.tokens import IssuedToken
from osmosis_platform.services import Services

router = APIRouter(include_in_schema=False)

_DONE = {
    "revoked": "The token is revoked.",
    "closed": "That browser is signed out.",
    "name": "Your name is saved.",
    "password": "Your password is changed; other browsers are signed out.",
    "closed-others": "Every other browser is signed out.",
    "connected": "Connected: you can sign in with it from now on.",
    "disconnected": "Disconnected: it signs you in no longer.",
}


@router.get("/")
async def show_home(
    request: Request, services: ServicesDep, actor: Annotated[Actor, person_may(Action.ACCOUNT_READ)]
) -> Response:
    """The person's workspaces."""
    return await _home(request, services, actor)


@router.post("/workspaces")
async def send_workspace(
    request: Request, services: ServicesDep, form: SentDep, actor: Annotated[Actor, person_may(Action.WORKSPACE_CREATE)]
) -> Response:
    """Makes a workspace."""
    try:
        made = await services.database.writing(lambda work: create_workspace(services, work, actor, form["name"]))
    except ServiceError as error:
        if error.status >= 500:
            raise
        return await _home(request, services, actor, status=error.status, failure=error, given=form.values)
    return go_to(f"/{made.name}")


async def _home(request: Request, services: Services, actor: Actor, **facts: Any) -> Response:
    seen = await services.database.reading(lambda work: WorkspaceRepository(work).seen_by(actor.user_id))
    workspaces, shown = Pager(request, "/").cut(seen)
    return page(request, "home", workspaces=workspaces, shown=shown, workspace=None, **facts)


@router.get("/account")
async def show_account(
    request: Request, services: ServicesDep, actor: Annotated[Actor, person_may(Action.ACCOUNT_READ)]
) -> Response:
    """The person's account."""
    return await _account(request, services, actor, done=_DONE.get(request.query_params.get("done", "")))


@router.post("/account/tokens")
async def send_token(
    request: Request, services: ServicesDep, form: SentDep, actor: Annotated[Actor, person_may(Action.TOKENS_WRITE)]
) -> Response:
    """Makes a token and shows it this once."""
    try:
        issued = await services.database.writing(lambda work: make_token(work, actor, form))
    except ServiceError as error:
        if error.status >= 500:
            raise
        error.field = "token-name" if error.field == "name" else None
        return await _account(request, services, actor, status=error.status, failure=error, given=form.values)
    return await _account(request, services, actor, fresh_token=issued.secret)


@router.post("/account/tokens/{token_id}/revoke")
async def revoke_token(
    services: ServicesDep, token_id: Segment, form: SentDep, actor: Annotated[Actor, person_may(Action.TOKENS_WRITE)]
) -> Response:
    """Ends a token."""
    await services.database.writing(lambda work: tokens.revoke_token(work, actor, token_id))
    return go_to(local_page(form["next"] or "/account?done=revoked"))


@router.post("/account/sessions/{session_id}/close")
async def close_session(
    services: ServicesDep,
    session_id: Segment,
    _form: SentDep,
    actor: Annotated[Actor, person_may(Action.ACCOUNT_WRITE)],
) -> Response:
    """Signs another browser out."""

    def close(work: UnitOfWork) -> None:
        if SessionRepository(work).close(actor.user_id, session_id):
            AuditRepository(work).record(None, actor, "session.close", "session", session_id, {})

    await services.database.writing(close)
    return go_to("/account?done=closed")


@router.post("/account/sessions/close-others")
async def close_other_sessions(
    services: ServicesDep, _form: SentDep, actor: Annotated[Actor, person_may(Action.ACCOUNT_WRITE)]
) -> Response:
    """Signs every browser out but the one at hand."""
    await services.database.writing(lambda work: close_others(work, actor))
    return go_to("/account?done=closed-others")


@router.post("/account/identities/{identity_id}/disconnect")
async def disconnect(
    request: Request,
    services: ServicesDep,
    identity_id: Segment,
    _form: SentDep,
    actor: Annotated[Actor, person_may(Action.ACCOUNT_WRITE)],
) -> Response:
    """Disconnects an identity, unless it is the only way in."""
    issuer = services.settings.oidc_issuer
    try:
        await services.database.writing(
            lambda work: disconnect_identity(work, actor, identity_id, usable_issuer=issuer)
        )
    except TakenError as error:
        return await _account(request, services, actor, status=error.status, failure=error)
    return go_to("/account?done=disconnected")


@router.post("/account/name")
async def send_name(
    request: Request, services: ServicesDep, form: SentDep, actor: Annotated[Actor, person_may(Action.ACCOUNT_WRITE)]
) -> Response:
    """Changes the name that others see."""
    try:
        await services.database.writing(lambda work: rename_person(work, actor, form["name"]))
    except InvalidRequestError as error:
        error.field = "person-name"
        return await _account(request, services, actor, status=400, failure=error)
    return go_to("/account?done=name")


@router.post("/account/password")
async def send_password(
    request: Request, services: ServicesDep, form: SentDep, actor: Annotated[Actor, person_may(Action.ACCOUNT_WRITE)]
) -> Response:
    """Changes the password, of those who have one only with it."""
    try:
        await replace_password(services, actor, form["current"], form["password"])
    except ServiceError as error:
        if error.status >= 500:
            raise
        return await _account(request, services, actor, status=error.status, failure=error)
    return go_to("/account?done=password")


def make_token(work: UnitOfWork, actor: Actor, form: Sent, *, workspace_id: str | None = None) -> IssuedToken:
    """The token that a form asks for."""
    days = int(form["days"][:5]) if form["days"].isascii() and form["days"].isdecimal() else 0
    if not 1 <= days <= 3650:
        raise InvalidRequestError("Choose for how many days the token counts, up to 3,650.", field="days")
    return tokens.make_token(work, actor, form["name"], form.chosen.get("scopes", []), days, workspace_id)


TOKEN_SCOPES = sorted(SCOPES - {ALL_SCOPES})


async def _account(request: Request, services: Services, actor: Actor, **facts: Any) -> Response:
    def read(work: UnitOfWork) -> dict[str, Any]:
        return {
            "tokens": TokenRepository(work).of_user(actor.user_id),
            "sessions": SessionRepository(work).of_user(actor.user_id),
            "names": {one.id: one.name for one in WorkspaceRepository(work).seen_by(actor.user_id)},
            "person": UserRepository(work).get(actor.user_id),
            "identities": UserRepository(work).identities(actor.user_id),
        }

    seen = await services.database.reading(read)
    seen["tokens"], seen["tokens_shown"] = Pager(request, "/account", "tokens", size=20).cut(seen["tokens"])
    seen["sessions"], seen["sessions_shown"] = Pager(request, "/account", "sessions", size=20).cut(seen["sessions"])
    provider = services.identity_provider
    return page(
        request,
        "account",
        workspace=None,
        has_password=seen["person"].password_hash is not None,
        session_id=actor.session_id,
        provider=provider.name if provider else None,
        scopes=TOKEN_SCOPES,
        token_action="/account/tokens",  # noqa: S106 - an address
        **seen,
        **facts,
    )
