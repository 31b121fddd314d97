"""Plain tables for a terminal or a pipe: columns as wide as they need, one row a line."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import click


def show(headings: Sequence[str], rows: Sequence[Sequence[str]], *, empty: str) -> None:
    """Prints rows under headings, or what to do when there are none."""
    if not rows:
        click.echo(empty)
        return
    widths = [max(len(row[index]) for row in [headings, *rows]) for index in range(len(headings))]
    for row in [headings, *rows]:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def moment(value: datetime | None) -> str:
    """A time as people read it, to the minute."""
    return "-" if value is None else value.strftime("%Y-%m-%d %H:%M")
