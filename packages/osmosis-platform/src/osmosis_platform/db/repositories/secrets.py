"""Secrets of workspaces and persons, and values of single runs: encrypted columns only; secrets/vault.py opens them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any

import sqlalchemy as sa

from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.listing import Listing
from osmosis_platform.db.tables.identity import users
from osmosis_platform.db.tables.jobs import jobs
from osmosis_platform.db.tables.secrets import run_secrets, secrets
from osmosis_platform.ids import new_id


@dataclass(frozen=True, slots=True)
class SecretName:
    """What may be known of a secret.

    Attributes:
        scope: `workspace` or `user`.
        creator_name: Name or e-mail address of who made it.
        updater_name: Of who changed it last.
    """

    id: str
    name: str
    scope: str
    created_at: datetime
    updated_at: datetime
    creator_name: str
    updater_name: str


@dataclass(frozen=True, slots=True)
class SealedSecret:
    """A secret's encrypted value, with all that its associated data names."""

    id: str
    scope: str
    owner_id: str
    name: str
    version: int
    data_key_id: str
    nonce: bytes = field(repr=False)
    ciphertext: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class SealedRunSecret:
    """A value that a run was given, encrypted."""

    name: str
    data_key_id: str
    nonce: bytes = field(repr=False)
    ciphertext: bytes = field(repr=False)


class SecretRepository:
    """Secrets of one workspace: its own, and those of one person in it."""

    def __init__(self, work: UnitOfWork) -> None:
        self._work = work

    def page(
        self, workspace_id: str, user_id: str, scopes: Collection[str], *, limit: int, offset: int
    ) -> tuple[list[SecretName], int]:
        """Secrets by name, and how many there are: those of the workspace, and of scope `user` this person's."""
        parameters = {"workspace_id": workspace_id, "user_id": user_id}
        return _listing(frozenset(scopes)).page(self._work, parameters, limit=limit, offset=offset)

    def find_name(self, workspace_id: str, user_id: str, scope: str, name: str) -> SecretName | None:
        """What may be known of one secret: of the workspace, or of this person."""
        key = _key(workspace_id, scope, user_id if scope == "user" else "", name)
        row = self._work.execute(sa.select(*_NAMES).select_from(_NAMED).where(key)).one_or_none()
        return None if row is None else SecretName(*row)

    def find(self, workspace_id: str, scope: str, owner_id: str, name: str) -> SealedSecret | None:
        """One secret. `owner_id` is empty for scope `workspace`."""
        row = self._work.execute(sa.select(*_SEALED).where(_key(workspace_id, scope, owner_id, name))).one_or_none()
        return None if row is None else _sealed(*row)

    def named(self, workspace_id: str, user_id: str, names: Iterable[str]) -> list[SealedSecret]:
        """The secrets of these names that a run of this person could use, of both scopes."""
        query = sa.select(*_SEALED).where(*_visible({"workspace", "user"}), secrets.c.name.in_(list(names)))
        rows = self._work.execute(query, {"workspace_id": workspace_id, "user_id": user_id})
        return [_sealed(*row) for row in rows]

    def put(self, workspace_id: str, user_id: str, secret: SealedSecret) -> str:
        """Adds a secret, or replaces it by its next version; gives its id."""
        now = self._work.clock()
        values = {
            "version": secret.version,
            "data_key_id": secret.data_key_id,
            "nonce": secret.nonce,
            "ciphertext": secret.ciphertext,
            "updated_by": user_id,
            "updated_at": now,
        }
        key = _key(workspace_id, secret.scope, secret.owner_id, secret.name)
        changed = self._work.execute(
            secrets.update().where(key).values(**values).returning(secrets.c.id)
        ).scalar_one_or_none()
        if changed is not None:
            return changed
        place = {"workspace_id": workspace_id, "scope": secret.scope, "owner_id": secret.owner_id, "name": secret.name}
        made = {"id": new_id("sc"), "created_by": user_id, "created_at": now}
        self._work.execute(secrets.insert().values(**place, **made, **values))
        return made["id"]

    def lock(self, workspace_id: str, scope: str, owner_id: str, name: str) -> None:
        """Lets one writer at a time choose the next version (SQLite has one writer anyway)."""
        if self._work.dialect == "postgresql":
            text = f"secret:{workspace_id}:{scope}:{owner_id}:{name}"
            self._work.execute(sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtextextended(text, 0))))

    def delete(self, workspace_id: str, scope: str, owner_id: str, name: str) -> bool:
        """Removes a secret; False when there is none."""
        return self._work.execute(secrets.delete().where(_key(workspace_id, scope, owner_id, name))).rowcount == 1

    def forget_person(self, workspace_id: str, user_id: str) -> int:
        """Removes a person's own secrets when they leave the workspace."""
        mine = (secrets.c.workspace_id == workspace_id, secrets.c.scope == "user", secrets.c.owner_id == user_id)
        return self._work.execute(secrets.delete().where(*mine)).rowcount


