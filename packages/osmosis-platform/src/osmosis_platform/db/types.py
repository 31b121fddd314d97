"""Column types that both databases store alike."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class UtcTime(TypeDecorator[datetime]):
    """A moment as microseconds since 1970 in UTC: exact, sortable, and the same on both databases."""

    impl = sa.BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        """Refuses naive times, which would mean something else on every machine."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a naive time cannot be stored; give it a zone")
        return (value - _EPOCH) // _MICROSECOND

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:
        """Back to a moment in UTC."""
        return _moment(value)

    def result_processor(self, dialect: Dialect, coltype: Any) -> Any:
        """The same without a detour: a page of a list has two hundred moments."""
        return _moment


def _moment(value: int | None) -> datetime | None:
    return None if value is None else _EPOCH + timedelta(0, 0, value)


Json: sa.types.TypeEngine[Any] = sa.JSON().with_variant(JSONB(), "postgresql")
