"""Plain tables for a terminal or a pipe, one row a line, or the same rows as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click

from osmosis_platform.clock import wire_time

AS_JSON = click.option("--json", "as_json", is_flag=True, help="For programs: a JSON list of objects.")

_KEYS = {"E-mail": "email"}


def show(headings: Sequence[str], rows: Sequence[Sequence[Any]], *, empty: str, as_json: bool = False) -> None:
    """Prints rows under headings, or what to do when there are none.

    Args:
        headings: Of the columns; in small letters and with underscores they are the keys of JSON.
        rows: Texts, numbers, times, truths, lists of texts, or None for what there is not.
        empty: What is said instead of an empty table.
        as_json: For programs: all of it, and an empty list rather than `empty`.
    """
    if as_json:
        keys = [_KEYS.get(heading) or heading.lower().replace(" ", "_") for heading in headings]
        found = [dict(zip(keys, map(_plain, row), strict=True)) for row in rows]
        click.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    if not rows:
        click.echo(empty)
        return
    cells = [list(headings), *([_text(value) for value in row] for row in rows)]
    widths = [max(len(row[index]) for row in cells) for index in range(len(headings))]
    for row in cells:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def moment(value: datetime | None) -> str:
    """A time as people read it, to the minute."""
    return "-" if value is None else value.strftime("%Y-%m-%d %H:%M")


def _text(value: Any) -> str:
    if value is None or value == [] or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return moment(value)
    if isinstance(value, float):
        return f"{value:.15g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(value)
    # One row a line, whatever somebody called themselves.
    return "".join(character if character.isprintable() else "\ufffd" for character in str(value))


def _plain(value: Any) -> Any:
    return wire_time(value) if isinstance(value, datetime) else list(value) if isinstance(value, tuple) else value