class RunSecretRepository:
    """Values of single runs; gone in the transaction that ends the run."""

    def __init__(self, work: UnitOfWork) -> None:
        self._work = work

    def add(self, workspace_id: str, run_id: str, secret: SealedRunSecret) -> None:
        """Keeps a value for as long as the run is open."""
        values = {name: getattr(secret, name) for name in SealedRunSecret.__dataclass_fields__}
        place = {"workspace_id": workspace_id, "run_id": run_id, "created_at": self._work.clock()}
        self._work.execute(run_secrets.insert().values(**place, **values))

    def all(self, workspace_id: str, run_id: str) -> list[SealedRunSecret]:
        """The values of a run."""
        columns = [run_secrets.c[name] for name in SealedRunSecret.__dataclass_fields__]
        query = sa.select(*columns).where(run_secrets.c.workspace_id == workspace_id, run_secrets.c.run_id == run_id)
        return [SealedRunSecret(row[0], row[1], bytes(row[2]), bytes(row[3])) for row in self._work.execute(query)]

    def forget(self, workspace_id: str, run_id: str) -> int:
        """Removes every value of a run, for good."""
        mine = (run_secrets.c.workspace_id == workspace_id, run_secrets.c.run_id == run_id)
        return self._work.execute(run_secrets.delete().where(*mine)).rowcount


class RunSecretSweep:
    """Values of runs whose end was never written, whosever they are."""

    GLOBAL = "the sweep looks after every workspace"

    def __init__(self, work: UnitOfWork) -> None:
        self._work = work

    def drop_orphans(self, before: datetime) -> int:
        """Removes values older than a moment that no open job is for; how many."""
        is_open = sa.exists().where(
            jobs.c.subject_id == run_secrets.c.run_id,
            jobs.c.workspace_id == run_secrets.c.workspace_id,
            jobs.c.status.in_(["queued", "running"]),
        )
        statement = run_secrets.delete().where(run_secrets.c.created_at < before, ~is_open)
        return self._work.execute(statement).rowcount


_SEALED = [secrets.c[name] for name in SealedSecret.__dataclass_fields__]


_CREATOR, _UPDATER = users.alias("creator"), users.alias("updater")
_NAMES = [
    secrets.c.id,
    secrets.c.name,
    secrets.c.scope,
    secrets.c.created_at,
    secrets.c.updated_at,
    sa.func.coalesce(_CREATOR.c.name, _CREATOR.c.email),
    sa.func.coalesce(_UPDATER.c.name, _UPDATER.c.email),
]
_NAMED = secrets.join(_CREATOR, _CREATOR.c.id == secrets.c.created_by).join(
    _UPDATER, _UPDATER.c.id == secrets.c.updated_by
)


def _visible(scopes: Collection[str]) -> tuple[sa.ColumnElement[bool], ...]:
    """Secrets of these scopes that the person `user_id` sees in `workspace_id`."""
    kinds = {
        "workspace": secrets.c.scope == "workspace",
        "user": (secrets.c.scope == "user") & (secrets.c.owner_id == sa.bindparam("user_id")),
    }
    mine = secrets.c.workspace_id == sa.bindparam("workspace_id")
    return mine, sa.or_(*(condition for name, condition in kinds.items() if name in scopes))


@cache
def _listing(scopes: frozenset[str]) -> Listing[SecretName]:
    order = (secrets.c.name, secrets.c.scope)
    return Listing(_NAMES, lambda row: SecretName(*row), secrets, where=_visible(scopes), order=order, source=_NAMED)


def _key(workspace_id: str, scope: str, owner_id: str, name: str) -> sa.ColumnElement[bool]:
    return (
        (secrets.c.workspace_id == workspace_id)
        & (secrets.c.scope == scope)
        & (secrets.c.owner_id == owner_id)
        & (secrets.c.name == name)
    )


def _sealed(*values: Any) -> SealedSecret:
    *facts, nonce, ciphertext = values
    return SealedSecret(*facts, bytes(nonce), bytes(ciphertext))
