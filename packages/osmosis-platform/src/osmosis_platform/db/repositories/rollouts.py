"""The rollouts that syncs found, one row for each branch and name. Finding them: git/discovery.py."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.listing import Listing
from osmosis_platform.db.tables.git import repositories, rollouts
from osmosis_platform.ids import new_id

_CHUNK = 300


@dataclass(frozen=True, slots=True)
class Rollout:
    """A folder under `rollouts/` of a branch.

    Attributes:
        active: Whether the branch's newest commit has it.
        commit_sha: The branch's commit when it was last seen.
        tree_sha: Of the folder.
        repo_full_name: The repository it lies in.
    """

    id: str
    branch: str
    name: str
    description: str | None
    active: bool
    commit_sha: str
    tree_sha: str | None
    created_at: datetime
    last_synced_at: datetime
    repo_full_name: str


@dataclass(frozen=True, slots=True)
class FoundRollout:
    """What a commit says about a rollout."""

    name: str
    tree_sha: str
    description: str | None


_COLUMNS = [rollouts.c[name] for name in Rollout.__dataclass_fields__ if name != "repo_full_name"]
_SELECTED = [*_COLUMNS, repositories.c.full_name.label("repo_full_name")]
_ACTIVE = Listing(
    _SELECTED,
    lambda row: Rollout(*row),
    rollouts,
    where=(
        rollouts.c.workspace_id == sa.bindparam("workspace_id"),
        rollouts.c.repository_id == sa.bindparam("repository_id"),
        rollouts.c.branch == sa.bindparam("branch"),
        rollouts.c.active,
    ),
    order=(rollouts.c.name,),
    source=rollouts.join(repositories, repositories.c.id == rollouts.c.repository_id),
)


class RolloutRepository:
    """Rollouts of one workspace."""

    def __init__(self, work: UnitOfWork) -> None:
        self._work = work

    def descriptions(self, workspace_id: str, repository_id: str) -> dict[str, str | None]:
        """Descriptions by the tree they were read from, so that nothing is read twice."""
        query = sa.select(rollouts.c.tree_sha, rollouts.c.description).where(
            rollouts.c.workspace_id == workspace_id, rollouts.c.repository_id == repository_id
        )
        rows = self._work.execute(query.distinct()).mappings()
        return {row["tree_sha"]: row["description"] for row in rows if row["tree_sha"] is not None}

    def record(
        self,
        workspace_id: str,
        repository_id: str,
        found: Mapping[str, tuple[str, Sequence[FoundRollout]]],
        gone: Iterable[str] = (),
    ) -> None:
        """Writes what the newest commits hold.

        Args:
            workspace_id: Whose they are.
            repository_id: Where they lie.
            found: For each branch that moved, its commit and its rollouts.
            gone: Branches that are no more; their rollouts stay as inactive rows.
        """
        table, now = rollouts, self._work.clock()
        mine = (table.c.workspace_id == workspace_id) & (table.c.repository_id == repository_id)
        known: dict[tuple[str, str], str] = {}
        touched = [*found, *gone]
        for start in range(0, len(touched), _CHUNK):
            part = table.c.branch.in_(touched[start : start + _CHUNK])
            query = sa.select(table.c.branch, table.c.name, table.c.id).where(mine, part)
            known |= {(row["branch"], row["name"]): row["id"] for row in self._work.execute(query).mappings()}
            self._work.execute(table.update().where(mine, part).values(active=False))
        changed, added = [], []
        for branch, (commit, items) in found.items():
            for item in items:
                facts = {
                    "description": item.description,
                    "tree_sha": item.tree_sha,
                    "commit_sha": commit,
                    "active": True,
                    "last_synced_at": now,
                }
                if id_ := known.get((branch, item.name)):
                    changed.append({"row_id": id_, **facts})
                else:
                    row = {"id": new_id("ro"), "workspace_id": workspace_id, "repository_id": repository_id}
                    added.append({**row, "branch": branch, "name": item.name, "created_at": now, **facts})
        if changed:
            names = [name for name in changed[0] if name != "row_id"]
            values = {name: sa.bindparam(name) for name in names}
            self._work.execute(
                table.update().where(mine, table.c.id == sa.bindparam("row_id")).values(**values), changed
            )
        if added:
            self._work.execute(table.insert(), added)

    def page(
        self, workspace_id: str, repository_id: str, branch: str, *, limit: int, offset: int
    ) -> tuple[list[Rollout], int]:
        """One page of the active rollouts of a branch by name, and how many there are in all."""
        parameters = {"workspace_id": workspace_id, "repository_id": repository_id, "branch": branch}
        return _ACTIVE.page(self._work, parameters, limit=limit, offset=offset)

    def find(self, workspace_id: str, repository_id: str, branch: str, name_or_id: str) -> Rollout | None:
        """One rollout of a branch, by name or id, also an inactive one."""
        query = (
            sa.select(*_SELECTED)
            .join(repositories, repositories.c.id == rollouts.c.repository_id)
            .where(
                rollouts.c.workspace_id == workspace_id,
                rollouts.c.repository_id == repository_id,
                (rollouts.c.id == name_or_id) | ((rollouts.c.branch == branch) & (rollouts.c.name == name_or_id)),
            )
        )
        row = self._work.execute(query).mappings().first()
        return None if row is None else Rollout(**row)

    def count(self, workspace_id: str, repository_id: str, branch: str) -> int:
        """Active rollouts of a branch."""
        return self.page(workspace_id, repository_id, branch, limit=0, offset=0)[1]
