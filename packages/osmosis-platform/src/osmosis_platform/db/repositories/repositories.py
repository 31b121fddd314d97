"""Repositories of workspaces and their branches, as rows. What lies on the disk: git/hosting.py and git/remote.py."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.tables.git import repositories, repository_branches
from osmosis_platform.db.tables.identity import former_workspace_names, memberships, workspaces

_CHUNK = 500
_OURS = re.compile(r".+?/git/([^/]+/[^/]+)")


@dataclass(frozen=True, slots=True)
class Repository:
    """The repository of a workspace.

    Attributes:
        kind: `hosted` by this platform, or a connected `remote`.
        full_name: `owner/repo` as people see it.
        identity: What clients send: lower-case `owner/repo`, or `host[:port]/path` for hosts other than github.com.
        remote_url: Where a remote is fetched from, without credentials.
        credential_kind: `none`, `token` or `deploy_key`.
        deploy_public_key: The line for the other side's list of deploy keys.
        default_branch: What runs use when they name no branch.
    """

    id: str
    workspace_id: str
    kind: str
    full_name: str
    identity: str
    remote_url: str | None
    credential_kind: str
    deploy_public_key: str | None
    known_hosts: str | None
    default_branch: str
    last_synced_at: datetime | None
    created_by: str
    created_at: datetime
    disconnected_at: datetime | None


@dataclass(frozen=True, slots=True)
class SealedColumn:
    """A secret of a repository as secrets/vault.py sealed it."""

    data_key_id: str
    nonce: bytes
    ciphertext: bytes


_COLUMNS = [repositories.c[name] for name in Repository.__dataclass_fields__]
_CONNECTED = sa.select(*_COLUMNS).where(
    repositories.c.workspace_id == sa.bindparam("workspace_id"), repositories.c.disconnected_at.is_(None)
)


class RepositoryRepository:
    """Repositories of one workspace."""

    def __init__(self, work: UnitOfWork) -> None:
        self._work = work

    def add(self, workspace_id: str, values: Mapping[str, Any]) -> Repository:
        """Adds the connected repository; the database refuses a second one."""
        row = {"credential_kind": "none", "default_branch": "main", "created_at": self._work.clock(), **values}
        statement = repositories.insert().values(workspace_id=workspace_id, **row).returning(*_COLUMNS)
        return Repository(**self._work.execute(statement).mappings().one())

    def get(self, workspace_id: str, repository_id: str) -> Repository | None:
        """One repository of this workspace, connected or not."""
        query = sa.select(*_COLUMNS).where(
            repositories.c.workspace_id == workspace_id, repositories.c.id == repository_id
        )
        row = self._work.execute(query).mappings().one_or_none()
        return None if row is None else Repository(**row)

    def find_connected(self, workspace_id: str) -> Repository | None:
        """The one repository that the workspace is connected to."""
        row = self._work.execute(_CONNECTED, {"workspace_id": workspace_id}).one_or_none()
        return None if row is None else Repository(*row)

    def find_hosted(self, workspace_id: str) -> Repository | None:
        """The repository that this platform hosts for the workspace, also while a remote is connected instead."""
        query = (
            sa.select(*_COLUMNS)
            .where(repositories.c.workspace_id == workspace_id, repositories.c.kind == "hosted")
            .order_by(repositories.c.id)
            .limit(1)
        )
        row = self._work.execute(query).mappings().one_or_none()
        return None if row is None else Repository(**row)

    def change(self, workspace_id: str, repository_id: str, values: Mapping[str, Any]) -> Repository | None:
        """Changes columns; None if there is no such repository here."""
        statement = (
            repositories.update()
            .where(repositories.c.workspace_id == workspace_id, repositories.c.id == repository_id)
            .values(**values)
            .returning(*_COLUMNS)
        )
        row = self._work.execute(statement).mappings().one_or_none()
        return None if row is None else Repository(**row)

    def credential(self, workspace_id: str, repository_id: str) -> SealedColumn | None:
        """The sealed token or private key."""
        return self._sealed(workspace_id, repository_id, "credential")

    def webhook_secret(self, workspace_id: str, repository_id: str) -> SealedColumn | None:
        """The sealed key that the other side signs its webhooks with."""
        return self._sealed(workspace_id, repository_id, "webhook")

    def _sealed(self, workspace_id: str, repository_id: str, prefix: str) -> SealedColumn | None:
        names = {"key_id": "data_key_id", "nonce": "nonce", "ciphertext": "ciphertext"}
        columns = [repositories.c[f"{prefix}_{name}"].label(label) for name, label in names.items()]
        query = sa.select(*columns).where(
            repositories.c.workspace_id == workspace_id, repositories.c.id == repository_id
        )
        row = self._work.execute(query).mappings().one_or_none()
        if row is None or row["data_key_id"] is None:
            return None
        return SealedColumn(row["data_key_id"], bytes(row["nonce"]), bytes(row["ciphertext"]))

    def branches(self, workspace_id: str, repository_id: str) -> dict[str, str]:
        """Every recorded branch and its commit."""
        query = (
            sa.select(repository_branches.c.branch, repository_branches.c.commit_sha)
            .join(repositories, repositories.c.id == repository_branches.c.repository_id)
            .where(repositories.c.workspace_id == workspace_id, repositories.c.id == repository_id)
        )
        return {row["branch"]: row["commit_sha"] for row in self._work.execute(query).mappings()}

    def has_branch(self, workspace_id: str, repository_id: str, branch: str) -> bool:
        """Whether a branch is recorded."""
        query = (
            sa.select(sa.literal(1))
            .select_from(repository_branches)
            .join(repositories, repositories.c.id == repository_branches.c.repository_id)
            .where(
                repositories.c.workspace_id == workspace_id,
                repositories.c.id == repository_id,
                repository_branches.c.branch == branch,
            )
        )
        return self._work.execute(query).scalar() is not None

    def record_branches(
        self, workspace_id: str, repository_id: str, changed: Mapping[str, str], gone: Iterable[str]
    ) -> None:
        """Writes the branches that moved or are new, and drops those that are gone."""
        if self.get(workspace_id, repository_id) is None:
            return
        table, now = repository_branches, self._work.clock()
        for names in _chunks([*gone, *changed]):
            self._work.execute(table.delete().where(table.c.repository_id == repository_id, table.c.branch.in_(names)))
        rows = [
            {"repository_id": repository_id, "branch": branch, "commit_sha": commit, "synced_at": now}
            for branch, commit in changed.items()
        ]
        for part in _chunks(rows):
            self._work.execute(table.insert(), part)


class RepositoryIndex:
    """Finding a repository by what a request outside of any workspace names: its path or its id."""

    GLOBAL = "the scope header, the git host and webhooks name a repository before the workspace is known"

    def __init__(self, work: UnitOfWork) -> None:
        self._work = work

    def by_path(self, workspace: str, name: str, user_id: str) -> tuple[Repository, str | None] | None:
        """The hosted repository of a clone URL, and the user's role there (None: no member).

        Args:
            workspace: First segment of the URL's path: the owner part of the full name, or the workspace's name, former
                name or id.
            name: Second segment, without `.git`: the repository part of the full name.
            user_id: Who asks.
        """
        key = workspace.lower()
        former = sa.select(former_workspace_names.c.workspace_id).where(former_workspace_names.c.name_key == key)
        named = (workspaces.c.name_key == key) | (workspaces.c.id == workspace) | workspaces.c.id.in_(former)
        ours = sa.func.lower(repositories.c.full_name) == f"{key}/{name.lower()}"
        under = named & sa.func.lower(repositories.c.full_name).like(f"%/{_literal(name.lower())}", escape="\\")
        mine = (memberships.c.workspace_id == workspaces.c.id) & (memberships.c.user_id == user_id)
        query = (
            sa.select(*_COLUMNS, memberships.c.role)
            .select_from(repositories)
            .join(workspaces, workspaces.c.id == repositories.c.workspace_id)
            .outerjoin(memberships, mine)
            .where(repositories.c.kind == "hosted", workspaces.c.deleted_at.is_(None), ours | under)
            .order_by(sa.case((ours, 0), else_=1), repositories.c.id)
        )
        rows = [dict(row) for row in self._work.execute(query).mappings()]
        if not rows:
            return None
        row = next((row for row in rows if row["role"] is not None), rows[0])
        role = row.pop("role")
        return Repository(**row), role

    def by_id(self, repository_id: str) -> Repository | None:
        """A repository that is connected now."""
        query = sa.select(*_COLUMNS).where(repositories.c.id == repository_id, repositories.c.disconnected_at.is_(None))
        row = self._work.execute(query).mappings().one_or_none()
        return None if row is None else Repository(**row)

    def lock_names(self) -> None:
        """Lets others who choose a hosted repository's name wait until this transaction ends."""
        if self._work.dialect == "postgresql":  # SQLite has one writer anyway
            key = sa.func.hashtextextended("names of hosted repositories", 0)
            self._work.execute(sa.select(sa.func.pg_advisory_xact_lock(key)))

    def identity_is_hosted(self, identity: str) -> bool:
        """Whether this platform hosts a repository of that identity already; `lock_names` first."""
        query = (
            sa.select(sa.literal(1))
            .select_from(repositories)
            .join(workspaces, workspaces.c.id == repositories.c.workspace_id)
            .where(
                repositories.c.kind == "hosted",
                repositories.c.identity == identity,
                workspaces.c.deleted_at.is_(None),
            )
        )
        return self._work.execute(query.limit(1)).scalar() is not None

    def connected(self) -> list[Repository]:
        """Every connected repository of a workspace that is not deleted, for polls and after a restart."""
        query = (
            sa.select(*_COLUMNS)
            .join(workspaces, workspaces.c.id == repositories.c.workspace_id)
            .where(repositories.c.disconnected_at.is_(None), workspaces.c.deleted_at.is_(None))
            .order_by(repositories.c.id)
        )
        return [Repository(**row) for row in self._work.execute(query).mappings()]


def is_named(identity: str) -> sa.ColumnElement[bool]:
    """The condition that a repository is meant by what a client sends.

    Args:
        identity: In any case: `owner/repo`, `host[:port]/path`, and for a hosted repository also
            `<our host>[:port]/git/owner/repo`, whatever name the client knows our host by.
    """
    wanted = identity.strip().lower().removesuffix(".git")
    matches = repositories.c.identity == wanted
    if ours := _OURS.fullmatch(wanted):
        matches |= (repositories.c.kind == "hosted") & (repositories.c.identity == ours[1])
    return matches


def _literal(text: str) -> str:
    return re.sub(r"([\\%_])", r"\\\1", text)


def _chunks[T](items: Sequence[T]) -> Iterable[Sequence[T]]:
    for start in range(0, len(items), _CHUNK):
        yield items[start : start + _CHUNK]
