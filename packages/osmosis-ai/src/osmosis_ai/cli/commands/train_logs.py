"""`osmosis train logs`: its arguments. The page is `osmosis_ai.cli.run_logs`'s."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from osmosis_ai.cli.paging import log_options

if TYPE_CHECKING:
    from osmosis_ai.cli.results import ListResult
    from osmosis_ai.cli.root import Invocation


@click.command("logs")
@click.argument("name")
@log_options
@click.pass_obj
def command(invocation: Invocation, name: str, limit: int, cursor: str | None) -> ListResult:
    """Read what the platform logged of a training run.

    NAME is the run's name or id. The newest lines come first, each page with its oldest line on top; --cursor goes
    further back.
    """
    from osmosis_ai.cli.run_logs import show_log

    return show_log(invocation, "training-runs", name, "train logs", limit, cursor)
