"""Who asks: the person behind a request and what the credential at hand allows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Actor:
    """A signed-in person, by token or by session.

    Attributes:
        user_id: Whose credential it is.
        email: Lower-case.
        name: As the person wrote it, if ever.
        is_administrator: Of the whole platform.
        token_id: The token at hand; None for a browser session.
        session_id: The session at hand; None for a token.
        scopes: What the token may do: `all`, or names such as `datasets:read`; sessions have `all`.
        only_workspace_id: The one workspace the token is for, if it is restricted.
        expires_at_us: When the credential ends, microseconds since 1970; None for never.
        ip: Where the request came from.
        request_id: Of this request, for the audit log.
    """

    user_id: str
    email: str
    name: str | None = None
    is_administrator: bool = False
    token_id: str | None = None
    session_id: str | None = None
    scopes: frozenset[str] = frozenset({"all"})
    only_workspace_id: str | None = None
    expires_at_us: int | None = None
    ip: str | None = None
    request_id: str | None = None
