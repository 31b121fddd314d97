"""Browser sessions as rows, found by the hash of their cookie."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.users import COLUMNS as USER_COLUMNS
from osmosis_platform.db.repositories.users import User
from osmosis_platform.db.tables.identity import sessions, users
from osmosis_platform.ids import new_id


@dataclass(frozen=True, slots=True)
class Session:
    """A browser that is signed in."""

    id: str
    user_id: str
    created_at: datetime
    expires_at: datetime
    last_used_at: datetime | None
    ip: str | None
    user_agent: str | None


COLUMNS = [sessions.c[name] for name in Session.__dataclass_fields__]


class SessionRepository:
    """Every browser session."""

    GLOBAL = "sessions belong to people, not to workspaces"

    def __init__(self, work: UnitOfWork) -> None:
        self._work = work

    def add(
        self, user_id: str, sha256: str, expires_at: datetime, *, ip: str | None, user_agent: str | None
    ) -> Session:
        """Adds a session under the hash of its cookie."""
        now = self._work.clock()
        session = Session(new_id("se"), user_id, now, expires_at, now, ip, user_agent)
        values = {column.name: getattr(session, column.name) for column in COLUMNS} | {"sha256": sha256}
        self._work.execute(sa.insert(sessions).values(**values))
        return session

    def by_sha256(self, sha256: str) -> tuple[Session, User] | None:
        """The session of a cookie's hash and whose it is, expired or not."""
        labelled = [column.label(f"user__{column.name}") for column in USER_COLUMNS]
        query = sa.select(*COLUMNS, *labelled).join(users, users.c.id == sessions.c.user_id)
        row = self._work.execute(query.where(sessions.c.sha256 == sha256)).mappings().one_or_none()
        if row is None:
            return None
        user = User(**{column.name: row[f"user__{column.name}"] for column in USER_COLUMNS})
        return Session(**{column.name: row[column.name] for column in COLUMNS}), user

    def of_user(self, user_id: str) -> list[Session]:
        """Where a person is signed in, newest first."""
        query = sa.select(*COLUMNS).where(sessions.c.user_id == user_id, sessions.c.expires_at > self._work.clock())
        return [Session(**row) for row in self._work.execute(query.order_by(sessions.c.id.desc())).mappings()]

    def touch(self, session_id: str) -> None:
        """Notes that a session is in use now."""
        statement = sa.update(sessions).where(sessions.c.id == session_id)
        self._work.execute(statement.values(last_used_at=self._work.clock()))

    def close(self, user_id: str, session_id: str) -> bool:
        """Signs one browser of a person out; False if there is no such session."""
        mine = (sessions.c.user_id == user_id, sessions.c.id == session_id)
        return self._work.execute(sa.delete(sessions).where(*mine)).rowcount == 1

    def close_all(self, user_id: str, *, except_id: str | None = None) -> int:
        """Signs every browser of a person out, but perhaps the one at hand."""
        statement = sa.delete(sessions).where(sessions.c.user_id == user_id)
        if except_id is not None:
            statement = statement.where(sessions.c.id != except_id)
        return self._work.execute(statement).rowcount

    def drop_expired(self) -> int:
        """Forgets sessions that are over."""
        return self._work.execute(sa.delete(sessions).where(sessions.c.expires_at <= self._work.clock())).rowcount
