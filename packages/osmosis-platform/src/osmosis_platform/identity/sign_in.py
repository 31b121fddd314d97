"""Signing in with a password: attempts are counted per address and per network place before any password is tried."""

from __future__ import annotations

from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.audit import AuditRepository
from osmosis_platform.db.repositories.throttles import ThrottleRepository
from osmosis_platform.db.repositories.users import UserRepository
from osmosis_platform.errors import TooManyRequestsError, UnauthorizedError
from osmosis_platform.identity.passwords import matches_in_thread
from osmosis_platform.identity.secret_tokens import digest
from osmosis_platform.identity.sessions import OpenedSession, open_session
from osmosis_platform.identity.tokens import actor_of
from osmosis_platform.services import Services

WINDOW_S = 900
TOGETHER, PER_PLACE, PER_ADDRESS = 10, 50, 100
"""Attempts in the window: for one address from one place, from one place, for one address. The last is wide, so that
strangers cannot easily lock somebody out."""


async def sign_in(
    services: Services, email: str, password: str, *, ip: str | None = None, user_agent: str | None = None
) -> OpenedSession:
    """Opens a session for whoever knows the password.

    Raises:
        UnauthorizedError: `SIGN_IN_FAILED`; the same for an unknown address and a wrong password.
        TooManyRequestsError: `SIGN_IN_THROTTLED`: too many attempts within 15 minutes.
    """
    email = email.strip().lower()
    # A digest, so that what people type into the wrong field is stored nowhere.
    address = digest(email)
    together = f"password:{address}:{ip}"
    keys = {together: TOGETHER, f"password-from:{ip}": PER_PLACE, f"password-of:{address}": PER_ADDRESS}

    def count(work: UnitOfWork) -> bool:
        throttles = ThrottleRepository(work)
        return any([throttles.hit(key, WINDOW_S) > limit for key, limit in keys.items()])

    if await services.database.writing(count, durable=False):
        message = "Too many attempts to sign in; wait 15 minutes."
        raise TooManyRequestsError(message, code="SIGN_IN_THROTTLED", headers={"Retry-After": str(WINDOW_S)})
    user = await services.database.reading(lambda work: UserRepository(work).by_email(email))
    stored = None if user is None else user.password_hash
    matches = await matches_in_thread(stored, password)
    if user is None or not matches or user.disabled_at is not None:
        raise UnauthorizedError("The e-mail address or the password is wrong.", code="SIGN_IN_FAILED")

    def open_it(work: UnitOfWork) -> OpenedSession:
        ThrottleRepository(work).forget(together)
        opened = open_session(work, user.id, days=services.settings.session_days, ip=ip, user_agent=user_agent)
        AuditRepository(work).record(None, actor_of(user, ip=ip), "session.open", "session", opened.id, {})
        return opened

    return await services.database.writing(open_it)
