"""Device logins (RFC 8628 as the client speaks it): begun by a command line, decided in a browser, redeemed once."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.audit import AuditRepository
from osmosis_platform.db.repositories.device_logins import DeviceLogin, DeviceLoginRepository
from osmosis_platform.db.repositories.throttles import ThrottleRepository
from osmosis_platform.db.repositories.users import User, UserRepository
from osmosis_platform.domain.actor import Actor
from osmosis_platform.domain.permissions import ALL_SCOPES
from osmosis_platform.errors import MissingError, TooManyRequestsError, UnavailableError
from osmosis_platform.identity.secret_tokens import digest, new_secret, parse_secret
from osmosis_platform.identity.tokens import IssuedToken, actor_of, issue_token
from osmosis_platform.ids import new_id
from osmosis_platform.services import Services

EXPIRES_S = 600
INTERVAL_S = 5
ALPHABET = "BCDFGHJKLMNPQRSTVWXZ"
"""Consonants only (RFC 8628, 6.1): no words, no digits to take for letters, and case does not matter."""
USER_CODE_LENGTH = 8
WRONG_CODES = 5
WRONG_WINDOW_S = 60
_LONGEST_INTERVAL_S = 30
_EARLY_S = 1.0  # polls travel at different speeds
_NAME_LIMIT = 100
_KEPT = timedelta(hours=1)
_TRIES = 8

type Answer = Literal["authorization_pending", "slow_down", "expired_token", "access_denied"]


@dataclass(frozen=True, slots=True)
class BegunLogin:
    """What the device is told: the code it polls with and the code its user types."""

    device_code: str = field(repr=False)
    user_code: str
    expires_s: int = EXPIRES_S
    interval_s: int = INTERVAL_S


@dataclass(frozen=True, slots=True)
class RedeemedLogin:
    """A token for the device, and whose it is."""

    token: IssuedToken
    user: User


def new_user_code() -> str:
    """Eight random letters: 34 bits, which ten minutes and five wrong codes a minute and place make enough."""
    return "".join(secrets.choice(ALPHABET) for _ in range(USER_CODE_LENGTH))


def show_user_code(code: str) -> str:
    """As people read it: `WXZB-CDFG`."""
    return f"{code[:4]}-{code[4:]}"


def read_user_code(text: str) -> str | None:
    """The letters of what somebody typed, whatever the case, spaces and hyphens; None if it cannot be a code."""
    code = "".join(text.split()).replace("-", "").upper()
    return code if len(code) == USER_CODE_LENGTH and set(code) <= set(ALPHABET) else None


def begin_login(work: UnitOfWork, device_name: str, *, ip: str | None = None) -> BegunLogin:
    """Begins a login that somebody decides within ten minutes.

    Args:
        work: The transaction.
        device_name: As the device calls itself; shown to who decides, cut to 100 printable characters.
        ip: Where it is; shown too.
    """
    repository = DeviceLoginRepository(work)
    repository.drop_older(_KEPT)
    name = " ".join("".join(c if c.isprintable() else " " for c in device_name).split())[:_NAME_LIMIT]
    now = work.clock()
    device_code = new_secret("dlc")
    for _ in range(_TRIES):
        login = DeviceLogin(
            id=new_id("dl"),
            user_code=new_user_code(),
            device_name=name or "unnamed device",
            ip=ip,
            status="pending",
            user_id=None,
            interval_s=INTERVAL_S,
            last_polled_at=None,
            created_at=now,
            expires_at=now + timedelta(seconds=EXPIRES_S),
        )
        if repository.add(login, digest(device_code)):
            return BegunLogin(device_code, show_user_code(login.user_code))
    raise UnavailableError("No free user code was found; try again.")


def poll_login(work: UnitOfWork, device_code: str, *, token_days: int, ip: str | None = None) -> RedeemedLogin | Answer:
    """Answers a device that waits.

    An unknown code and one that was used answer `expired_token`, so a copied code gives nothing away. Too early a poll
    answers `slow_down`, and the device must wait five seconds longer from then on.
    """
    repository = DeviceLoginRepository(work)
    name = parse_secret(device_code)
    login = repository.by_device_code(digest(device_code)) if name is not None and name.kind == "dlc" else None
    now = work.clock()
    if login is None or login.status == "redeemed" or login.expires_at <= now or login.created_at > now:
        return "expired_token"
    if login.status == "denied":
        return "access_denied"
    if login.status == "pending":
        waited_s = None if login.last_polled_at is None else (now - login.last_polled_at).total_seconds()
        is_early = waited_s is not None and 0 <= waited_s < login.interval_s - _EARLY_S
        interval_s = min(login.interval_s + INTERVAL_S, _LONGEST_INTERVAL_S) if is_early else login.interval_s
        repository.polled(login.id, interval_s)
        return "slow_down" if is_early else "authorization_pending"
    assert login.user_id is not None
    user = UserRepository(work).get(login.user_id)
    if user.disabled_at is not None:
        return "access_denied"
    if not repository.redeem(login.id):
        return "expired_token"
    issued = issue_token(
        work,
        user.id,
        kind="device",
        name=login.device_name,
        scopes=[ALL_SCOPES],
        expires_at=now + timedelta(days=token_days),
    )
    facts = {"kind": "device", "name": login.device_name, "device_login": login.id}
    AuditRepository(work).record(None, actor_of(user, ip=ip), "token.create", "token", issued.id, facts)
    return RedeemedLogin(issued, user)


async def find_login(services: Services, typed: str, *, ip: str | None = None) -> DeviceLogin:
    """The pending login of a code that somebody typed, for the page that asks whether to let the device in.

    Raises:
        MissingError: `USER_CODE_INVALID`.
        TooManyRequestsError: `USER_CODE_THROTTLED`: five wrong codes within a minute from one place.
    """
    key = f"user-code:{ip}"
    code = read_user_code(typed)

    def look(work: UnitOfWork) -> tuple[DeviceLogin | None, bool]:
        throttles = ThrottleRepository(work)
        if throttles.count(key, WRONG_WINDOW_S) >= WRONG_CODES:
            return None, True
        login = None if code is None else DeviceLoginRepository(work).by_user_code(code)
        if login is None:
            throttles.hit(key, WRONG_WINDOW_S)  # committed although the caller is refused
        return login, False

    login, is_throttled = await services.database.writing(look, durable=False)
    if is_throttled:
        message = "Too many wrong codes; wait a minute."
        raise TooManyRequestsError(message, code="USER_CODE_THROTTLED", headers={"Retry-After": str(WRONG_WINDOW_S)})
    if login is None:
        message = (
            "No device waits with this code. Check it, or run `osmosis auth login` again: codes count ten minutes."
        )
        raise MissingError(message, code="USER_CODE_INVALID")
    return login


def decide_login(work: UnitOfWork, actor: Actor, login_id: str, *, approve: bool) -> None:
    """Lets a device in as the caller, or not.

    Raises:
        MissingError: `USER_CODE_INVALID`: it was decided, or is over.
    """
    if not DeviceLoginRepository(work).decide(login_id, actor.user_id, "approved" if approve else "denied"):
        message = "This login was decided already, or is over; run `osmosis auth login` again."
        raise MissingError(message, code="USER_CODE_INVALID")
    action = "device_login.approve" if approve else "device_login.deny"
    AuditRepository(work).record(None, actor, action, "device_login", login_id, {})
