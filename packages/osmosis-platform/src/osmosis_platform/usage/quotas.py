"""Limits that administrators set, for one workspace or for all; without one there is none."""

from __future__ import annotations

from collections.abc import Callable

from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.usage import EVERYBODY, QuotaRepository, UsageRepository
from osmosis_platform.errors import InvalidRequestError, QuotaError

NAMES: dict[str, str] = {
    "datasets.bytes": "bytes of a workspace's datasets in all",
    "datasets.file_bytes": "bytes of one dataset",
}
"""Every quota and what it limits."""

_USED: dict[str, Callable[[UnitOfWork, str], float]] = {
    "datasets.bytes": lambda work, workspace_id: UsageRepository(work).stored_bytes(workspace_id),
}


def check(work: UnitOfWork, workspace_id: str, name: str, wanted: float) -> None:
    """Lets a workspace use more of something, or says why not.

    Args:
        work: The transaction that is going to use it.
        workspace_id: Who wants it.
        name: Of the quota.
        wanted: How much more; where nothing adds up, how much at once.

    Raises:
        QuotaError: It would be over the limit.
    """
    limit = QuotaRepository(work).find(workspace_id, name)
    if limit is None:
        return
    used = used_of(work, workspace_id, name) or 0.0
    if used + wanted > limit:
        raise QuotaError(
            f"This would be {used + wanted:.0f} {NAMES[name]}; the limit is {limit:.0f}. "
            "Delete something, or ask an administrator of the platform for more.",
            details={"quota": name, "limit": limit, "used": used, "wanted": wanted},
        )


def used_of(work: UnitOfWork, workspace_id: str, name: str) -> float | None:
    """How much of a quota is used; None where nothing adds up."""
    return _USED[name](work, workspace_id) if name in _USED else None


def set_quota(work: UnitOfWork, workspace_id: str | None, name: str, value: float | None) -> None:
    """Sets a limit, or removes it with None.

    Args:
        work: The transaction.
        workspace_id: Whose; None for every workspace without one of its own.
        name: Of the quota.
        value: The limit, 0 or more.

    Raises:
        InvalidRequestError: There is no such quota, or the limit is no amount.
    """
    if name not in NAMES:
        raise InvalidRequestError(
            f"There is no quota {name[:100]!r}. There are: {', '.join(sorted(NAMES))}.", field="name"
        )
    if value is not None and not 0 <= value < float("inf"):
        raise InvalidRequestError("A limit is a number from 0 on.", field="value")
    QuotaRepository(work).put(workspace_id or EVERYBODY, name, value)
