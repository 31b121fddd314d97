"""The caller's own account: name, password, signed-in browsers."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, Field, SecretStr

from osmosis_platform.api.bodies import StrictBody
from osmosis_platform.api.scope import ServicesDep, allowed_caller
from osmosis_platform.api.segments import Segment
from osmosis_platform.clock import wire_time
from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.audit import AuditRepository
from osmosis_platform.db.repositories.sessions import SessionRepository
from osmosis_platform.db.repositories.throttles import ThrottleRepository
from osmosis_platform.db.repositories.users import User, UserRepository
from osmosis_platform.domain.actor import Actor
from osmosis_platform.domain.permissions import Action
from osmosis_platform.errors import InvalidRequestError, MissingError, TooManyRequestsError
from osmosis_platform.identity.accounts import change_password
from osmosis_platform.identity.names import check_person_name
from osmosis_platform.identity.oidc import disconnect_identity
from osmosis_platform.identity.passwords import hash_in_thread, matches_in_thread
from osmosis_platform.services import Services

router = APIRouter(prefix="/api/v1/account", tags=["account"])

Reader = Annotated[Actor, allowed_caller(Action.ACCOUNT_READ)]
Writer = Annotated[Actor, allowed_caller(Action.ACCOUNT_WRITE)]

_TRIES, _WINDOW_S = 10, 900


class AccountView(BaseModel):
    """The caller."""

    id: str
    email: str
    name: str | None
    is_administrator: bool
    has_password: bool
    created_at: str | None


class AccountChange(StrictBody):
    """What can be changed of an account."""

    name: str | None = Field(max_length=200, description="As others see it; null or blank for none.")


class PasswordChange(StrictBody):
    """A new password, with the current one of who has one."""

    current: SecretStr | None = Field(None, max_length=2000)
    password: SecretStr = Field(max_length=2000, description="10 to 1,024 characters.")


class SessionView(BaseModel):
    """A browser that is signed in."""

    id: str
    created_at: str | None
    last_used_at: str | None
    expires_at: str | None
    ip: str | None
    user_agent: str | None
    is_current: bool


class SessionList(BaseModel):
    """Every browser of the caller, newest first."""

    sessions: list[SessionView]


class IdentityView(BaseModel):
    """An account at an identity provider that signs the caller in."""

    id: str
    issuer: str
    connected_at: str | None


class IdentityList(BaseModel):
    """Every connected identity of the caller, oldest first."""

    identities: list[IdentityView]


@router.get("")
async def show_account(services: ServicesDep, actor: Reader) -> AccountView:
    """Who the caller is."""
    return _shown(await services.database.reading(lambda work: UserRepository(work).get(actor.user_id)))


@router.patch("")
async def change_account(services: ServicesDep, actor: Writer, wanted: AccountChange) -> AccountView:
    """Changes the name that others see."""

    def change(work: UnitOfWork) -> User:
        rename_person(work, actor, wanted.name)
        return UserRepository(work).get(actor.user_id)

    return _shown(await services.database.writing(change))


@router.post("/password", status_code=204)
async def send_password(services: ServicesDep, actor: Writer, wanted: PasswordChange) -> None:
    """Changes the password and signs the caller's other browsers out."""
    current = wanted.current.get_secret_value() if wanted.current else ""
    await replace_password(services, actor, current, wanted.password.get_secret_value())


@router.get("/sessions")
async def list_sessions(
    services: ServicesDep, actor: Annotated[Actor, allowed_caller(Action.SESSIONS_READ)]
) -> SessionList:
    """Where the caller is signed in."""
    found = await services.database.reading(lambda work: SessionRepository(work).of_user(actor.user_id))
    return SessionList(
        sessions=[
            SessionView(
                id=one.id,
                created_at=wire_time(one.created_at),
                last_used_at=wire_time(one.last_used_at),
                expires_at=wire_time(one.expires_at),
                ip=one.ip,
                user_agent=one.user_agent,
                is_current=one.id == actor.session_id,
            )
            for one in found
        ]
    )


@router.delete("/sessions", status_code=204)
async def close_other_sessions(services: ServicesDep, actor: Writer) -> None:
    """Signs every browser out but the one that asks."""
    await services.database.writing(lambda work: close_others(work, actor))


@router.delete("/sessions/{session_id}", status_code=204)
async def close_session(services: ServicesDep, actor: Writer, session_id: Segment) -> None:
    """Signs one browser out."""

    def close(work: UnitOfWork) -> None:
        if not SessionRepository(work).close(actor.user_id, session_id):
            raise MissingError("You have no such session; it may be over already.", code="SESSION_NOT_FOUND")
        AuditRepository(work).record(None, actor, "session.close", "session", session_id, {})

    await services.database.writing(close)


def close_others(work: UnitOfWork, actor: Actor) -> None:
    """Signs every browser of the caller out but the one at hand; tokens go on."""
    closed = SessionRepository(work).close_all(actor.user_id, except_id=actor.session_id)
    AuditRepository(work).record(None, actor, "session.close_others", "user", actor.user_id, {"sessions": closed})


@router.get("/identities")
async def list_identities(services: ServicesDep, actor: Reader) -> IdentityList:
    """Which identity provider's accounts sign the caller in; they are connected on the account page."""
    found = await services.database.reading(lambda work: UserRepository(work).identities(actor.user_id))
    views = [IdentityView(id=one.id, issuer=one.issuer, connected_at=wire_time(one.created_at)) for one in found]
    return IdentityList(identities=views)


@router.delete("/identities/{identity_id}", status_code=204)
async def remove_identity(services: ServicesDep, actor: Writer, identity_id: Segment) -> None:
    """Disconnects one, unless it is the caller's only way to sign in."""
    issuer = services.settings.oidc_issuer
    await services.database.writing(lambda work: disconnect_identity(work, actor, identity_id, usable_issuer=issuer))


def rename_person(work: UnitOfWork, actor: Actor, name: str | None) -> None:
    """Gives the caller another name."""
    name = check_person_name(name)
    UserRepository(work).set_name(actor.user_id, name)
    AuditRepository(work).record(None, actor, "user.rename", "user", actor.user_id, {"name": name})


async def replace_password(services: Services, actor: Actor, current: str, password: str) -> None:
    """Changes the caller's password, of those who have one only with it.

    Raises:
        InvalidRequestError: `current` is not the password, or the new one is too short or long.
        TooManyRequestsError: More than 10 attempts in 15 minutes.
    """
    key = f"password-change:{actor.user_id}"
    if (
        await services.database.writing(lambda work: ThrottleRepository(work).hit(key, _WINDOW_S), durable=False)
        > _TRIES
    ):
        message = "Too many attempts to change the password; wait 15 minutes."
        raise TooManyRequestsError(message, headers={"Retry-After": str(_WINDOW_S)})

    stored = (await services.database.reading(lambda work: UserRepository(work).get(actor.user_id))).password_hash
    if stored is not None and not await matches_in_thread(stored, current):
        raise InvalidRequestError("This is not your current password.", field="current", code="PASSWORD_WRONG")
    hashed = await hash_in_thread(password)
    await services.database.writing(lambda work: change_password(work, actor, hashed))


def _shown(user: User) -> AccountView:
    return AccountView(
        id=user.id,
        email=user.email,
        name=user.name,
        is_administrator=user.is_administrator,
        has_password=user.password_hash is not None,
        created_at=wire_time(user.created_at),
    )
