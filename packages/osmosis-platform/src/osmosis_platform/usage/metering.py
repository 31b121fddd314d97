"""Noting what was used, in the transaction that ends it, so that nothing is counted twice or lost."""

from __future__ import annotations

from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.usage import UsageRepository
from osmosis_platform.usage.prices import price_of


def record(
    work: UnitOfWork,
    workspace_id: str,
    kind: str,
    quantity: float,
    unit: str,
    *,
    subject_id: str | None = None,
    job_id: str | None = None,
    cost_usd: float | None = None,
) -> None:
    """Notes a quantity.

    Args:
        work: The transaction that ends what was used.
        workspace_id: Who used it; `platform` for the platform itself.
        kind: What, for example `job.cpu_seconds`.
        quantity: How much, in `unit`; negative and non-finite amounts are refused.
        unit: For example `seconds`, `bytes`, `tokens`.
        subject_id: What it was for.
        job_id: The job that used it.
        cost_usd: What it cost; default: at the price of the kind, if one is set. None is not zero.

    Raises:
        ValueError: The quantity is negative or not finite: a fault of the caller.
    """
    if not 0 <= quantity < float("inf"):
        raise ValueError(f"{kind} cannot be {quantity}")
    if cost_usd is None and (price := price_of(work, kind)) is not None:
        cost_usd = price * quantity
    UsageRepository(work).add(
        workspace_id, kind, float(quantity), unit, subject_id=subject_id, job_id=job_id, cost_usd=cost_usd
    )
