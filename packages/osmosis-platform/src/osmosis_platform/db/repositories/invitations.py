"""Invitations as rows: by workspace for those who invite, by the hash of their link for those who come."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.tables.identity import invitations, workspaces
from osmosis_platform.domain.permissions import Role
from osmosis_platform.ids import new_id


@dataclass(frozen=True, slots=True)
class Invitation:
    """A link that lets one person in.

    Attributes:
        email: The only person it is for; None for whoever has the link.
    """

    id: str
    workspace_id: str
    email: str | None
    role: Role
    created_by: str
    created_at: datetime
    expires_at: datetime
    accepted_at: datetime | None
    revoked_at: datetime | None


COLUMNS = [invitations.c[name] for name in Invitation.__dataclass_fields__]


class InvitationRepository:
    """Invitations of one workspace."""

    def __init__(self, work: UnitOfWork) -> None:
        self._work = work

    def add(
        self, workspace_id: str, sha256: str, *, role: Role, email: str | None, created_by: str, expires_at: datetime
    ) -> Invitation:
        """Adds an invitation under the hash of its link."""
        now = self._work.clock()
        invitation = Invitation(new_id("in"), workspace_id, email, role, created_by, now, expires_at, None, None)
        values = {column.name: getattr(invitation, column.name) for column in COLUMNS}
        self._work.execute(sa.insert(invitations).values(**values | {"sha256": sha256, "role": str(role)}))
        return invitation

    def open(self, workspace_id: str) -> list[Invitation]:
        """Invitations somebody may still accept, newest first."""
        query = sa.select(*COLUMNS).where(
            invitations.c.workspace_id == workspace_id,
            invitations.c.accepted_at.is_(None),
            invitations.c.revoked_at.is_(None),
            invitations.c.expires_at > self._work.clock(),
        )
        rows = self._work.execute(query.order_by(invitations.c.id.desc())).mappings()
        return [_invitation(row) for row in rows]

    def revoke(self, workspace_id: str, invitation_id: str) -> bool:
        """Ends an invitation; False if there is none that is open."""
        return self._close(workspace_id, invitation_id, revoked_at=self._work.clock())

    def accept(self, workspace_id: str, invitation_id: str, user_id: str) -> bool:
        """Uses an invitation up: true for exactly one of those who try."""
        return self._close(workspace_id, invitation_id, accepted_at=self._work.clock(), accepted_by=user_id)

    def _close(self, workspace_id: str, invitation_id: str, **values: object) -> bool:
        statement = sa.update(invitations).where(
            invitations.c.workspace_id == workspace_id,
            invitations.c.id == invitation_id,
            invitations.c.accepted_at.is_(None),
            invitations.c.revoked_at.is_(None),
        )
        return self._work.execute(statement.values(**values)).rowcount == 1


class InvitationLinkRepository:
    """Every invitation, found by who holds its link."""

    GLOBAL = "whoever comes with a link is no member yet"

    def __init__(self, work: UnitOfWork) -> None:
        self._work = work

    def find(self, sha256: str) -> tuple[Invitation, str] | None:
        """The invitation of a link's hash, in whatever state, and the name of its workspace, unless that is deleted."""
        query = (
            sa.select(*COLUMNS, workspaces.c.name.label("workspace_name"))
            .join(workspaces, workspaces.c.id == invitations.c.workspace_id)
            .where(invitations.c.sha256 == sha256, workspaces.c.deleted_at.is_(None))
        )
        row = self._work.execute(query).mappings().one_or_none()
        return None if row is None else (_invitation(row), row["workspace_name"])


def _invitation(row: sa.RowMapping) -> Invitation:
    facts: dict[str, Any] = {name: row[name] for name in Invitation.__dataclass_fields__}
    facts["role"] = Role(row["role"])
    return Invitation(**facts)
