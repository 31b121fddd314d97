"""`osmosis eval list`: its options. The table is `osmosis_ai.cli.eval_runs`'s."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from osmosis_ai.cli.paging import page_options

if TYPE_CHECKING:
    from osmosis_ai.cli.results import ListResult
    from osmosis_ai.cli.root import Invocation


@click.command("list")
@page_options("evaluation runs")
@click.pass_obj
def command(invocation: Invocation, limit: int, everything: bool) -> ListResult:
    """List the evaluation runs of the workspace, uploaded local ones too."""
    from osmosis_ai.cli.eval_runs import EVALS
    from osmosis_ai.cli.listing import show_list

    return show_list(invocation, EVALS, "evaluation runs", limit, everything)
