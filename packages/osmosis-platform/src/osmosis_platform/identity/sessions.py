"""Browser sessions: an opaque cookie of 256 bits, of which only the hash is stored."""

from __future__ import annotations

import hmac
import re
import secrets
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256

from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.sessions import SessionRepository
from osmosis_platform.domain.actor import Actor
from osmosis_platform.identity.secret_tokens import digest
from osmosis_platform.identity.tokens import Authenticated, is_stale

_COOKIE = re.compile(r"[A-Za-z0-9_-]{43}")
_AGENT_LIMIT = 300


@dataclass(frozen=True, slots=True)
class OpenedSession:
    """A new session; `secret` is the cookie's value."""

    id: str
    secret: str = field(repr=False)
    expires_at: datetime


def open_session(
    work: UnitOfWork, user_id: str, *, days: int, ip: str | None = None, user_agent: str | None = None
) -> OpenedSession:
    """Signs a browser in; the caller sets the cookie and writes the audit entry."""
    secret = secrets.token_urlsafe(32)
    expires_at = work.clock() + timedelta(days=days)
    agent = None if user_agent is None else "".join(c for c in user_agent if c.isprintable())[:_AGENT_LIMIT]
    session = SessionRepository(work).add(user_id, digest(secret), expires_at, ip=ip, user_agent=agent)
    return OpenedSession(session.id, secret, expires_at)


def authenticate_session(
    work: UnitOfWork, cookie: str, *, ip: str | None = None, request_id: str | None = None
) -> Authenticated | None:
    """Finds whose cookie it is; None when it is unknown or over, or the person is disabled."""
    if not _COOKIE.fullmatch(cookie):
        return None
    found = SessionRepository(work).by_sha256(digest(cookie))
    if found is None:
        return None
    session, user = found
    now = work.clock()
    if session.expires_at <= now or user.disabled_at is not None:
        return None
    actor = Actor(
        user_id=user.id,
        email=user.email,
        name=user.name,
        is_administrator=user.is_administrator,
        session_id=session.id,
        expires_at_us=round(session.expires_at.timestamp() * 1_000_000),
        ip=ip,
        request_id=request_id,
    )
    return Authenticated(actor, is_stale(session.last_used_at, now))


def close_session(work: UnitOfWork, actor: Actor) -> bool:
    """Signs the browser at hand out; False if it was already."""
    return actor.session_id is not None and SessionRepository(work).close(actor.user_id, actor.session_id)


def csrf_token(cookie: str) -> str:
    """What a write by a browser must repeat in a header or form field: only who holds the cookie can make it."""
    return sha256(b"osmosis csrf\0" + cookie.encode()).hexdigest()


def is_csrf_token(cookie: str, given: str | None) -> bool:
    """Whether a write by a browser came from our own page."""
    return given is not None and hmac.compare_digest(csrf_token(cookie).encode(), given.encode())
