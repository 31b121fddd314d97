"""Workspaces as rows, and which of them a person sees. What a name may be is in identity.names."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.inserts import insert, insert_new
from osmosis_platform.db.repositories.repositories import is_named
from osmosis_platform.db.tables.git import repositories
from osmosis_platform.db.tables.identity import former_workspace_names, memberships, quickstarts, workspaces
from osmosis_platform.db.types import UtcTime
from osmosis_platform.domain.permissions import Role
from osmosis_platform.errors import MissingError, TakenError
from osmosis_platform.ids import new_id


@dataclass(frozen=True, slots=True)
class Workspace:
    """A workspace that is not deleted."""

    id: str
    name: str
    timezone: str
    billing_ready: bool
    created_by: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class DeletedWorkspace:
    """A workspace that nobody sees any more, and whose things are still there."""

    id: str
    name: str
    deleted_at: datetime


@dataclass(frozen=True, slots=True)
class SeenWorkspace:
    """A workspace as one of its members sees it, with the repository it is connected to.

    Attributes:
        repository_url: Of a remote; None for a hosted one.
    """

    id: str
    name: str
    role: Role
    billing_ready: bool
    repository_id: str | None
    repository_full_name: str | None
    repository_url: str | None = None


COLUMNS = [workspaces.c[name] for name in Workspace.__dataclass_fields__]
_LIVE = workspaces.c.deleted_at.is_(None)


def _id_of_key(key: Any) -> sa.ScalarSelect[str]:
    now = sa.select(workspaces.c.id).where(workspaces.c.name_key == key)
    former = sa.select(former_workspace_names.c.workspace_id).where(former_workspace_names.c.name_key == key)
    return sa.select(sa.func.coalesce(now.scalar_subquery(), former.scalar_subquery())).scalar_subquery()


# Built once, since every request asks them: to build them takes longer than to run them.
_SEEN = (
    sa.select(
        workspaces.c.id,
        workspaces.c.name,
        memberships.c.role,
        workspaces.c.billing_ready,
        repositories.c.id.label("repository_id"),
        repositories.c.full_name.label("repository_full_name"),
        repositories.c.remote_url.label("repository_url"),
    )
    .join(memberships, memberships.c.workspace_id == workspaces.c.id)
    .outerjoin(
        repositories,
        sa.and_(repositories.c.workspace_id == workspaces.c.id, repositories.c.disconnected_at.is_(None)),
    )
    .where(memberships.c.user_id == sa.bindparam("user_id"), _LIVE)
    .order_by(workspaces.c.name_key)
)
_SEEN_NAMED = _SEEN.where(
    sa.or_(workspaces.c.id == _id_of_key(sa.bindparam("name_key")), workspaces.c.id == sa.bindparam("name"))
)


def _seen_of(row: sa.Row[Any]) -> SeenWorkspace:
    return SeenWorkspace(
        row.id,
        row.name,
        Role(row.role),
        row.billing_ready,
        row.repository_id,
        row.repository_full_name,
        row.repository_url,
    )


class WorkspaceRepository:
    """Every workspace; a person's view of them begins with the person."""

    GLOBAL = "this is where a workspace is found, by name, repository or member"

    def __init__(self, work: UnitOfWork) -> None:
        self._work = work

    def add(self, name: str, *, created_by: str, timezone: str = "UTC") -> Workspace:
        """Adds a workspace under a checked name.

        Raises:
            TakenError: The name is, or once was, another workspace's.
        """
        self._refuse_taken(name, None)
        workspace = Workspace(new_id("ws"), name, timezone, False, created_by, self._work.clock())
        values = {column.name: getattr(workspace, column.name) for column in COLUMNS} | {"name_key": name.lower()}
        if not insert_new(self._work, workspaces, values):
            raise _taken(name)
        return workspace

    def find(self, workspace_id: str) -> Workspace | None:
        """The workspace of an id, unless deleted."""
        query = sa.select(*COLUMNS).where(workspaces.c.id == workspace_id, _LIVE)
        row = self._work.execute(query).mappings().one_or_none()
        return None if row is None else Workspace(**row)

    def get(self, workspace_id: str) -> Workspace:
        """The workspace of an id.

        Raises:
            MissingError: There is none, or it is deleted.
        """
        workspace = self.find(workspace_id)
        if workspace is None:
            raise MissingError(f"There is no workspace {workspace_id}.")
        return workspace

    def by_name(self, name: str) -> Workspace | None:
        """The workspace of a name, or the one that had it before; case does not matter."""
        query = sa.select(*COLUMNS).where(workspaces.c.id == self._id_of(name), _LIVE)
        row = self._work.execute(query).mappings().one_or_none()
        return None if row is None else Workspace(**row)

    def all(self) -> list[Workspace]:
        """Every workspace, by name."""
        rows = self._work.execute(sa.select(*COLUMNS).where(_LIVE).order_by(workspaces.c.name_key)).mappings()
        return [Workspace(**row) for row in rows]

    def lock(self, workspace_id: str) -> None:
        """Lets others who lock it wait until this transaction ends (SQLite has one writer anyway).

        Rows that only refer to the workspace can be added meanwhile.
        """
        query = sa.select(workspaces.c.id).where(workspaces.c.id == workspace_id)
        self._work.execute(query.with_for_update(key_share=True))

    def seen_by(self, user_id: str) -> list[SeenWorkspace]:
        """Every workspace a person is a member of, by name."""
        return self._seen(user_id)

    def seen_by_named(self, user_id: str, name: str) -> SeenWorkspace | None:
        """The workspace of a name, a former name or an id, if the person is a member."""
        found = self._work.execute(_SEEN_NAMED, {"user_id": user_id, "name": name, "name_key": name.lower()}).first()
        return None if found is None else _seen_of(found)

    def seen_by_connected(self, user_id: str, identity: str) -> list[SeenWorkspace]:
        """A person's workspaces that are connected to a repository, named as `repositories.identity`."""
        return self._seen(user_id, is_named(identity))

    def rename(self, workspace_id: str, name: str) -> None:
        """Gives a checked name; the old one stays this workspace's.

        Raises:
            TakenError: The name is, or once was, another workspace's.
        """
        self._refuse_taken(name, workspace_id)
        old = self.get(workspace_id).name
        values = {"name_key": old.lower(), "workspace_id": workspace_id, "renamed_at": self._work.clock()}
        former = former_workspace_names
        self._work.execute(sa.delete(former).where(former.c.name_key == name.lower()))
        try:
            with self._work.connection.begin_nested():
                self._set(workspace_id, name=name, name_key=name.lower())
        except IntegrityError as error:
            raise _taken(name) from error
        if old.lower() != name.lower():
            insert_new(self._work, former, values)

    def set_timezone(self, workspace_id: str, timezone: str) -> None:
        """In which zone pages show dates."""
        self._set(workspace_id, timezone=timezone)

    def set_billing_ready(self, workspace_id: str, ready: bool) -> None:
        """An administrator's word that this workspace may spend, where billing is required."""
        self._set(workspace_id, billing_ready=ready)

    def delete(self, workspace_id: str) -> None:
        """Takes a workspace away from everybody; its rows stay until it is purged, and its names are free again."""
        self._set(workspace_id, deleted_at=self._work.clock(), name_key=None)
        former = former_workspace_names
        self._work.execute(sa.delete(former).where(former.c.workspace_id == workspace_id))

    def deleted(self) -> list[DeletedWorkspace]:
        """Every deleted workspace of which something may be left, the last deleted first."""
        gone = (workspaces.c.deleted_at.is_not(None), workspaces.c.purged_at.is_(None))
        columns = [workspaces.c[name] for name in DeletedWorkspace.__dataclass_fields__]
        rows = self._work.execute(sa.select(*columns).where(*gone).order_by(workspaces.c.deleted_at.desc()))
        return [DeletedWorkspace(*row) for row in rows]

    def recover(self, workspace_id: str, name: str) -> None:
        """Brings a deleted workspace back under a checked name.

        Raises:
            TakenError: The name is, or once was, another workspace's; or its removal for good has begun.
        """
        self._refuse_taken(name, workspace_id)
        values = {"name": name, "name_key": name.lower(), "deleted_at": None}
        if not self._set_of_deleted(workspace_id, workspaces.c.purge_began_at.is_(None), **values):
            message = f"The removal of {name} for good has begun; it cannot be brought back."
            raise TakenError(message, code="WORKSPACE_PURGED")

    def begin_purge(self, workspace_id: str) -> bool:
        """Notes that a deleted workspace is being removed for good; False if it was brought back or purged meanwhile."""
        began = sa.func.coalesce(workspaces.c.purge_began_at, sa.literal(self._work.clock(), UtcTime))
        return self._set_of_deleted(workspace_id, purge_began_at=began)

    def mark_purged(self, workspace_id: str) -> bool:
        """Notes that nothing of a deleted workspace is left; False if that was noted before."""
        return self._set_of_deleted(workspace_id, purged_at=self._work.clock())

    def _set_of_deleted(self, workspace_id: str, *conditions: sa.ColumnElement[bool], **values: object) -> bool:
        gone = (workspaces.c.id == workspace_id, workspaces.c.deleted_at.is_not(None), workspaces.c.purged_at.is_(None))
        return self._work.execute(sa.update(workspaces).where(*gone, *conditions).values(**values)).rowcount == 1

    def has_completed_quickstart(self, workspace_id: str, user_id: str) -> bool:
        """Whether a person went through the quickstart of a workspace."""
        mine = (quickstarts.c.workspace_id == workspace_id, quickstarts.c.user_id == user_id)
        return self._work.execute(sa.select(sa.literal(1)).select_from(quickstarts).where(*mine)).first() is not None

    def complete_quickstart(self, workspace_id: str, user_id: str, intent: str) -> None:
        """Notes what a person came for; again replaces the intent."""
        values = {"intent": intent, "completed_at": self._work.clock()}
        statement = insert(self._work, quickstarts).values(workspace_id=workspace_id, user_id=user_id, **values)
        keys = [quickstarts.c.workspace_id, quickstarts.c.user_id]
        self._work.execute(statement.on_conflict_do_update(index_elements=keys, set_=values))

    def _seen(self, user_id: str, *conditions: sa.ColumnElement[bool]) -> list[SeenWorkspace]:
        return [_seen_of(row) for row in self._work.execute(_SEEN.where(*conditions), {"user_id": user_id})]

    def _set(self, workspace_id: str, **values: object) -> None:
        self._work.execute(sa.update(workspaces).where(workspaces.c.id == workspace_id, _LIVE).values(**values))

    @staticmethod
    def _id_of(name: str) -> sa.ScalarSelect[str]:
        return _id_of_key(name.lower())

    def _refuse_taken(self, name: str, workspace_id: str | None) -> None:
        holder = self.by_name(name)
        if holder is not None and holder.id != workspace_id:
            raise _taken(name)


def _taken(name: str) -> TakenError:
    return TakenError(f"The workspace name {name} is taken; choose another.", field="name", code="NAME_TAKEN")
