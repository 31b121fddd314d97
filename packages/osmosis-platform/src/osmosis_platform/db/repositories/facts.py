"""Single facts about this platform, each under a name: its id, the hash of the set-up token."""

from __future__ import annotations

import sqlalchemy as sa

from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.inserts import insert
from osmosis_platform.db.tables.identity import platform_facts


class FactRepository:
    """Names and texts."""

    GLOBAL = "facts of the platform as a whole"

    def __init__(self, work: UnitOfWork) -> None:
        self._work = work

    def find(self, name: str) -> str | None:
        """The fact of a name."""
        query = sa.select(platform_facts.c.value).where(platform_facts.c.name == name)
        return self._work.execute(query).scalar_one_or_none()

    def starting(self, prefix: str) -> dict[str, str]:
        """The facts whose names start so, by name."""
        query = sa.select(platform_facts.c.name, platform_facts.c.value)
        rows = self._work.execute(query.where(platform_facts.c.name.startswith(prefix, autoescape=True)))
        return dict(sorted((row.name, row.value) for row in rows))

    def put(self, name: str, value: str) -> None:
        """Writes a fact, over an older one."""
        values = {"value": value, "updated_at": self._work.clock()}
        statement = insert(self._work, platform_facts).values(name=name, **values)
        keys = [platform_facts.c.name]
        self._work.execute(statement.on_conflict_do_update(index_elements=keys, set_=values))

    def take(self, name: str, value: str) -> bool:
        """Removes a fact if it is as given: true for exactly one of those who try."""
        mine = (platform_facts.c.name == name, platform_facts.c.value == value)
        return self._work.execute(sa.delete(platform_facts).where(*mine)).rowcount == 1

    def drop(self, name: str) -> None:
        """Removes a fact."""
        self._work.execute(sa.delete(platform_facts).where(platform_facts.c.name == name))
