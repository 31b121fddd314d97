"""INSERT with ON CONFLICT, which SQLAlchemy spells apart for each database though both understand it alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from osmosis_platform.db.database import UnitOfWork


def insert(work: UnitOfWork, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
    """An INSERT of this database that knows `on_conflict_do_nothing` and `on_conflict_do_update`."""
    return sqlite.insert(table) if work.dialect == "sqlite" else postgresql.insert(table)


def insert_new(work: UnitOfWork, table: sa.Table, values: Mapping[str, Any]) -> bool:
    """Inserts a row unless one with a key of it is there; whether it was inserted.

    It asks for a column back, because drivers do not all count the rows of an INSERT.
    """
    statement = insert(work, table).values(**values).on_conflict_do_nothing()
    return work.execute(statement.returning(*table.primary_key.columns)).first() is not None
