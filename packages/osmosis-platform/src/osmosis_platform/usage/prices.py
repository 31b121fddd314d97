"""What a unit of each metered kind costs, set by administrators; without a price a cost is unknown, which is not zero."""

from __future__ import annotations

import re

from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.facts import FactRepository
from osmosis_platform.errors import InvalidRequestError

_FACT = "price:"
_KIND = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)+")


def price_of(work: UnitOfWork, kind: str) -> float | None:
    """US dollars for one unit of a metered kind; None where no price is set."""
    found = FactRepository(work).find(_FACT + kind)
    return None if found is None else float(found)


def prices(work: UnitOfWork) -> dict[str, float]:
    """Every price, by kind."""
    found = FactRepository(work).starting(_FACT)
    return {name.removeprefix(_FACT): float(value) for name, value in found.items()}


def set_price(work: UnitOfWork, kind: str, usd: float | None) -> None:
    """Sets what a unit costs from now on, or removes it with None; what was used before keeps its price.

    Raises:
        InvalidRequestError: It is no kind, or no amount.
    """
    if len(kind) > 100 or not _KIND.fullmatch(kind):
        message = f"{kind[:100]!r} is no metered kind; they look like job.cpu_seconds (`osmosis-platform usage`)."
        raise InvalidRequestError(message, field="kind")
    if usd is not None and not 0 <= usd < 1e9:
        raise InvalidRequestError("A price is a number of US dollars from 0 on.", field="price")
    if usd is None:
        FactRepository(work).drop(_FACT + kind)
    else:
        FactRepository(work).put(_FACT + kind, repr(usd))
