"""How moments are written for people: local time with its zone, plain days, ages."""

from __future__ import annotations

from datetime import UTC, datetime

from osmosis_ai.cli.results import Text

ABSENT = "–"
"""What stands for a value that is not there."""


def date_cell(moment: str | None) -> Text:
    """Minutes, for tables: `2026-11-01 10:00 AM UTC`, on a terminal how long ago; text that is no moment stays as it is."""
    return Text(_written(moment, seconds=False), short=age_text(moment))


def moment_text(moment: str | None) -> str:
    """Seconds, for details: `2026-11-01 10:00:00 AM UTC`."""
    return _written(moment, seconds=True)


def day_text(moment: str | None) -> str:
    """The local day: `2026-11-01`."""
    found = parse_moment(moment)
    return found.astimezone().strftime("%Y-%m-%d") if found else moment or ABSENT


def age_text(moment: str | None, now: datetime | None = None) -> str:
    """How long ago: `2d ago`, `just now`; text that is no moment stays as it is."""
    found = parse_moment(moment)
    if found is None:
        return moment or ABSENT
    seconds = ((now or datetime.now(UTC)) - found).total_seconds()
    for size, unit in ((86400 * 365, "y"), (86400 * 30, "mo"), (86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit} ago"
    return "just now"


def parse_moment(moment: str | None) -> datetime | None:
    """The moment, or None where the text has no zone or is no moment."""
    try:
        found = datetime.fromisoformat(moment or "")
        return found.astimezone(UTC) if found.tzinfo is not None else None
    except (ValueError, OverflowError, OSError):
        return None


def _written(moment: str | None, *, seconds: bool) -> str:
    found = parse_moment(moment)
    if found is None:
        return moment or ABSENT
    local = found.astimezone()
    clock = f"{local.hour % 12 or 12}:{local:%M}" + (f":{local:%S}" if seconds else "")
    return f"{local:%Y-%m-%d} {clock} {'AM' if local.hour < 12 else 'PM'} {local.tzname() or ''}".rstrip()
