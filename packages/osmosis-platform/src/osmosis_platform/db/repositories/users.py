"""People as rows. How passwords are hashed and checked is in identity.passwords."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

import sqlalchemy as sa

from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.inserts import insert_new
from osmosis_platform.db.tables.identity import oidc_identities, users
from osmosis_platform.errors import MissingError, TakenError
from osmosis_platform.ids import new_id


@dataclass(frozen=True, slots=True)
class User:
    """A person who can sign in.

    Attributes:
        email: Lower-case.
        password_hash: argon2id; None for people who sign in through an identity provider only.
        disabled_at: Since when every credential of theirs is refused.
    """

    id: str
    email: str
    name: str | None
    password_hash: str | None = field(repr=False)
    is_administrator: bool
    created_at: datetime
    disabled_at: datetime | None


@dataclass(frozen=True, slots=True)
class LinkedIdentity:
    """An account at an identity provider that leads to a person here."""

    id: str
    issuer: str
    subject: str
    created_at: datetime


COLUMNS = [users.c[name] for name in User.__dataclass_fields__]


class UserRepository:
    """Every user of the platform."""

    GLOBAL = "people exist outside of workspaces"

    def __init__(self, work: UnitOfWork) -> None:
        self._work = work

    def add(self, email: str, *, name: str | None, password_hash: str | None, is_administrator: bool) -> User:
        """Adds a person; `email` must be lower-case already.

        Raises:
            TakenError: Somebody has this e-mail address.
        """
        user = User(new_id("us"), email, name, password_hash, is_administrator, self._work.clock(), None)
        values = {column.name: getattr(user, column.name) for column in COLUMNS}
        if not insert_new(self._work, users, values):
            raise TakenError(f"There is a user {email} already; sign in, or choose another address.", field="email")
        return user

    def find(self, user_id: str) -> User | None:
        """The person of an id."""
        return self._one(users.c.id == user_id)

    def get(self, user_id: str) -> User:
        """The person of an id.

        Raises:
            MissingError: There is none.
        """
        user = self.find(user_id)
        if user is None:
            raise MissingError(f"There is no user {user_id}.")
        return user

    def by_email(self, email: str) -> User | None:
        """The person of a lower-case e-mail address."""
        return self._one(users.c.email == email)

    def by_identity(self, issuer: str, subject: str) -> User | None:
        """The person an identity provider calls `subject`."""
        mine = sa.select(oidc_identities.c.user_id).where(
            oidc_identities.c.issuer == issuer, oidc_identities.c.subject == subject
        )
        return self._one(users.c.id.in_(mine))

    def link_identity(self, user_id: str, issuer: str, subject: str) -> None:
        """Remembers how an identity provider calls a person; a second time changes nothing."""
        values = {"issuer": issuer, "subject": subject, "user_id": user_id, "created_at": self._work.clock()}
        insert_new(self._work, oidc_identities, {"id": new_id("oi"), **values})

    def identities(self, user_id: str) -> list[LinkedIdentity]:
        """What identity providers a person signs in with, oldest first."""
        names = LinkedIdentity.__dataclass_fields__
        query = sa.select(*(oidc_identities.c[name] for name in names)).where(oidc_identities.c.user_id == user_id)
        rows = self._work.execute(query.order_by(oidc_identities.c.created_at, oidc_identities.c.id))
        return [LinkedIdentity(*row) for row in rows]

    def unlink_identity(self, user_id: str, identity_id: str) -> bool:
        """Forgets how an identity provider calls a person; False if it was not known."""
        mine = (oidc_identities.c.user_id == user_id, oidc_identities.c.id == identity_id)
        return self._work.execute(sa.delete(oidc_identities).where(*mine)).rowcount == 1

    def lock(self, user_id: str) -> None:
        """Lets others who lock this person wait until this transaction ends (SQLite has one writer anyway)."""
        self._work.execute(sa.select(users.c.id).where(users.c.id == user_id).with_for_update())

    def all(self) -> list[User]:
        """Everybody, by e-mail address."""
        rows = self._work.execute(sa.select(*COLUMNS).order_by(users.c.email)).mappings()
        return [User(**row) for row in rows]

    def count(self) -> int:
        """How many people there are."""
        return self._work.execute(sa.select(sa.func.count()).select_from(users)).scalar_one()

    def set_password(self, user_id: str, password_hash: str) -> None:
        """Replaces the password's hash."""
        self._set(user_id, password_hash=password_hash)

    def set_name(self, user_id: str, name: str | None) -> None:
        """Replaces the name shown to others."""
        self._set(user_id, name=name)

    def set_administrator(self, user_id: str, is_administrator: bool) -> None:
        """Gives, or takes, the administration of the whole platform."""
        self._set(user_id, is_administrator=is_administrator)

    def set_disabled(self, user_id: str, disabled: bool) -> None:
        """Refuses, or accepts again, every credential of a person."""
        self._set(user_id, disabled_at=self._work.clock() if disabled else None)

    def _set(self, user_id: str, **values: object) -> None:
        self._work.execute(sa.update(users).where(users.c.id == user_id).values(**values))

    def _one(self, condition: sa.ColumnElement[bool]) -> User | None:
        row = self._work.execute(sa.select(*COLUMNS).where(condition)).mappings().one_or_none()
        return None if row is None else User(**row)
