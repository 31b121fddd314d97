"""What Alembic needs to know: our tables, batch mode for SQLite, and the connection it is handed."""

from typing import Any, Literal

from alembic import context
from alembic.autogenerate.api import AutogenContext

from osmosis_platform.db.tables import metadata
from osmosis_platform.db.types import Json, UtcTime


def render(kind: str, item: Any, autogenerate: AutogenContext) -> str | Literal[False]:
    """Writes our types by what they store, so that a step never changes with the code."""
    if kind == "type" and isinstance(item, UtcTime):
        return "sa.BigInteger()"
    if kind == "type" and item is Json:
        autogenerate.imports.add("from sqlalchemy.dialects import postgresql")
        return "sa.JSON().with_variant(postgresql.JSONB(), 'postgresql')"
    return False


connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    render_as_batch=connection.dialect.name == "sqlite",
    render_item=render,
    compare_type=False,
)
with context.begin_transaction():
    context.run_migrations()
