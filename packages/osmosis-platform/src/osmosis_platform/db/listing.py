"""Pages of rows: one statement for a page and the count of all, built once, since building it takes longer than running it.

What a list holds, and whose, its repository says; values come as bound parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from osmosis_platform.db.database import UnitOfWork


class Listing[T]:
    """One list, in one order.

    Args:
        columns: What each row holds.
        make: Makes an item of such a row.
        table: Where the rows lie; they are counted here alone.
        where: Which rows, with bound parameters.
        order: The order, total, so that pages do not overlap.
        source: The table with what it is joined to; joins must neither add nor drop rows.
    """

    def __init__(
        self,
        columns: Sequence[Any],
        make: Callable[[tuple[Any, ...]], T],
        table: sa.Table,
        *,
        where: Sequence[sa.ColumnElement[bool]],
        order: Sequence[Any],
        source: sa.FromClause | None = None,
    ) -> None:
        self._make = make
        self._count = sa.select(sa.func.count()).select_from(table).where(*where)
        query = sa.select(*columns, self._count.correlate(None).scalar_subquery())
        query = query.select_from(table if source is None else source).where(*where).order_by(*order)
        limit, offset = (sa.bindparam(name, type_=sa.BigInteger) for name in ("page_limit", "page_offset"))
        self._page = query.limit(limit).offset(offset)

    def page(self, work: UnitOfWork, parameters: Mapping[str, Any], *, limit: int, offset: int) -> tuple[list[T], int]:
        """One page, and how many items there are in all."""
        rows = work.execute(self._page, {**parameters, "page_limit": limit, "page_offset": offset}).all()
        if rows:
            return [self._make(row[:-1]) for row in rows], rows[0][-1]
        return [], self.count(work, parameters) if limit == 0 or offset else 0

    def count(self, work: UnitOfWork, parameters: Mapping[str, Any]) -> int:
        """How many items there are in all."""
        return work.execute(self._count, parameters).scalar_one()
