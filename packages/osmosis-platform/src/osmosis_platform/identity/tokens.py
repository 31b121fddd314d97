"""Access tokens: how they are made, and whether one counts. Their text is secret_tokens', their rows the repository's."""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.tokens import Token, TokenRepository
from osmosis_platform.db.repositories.users import User
from osmosis_platform.domain.actor import Actor
from osmosis_platform.domain.permissions import ALL_SCOPES, SCOPES
from osmosis_platform.errors import InvalidRequestError, UnauthorizedError
from osmosis_platform.identity.secret_tokens import digest, new_secret, parse_secret
from osmosis_platform.ids import new_id

type TokenKind = Literal["personal", "device", "run"]

_WORDS: dict[TokenKind, str] = {"personal": "pat", "device": "dev", "run": "run"}
_NAME_LIMIT = 100
USED_AFTER = timedelta(minutes=1)
"""How old the note of a token's or session's last use may get."""


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A new token; `secret` is shown once and known nowhere else."""

    id: str
    secret: str = field(repr=False)
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class Authenticated:
    """Whose credential it was, and whether its last use should be noted again."""

    actor: Actor
    note_use: bool


def parse_token(text: str) -> str | None:
    """The id in a token's text, or None when it is no token of ours or has a typing error."""
    name = parse_secret(text)
    if name is None or name.row is None or name.kind not in _WORDS.values():
        return None
    return f"to_{name.row}"


def check_scopes(scopes: Iterable[str]) -> list[str]:
    """The scopes, sorted and each known; `all` alone says everything.

    Raises:
        InvalidRequestError: One is unknown, or there is none.
    """
    chosen = sorted(set(scopes))
    unknown = [scope for scope in chosen if scope not in SCOPES]
    if unknown or not chosen:
        what = f"Unknown token scope {unknown[0][:60]!r}." if unknown else "A token needs at least one scope."
        raise InvalidRequestError(f"{what} Choose from: {', '.join(sorted(SCOPES))}.", field="scopes")
    return [ALL_SCOPES] if ALL_SCOPES in chosen else chosen


def issue_token(
    work: UnitOfWork,
    user_id: str,
    *,
    kind: TokenKind,
    name: str,
    scopes: Iterable[str],
    expires_at: datetime | None,
    workspace_id: str | None = None,
) -> IssuedToken:
    """Makes a token of a person; the caller writes the audit entry.

    Args:
        work: The transaction.
        user_id: Whose token it is.
        kind: `personal` from a page or an administrator, `device` from a login, `run` for a run's own calls.
        name: What the owner knows it by, up to 100 characters.
        scopes: What it may do; `["all"]` for everything the person may.
        expires_at: When it ends; None for never.
        workspace_id: The one workspace it is for; None for all of the person's.

    Raises:
        InvalidRequestError: A scope is unknown, the name is empty or long, or the end is in the past.
    """
    name = " ".join(name.split())
    if not name or len(name) > _NAME_LIMIT or not name.isprintable():
        raise InvalidRequestError(f"A token's name has 1 to {_NAME_LIMIT} printable characters.", field="name")
    now = work.clock()
    if expires_at is not None and expires_at <= now:
        raise InvalidRequestError("The token would be over already; choose a later end.", field="expires_at")
    token_id = new_id("to")
    secret = new_secret(_WORDS[kind], token_id.removeprefix("to_"))
    row = Token(
        id=token_id,
        kind=kind,
        user_id=user_id,
        workspace_id=workspace_id,
        name=name,
        sha256=digest(secret),
        scopes=check_scopes(scopes) if kind != "run" else sorted(set(scopes)),
        created_at=now,
        expires_at=expires_at,
        last_used_at=None,
        revoked_at=None,
    )
    TokenRepository(work).add(row)
    return IssuedToken(token_id, secret, expires_at)


def authenticate_token(
    work: UnitOfWork, text: str, *, ip: str | None = None, request_id: str | None = None
) -> Authenticated:
    """Finds whose token a text is.

    Raises:
        UnauthorizedError: `TOKEN_INVALID`, `TOKEN_REVOKED` or `TOKEN_EXPIRED`.
    """
    token_id = parse_token(text)
    found = None if token_id is None else TokenRepository(work).find(token_id)
    if found is None or not hmac.compare_digest(found[0].sha256, digest(text)):
        raise UnauthorizedError(
            "This access token is not one of this platform. Sign in again with `osmosis auth login`, "
            "or check the token and the platform URL.",
            code="TOKEN_INVALID",
        )
    token, user = found
    now = work.clock()
    if token.revoked_at is not None or user.disabled_at is not None:
        message = "This access token was revoked. Sign in again with `osmosis auth login`."
        raise UnauthorizedError(message, code="TOKEN_REVOKED")
    if token.expires_at is not None and token.expires_at <= now:
        message = "This access token is over. Sign in again with `osmosis auth login`, or make a new token."
        raise UnauthorizedError(message, code="TOKEN_EXPIRED")
    actor = Actor(
        user_id=user.id,
        email=user.email,
        name=user.name,
        is_administrator=user.is_administrator,
        token_id=token.id,
        scopes=frozenset(token.scopes),
        only_workspace_id=token.workspace_id,
        expires_at_us=None if token.expires_at is None else round(token.expires_at.timestamp() * 1_000_000),
        ip=ip,
        request_id=request_id,
    )
    return Authenticated(actor, is_stale(token.last_used_at, now))


def is_stale(last_used_at: datetime | None, now: datetime) -> bool:
    """Whether the note of the last use should be written again."""
    return last_used_at is None or now - last_used_at >= USED_AFTER or last_used_at > now


def actor_of(user: User, *, ip: str | None = None, request_id: str | None = None) -> Actor:
    """A person without a credential at hand: sign-up, invitations, administration on the machine itself."""
    return Actor(user.id, user.email, user.name, user.is_administrator, ip=ip, request_id=request_id)
