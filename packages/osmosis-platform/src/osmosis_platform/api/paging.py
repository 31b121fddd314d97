"""Pages of lists: `limit` and `offset` in, the envelope of platform-api.md 5.1 out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Query, Response
from pydantic_core import to_json

MAX_LIMIT = 50

type Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Items of one page.")]
type Offset = Annotated[int, Query(ge=0, le=1 << 31, description="Items before the page.")]


def answer(page: dict[str, Any]) -> Response:
    """A page as it is, for routes whose items have the shape of their `response_model` already.

    Building and validating a model for each item would cost as much again as reading the rows.
    """
    return Response(to_json(page, inf_nan_mode="null"), media_type="application/json")


def page(key: str, items: Sequence[Any], total: int, offset: int, **extra: Any) -> dict[str, Any]:
    """One page under its collection key.

    Args:
        key: The collection key, for example `datasets`.
        items: What the page holds.
        total: How many there are in all.
        offset: How many come before the page.
        extra: Further keys of the envelope.
    """
    after = offset + len(items)
    more = bool(items) and after < total
    return {key: items, "total_count": total, "has_more": more, "next_offset": after if more else None, **extra}
