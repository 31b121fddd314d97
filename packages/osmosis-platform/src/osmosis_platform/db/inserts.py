"""INSERT with ON CONFLICT, which SQLAlchemy spells apart for each database though both understand it alike."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from osmosis_platform.db.database import UnitOfWork


def insert(work: UnitOfWork, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
    """An INSERT of this database that knows `on_conflict_do_nothing` and `on_conflict_do_update`."""
    return sqlite.insert(table) if work.dialect == "sqlite" else postgresql.insert(table)
