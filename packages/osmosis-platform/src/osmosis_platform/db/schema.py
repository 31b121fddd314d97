"""Bringing a database to the schema of this version, once, whoever else starts at the same moment."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.exc import DBAPIError, OperationalError

from osmosis_platform.db.database import Database, translated
from osmosis_platform.errors import UnavailableError

_ADVISORY_LOCK = 0x05305315


def configuration() -> Config:
    """Alembic's configuration; the connection is added by the caller."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    return config


def newest() -> str:
    """The revision this version of the code wants."""
    head = ScriptDirectory.from_config(configuration()).get_current_head()
    assert head is not None
    return head


def current(database: Database) -> str | None:
    """The revision a database is at; None for an empty one."""
    with _reached(database), database.engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def migrate(database: Database) -> tuple[str | None, str]:
    """Runs the missing steps in one transaction, while others wait.

    Returns:
        The revision before and after.

    Raises:
        UnavailableError: The database was migrated by a newer version of the platform.
    """
    config = configuration()
    known = {step.revision for step in ScriptDirectory.from_config(config).walk_revisions()}
    # SQLite's writer begins IMMEDIATE, so it is the lock; PostgreSQL has advisory locks.
    with _reached(database), database.engine.begin() as connection:
        if database.dialect == "postgresql":
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
        before = MigrationContext.configure(connection).get_current_revision()
        if before is not None and before not in known:
            raise UnavailableError(
                f"The database is at schema {before}, which this version does not know. "
                "Start the newer osmosis-platform that made it, or restore a backup of this version.",
                code="SCHEMA_TOO_NEW",
            )
        if before != newest():
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    return before, newest()


@contextmanager
def _reached(database: Database) -> Generator[None]:
    """Says which database does not answer and why: these are the first questions that a process asks it."""
    try:
        with translated():
            yield
    except (UnavailableError, DBAPIError) as error:
        origin = error if isinstance(error, DBAPIError) else error.__cause__
        if not isinstance(origin, OperationalError):
            raise
        why = str(origin.orig).strip().partition("\n")[0]
        place = database.url.render_as_string(hide_password=True)
        raise UnavailableError(
            f"The database {place} cannot be used: {why}. Check database_url, then try again."
        ) from error


def rewrite_first_step(url: str) -> None:
    """Writes the first migration anew from the tables, while no version of the platform was ever released.

    Args:
        url: An empty database to compare with.
    """
    versions = Path(__file__).parent / "migrations" / "versions"
    for path in versions.glob("0001_*.py"):
        path.unlink()
    database = Database(url)
    config = configuration()
    with database.engine.begin() as connection:
        config.attributes["connection"] = connection
        command.revision(config, "first schema", autogenerate=True, rev_id="0001")


if __name__ == "__main__":
    rewrite_first_step(sys.argv[1])
