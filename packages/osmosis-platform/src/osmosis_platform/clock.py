"""The time of day, as a port: tests turn it, everything else reads the machine's."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

type Clock = Callable[[], datetime]


def system_clock() -> datetime:
    """Now, in UTC."""
    return datetime.now(UTC)


def wire_time(moment: datetime | None) -> str | None:
    """A moment as the wire writes it: ISO 8601 in UTC with milliseconds and `Z`."""
    if moment is None:
        return None
    if moment.tzinfo is not UTC:  # all of ours are; pages of lists write a hundred of them
        moment = moment.astimezone(UTC)
    return moment.isoformat(timespec="milliseconds")[:-6] + "Z"
