"""`osmosis train list`: its options. The table is `osmosis_ai.cli.training_runs`'s."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from osmosis_ai.cli.paging import page_options

if TYPE_CHECKING:
    from osmosis_ai.cli.results import ListResult
    from osmosis_ai.cli.root import Invocation


@click.command("list")
@page_options("training runs")
@click.pass_obj
def command(invocation: Invocation, limit: int, everything: bool) -> ListResult:
    """List the training runs of the workspace, the newest first."""
    from osmosis_ai.cli.listing import show_list
    from osmosis_ai.cli.training_runs import TRAININGS

    return show_list(invocation, TRAININGS, "training runs", limit, everything)
