"""The options of lists that come in pages, and the check that belongs to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from osmosis_ai.errors import ValidationError

PAGE_SIZE = 50
"""Most items of one page, and how many a list shows unless told otherwise."""
_LOG_PAGE_SIZE = 200

type _Command = Callable[..., Any]


def page_options(things: str) -> Callable[[_Command], _Command]:
    """`--limit` and `--all` (as `everything`) of a list of `things`."""

    def add(command: _Command) -> _Command:
        command = click.option("--all", "everything", is_flag=True, help=f"Show all {things}.")(command)
        return click.option(
            "--limit", type=click.IntRange(1, PAGE_SIZE), default=PAGE_SIZE, show_default=True, metavar="N",
            help=f"Show at most this many {things}.",
        )(command)  # fmt: skip

    return add


def log_options(command: _Command) -> _Command:
    """`--limit` and `--cursor` of a page of log lines."""
    command = click.option("--cursor", metavar="TEXT", help="Continue from here: next_cursor of the page before.")(
        command
    )
    return click.option(
        "--limit", type=click.IntRange(1, _LOG_PAGE_SIZE), default=PAGE_SIZE, show_default=True, metavar="N",
        help="Lines of a page.",
    )(command)  # fmt: skip


def check_paging(limit: int, everything: bool) -> None:
    """Refuse two answers to how much to show.

    Raises:
        ValidationError: Both `--all` and a `--limit`.
    """
    if everything and limit != PAGE_SIZE:
        raise ValidationError("--all and --limit are mutually exclusive.")
