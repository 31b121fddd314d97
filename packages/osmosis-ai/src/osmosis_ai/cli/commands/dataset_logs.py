"""`osmosis dataset logs`: its options. Logs are shown by `osmosis_ai.cli.run_logs`."""

from __future__ import annotations

import click

from osmosis_ai.cli.paging import log_options
from osmosis_ai.cli.results import ListResult
from osmosis_ai.cli.root import Invocation


@click.command("logs")
@click.argument("name")
@log_options
@click.pass_obj
def command(invocation: Invocation, name: str, limit: int, cursor: str | None) -> ListResult:
    """Show what happened to the dataset NAME (or id), oldest first.

    Without --cursor these are the newest lines; older ones follow with the cursor of the page before.
    """
    from osmosis_ai.cli.run_logs import show_log

    return show_log(invocation, "datasets", name, "dataset logs", limit, cursor)
