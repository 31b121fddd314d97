"""Access tokens as rows: only their hash is here. How they look and are made is in identity.tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

import sqlalchemy as sa

from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.users import COLUMNS as USER_COLUMNS
from osmosis_platform.db.repositories.users import User
from osmosis_platform.db.tables.identity import api_tokens, users


@dataclass(frozen=True, slots=True)
class Token:
    """An access token.

    Attributes:
        kind: `personal`, `device` or `run`.
        workspace_id: The one workspace it is for; None for all of its user.
        sha256: Of the whole secret text, in hex.
        scopes: What it may do.
        last_used_at: To the minute.
    """

    id: str
    kind: str
    user_id: str
    workspace_id: str | None
    name: str
    sha256: str = field(repr=False)
    scopes: Sequence[str]
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None


COLUMNS = [api_tokens.c[name] for name in Token.__dataclass_fields__]

# Built once, since every request asks it: to build it takes longer than to run it.
_FIND = (
    sa.select(*COLUMNS, *(column.label(f"user__{column.name}") for column in USER_COLUMNS))
    .join(users, users.c.id == api_tokens.c.user_id)
    .where(api_tokens.c.id == sa.bindparam("token_id"))
)


class TokenRepository:
    """Every access token."""

    GLOBAL = "a token is found before anybody knows whose it is, and belongs to a person"

    def __init__(self, work: UnitOfWork) -> None:
        self._work = work

    def add(self, token: Token) -> None:
        """Adds a token."""
        values = {column.name: getattr(token, column.name) for column in COLUMNS}
        self._work.execute(sa.insert(api_tokens).values(**values | {"scopes": list(token.scopes)}))

    def find(self, token_id: str) -> tuple[Token, User] | None:
        """A token and whose it is, expired or revoked or not."""
        row = self._work.execute(_FIND, {"token_id": token_id}).one_or_none()
        if row is None:
            return None
        return Token(*row[: len(COLUMNS)]), User(*row[len(COLUMNS) :])

    def of_user(self, user_id: str, *, only_workspace_id: str | None = None) -> list[Token]:
        """A person's tokens that are not revoked, newest first; run tokens are not shown.

        Args:
            user_id: Whose.
            only_workspace_id: Those for this workspace alone; None for all.
        """
        query = sa.select(*COLUMNS).where(
            *_of(user_id, only_workspace_id), api_tokens.c.revoked_at.is_(None), api_tokens.c.kind != "run"
        )
        return [Token(**row) for row in self._work.execute(query.order_by(api_tokens.c.id.desc())).mappings()]

    def touch(self, token_id: str) -> None:
        """Notes that a token is in use now."""
        statement = sa.update(api_tokens).where(api_tokens.c.id == token_id)
        self._work.execute(statement.values(last_used_at=self._work.clock()))

    def revoke(self, user_id: str, token_id: str, *, only_workspace_id: str | None = None) -> bool:
        """Ends a person's token; False if there is none that counts, or none for that workspace alone."""
        return self._revoke(*_of(user_id, only_workspace_id), api_tokens.c.id == token_id) == 1

    def revoke_all(self, user_id: str) -> int:
        """Ends every token of a person."""
        return self._revoke(api_tokens.c.user_id == user_id)

    def revoke_restricted(self, workspace_id: str, user_id: str | None = None) -> int:
        """Ends the tokens that are for one workspace only, of one person or of everybody."""
        conditions = [api_tokens.c.workspace_id == workspace_id]
        if user_id is not None:
            conditions.append(api_tokens.c.user_id == user_id)
        return self._revoke(*conditions)

    def _revoke(self, *conditions: sa.ColumnElement[bool]) -> int:
        statement = sa.update(api_tokens).where(*conditions, api_tokens.c.revoked_at.is_(None))
        return self._work.execute(statement.values(revoked_at=self._work.clock())).rowcount


def _of(user_id: str, only_workspace_id: str | None) -> list[sa.ColumnElement[bool]]:
    mine = [api_tokens.c.user_id == user_id]
    if only_workspace_id is not None:
        mine.append(api_tokens.c.workspace_id == only_workspace_id)
    return mine
