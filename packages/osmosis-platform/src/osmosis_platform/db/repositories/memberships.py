"""Who is a member of a workspace, and as what."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.inserts import insert_new
from osmosis_platform.db.tables.identity import memberships, users
from osmosis_platform.domain.permissions import Role


@dataclass(frozen=True, slots=True)
class Member:
    """A person in a workspace."""

    user_id: str
    email: str
    name: str | None
    role: Role
    joined_at: datetime


class MembershipRepository:
    """Members of one workspace."""

    def __init__(self, work: UnitOfWork) -> None:
        self._work = work

    def add(self, workspace_id: str, user_id: str, role: Role) -> bool:
        """Lets a person in; False if they are a member already, whose role stays."""
        values = {"workspace_id": workspace_id, "user_id": user_id, "role": str(role), "created_at": self._work.clock()}
        return insert_new(self._work, memberships, values)

    def find(self, workspace_id: str, user_id: str) -> Member | None:
        """One member."""
        found = self._select(workspace_id, memberships.c.user_id == user_id)
        return found[0] if found else None

    def all(self, workspace_id: str) -> list[Member]:
        """Every member, in the order they joined."""
        return self._select(workspace_id)

    def page(self, workspace_id: str, *, limit: int, offset: int) -> tuple[list[Member], int]:
        """One page, in the order they joined, and how many there are in all."""
        return self._select(workspace_id, limit=limit, offset=offset), self.count(workspace_id)

    def count(self, workspace_id: str) -> int:
        """How many members there are."""
        query = sa.select(sa.func.count()).select_from(memberships).where(memberships.c.workspace_id == workspace_id)
        return self._work.execute(query).scalar_one()

    def owners(self, workspace_id: str) -> int:
        """How many owners there are who can still sign in."""
        query = (
            sa.select(sa.func.count())
            .select_from(memberships.join(users, users.c.id == memberships.c.user_id))
            .where(
                memberships.c.workspace_id == workspace_id,
                memberships.c.role == str(Role.OWNER),
                users.c.disabled_at.is_(None),
            )
        )
        return self._work.execute(query).scalar_one()

    def set_role(self, workspace_id: str, user_id: str, role: Role) -> None:
        """Gives a member another role."""
        self._work.execute(sa.update(memberships).where(*self._key(workspace_id, user_id)).values(role=str(role)))

    def remove(self, workspace_id: str, user_id: str) -> bool:
        """Lets a member go; False if there is none."""
        return self._work.execute(sa.delete(memberships).where(*self._key(workspace_id, user_id))).rowcount == 1

    @staticmethod
    def _key(workspace_id: str, user_id: str) -> tuple[sa.ColumnElement[bool], sa.ColumnElement[bool]]:
        return memberships.c.workspace_id == workspace_id, memberships.c.user_id == user_id

    def _select(
        self, workspace_id: str, *conditions: sa.ColumnElement[bool], limit: int | None = None, offset: int = 0
    ) -> list[Member]:
        query = (
            sa.select(
                memberships.c.user_id,
                users.c.email,
                users.c.name,
                memberships.c.role,
                memberships.c.created_at.label("joined_at"),
            )
            .join(users, users.c.id == memberships.c.user_id)
            .where(memberships.c.workspace_id == workspace_id, *conditions)
            .order_by(memberships.c.created_at, memberships.c.user_id)
            .limit(limit)
            .offset(offset)
        )
        rows: list[dict[str, Any]] = [dict(row) for row in self._work.execute(query).mappings()]
        for row in rows:
            row["role"] = Role(row["role"])
        return [Member(**row) for row in rows]
