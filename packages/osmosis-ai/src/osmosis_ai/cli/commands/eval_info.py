"""`osmosis eval info`: its arguments. What it shows is made in `osmosis_ai.cli.eval_runs`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from osmosis_ai.cli.results import DetailResult
    from osmosis_ai.cli.root import Invocation


@click.command("info")
@click.argument("name")
@click.option("-o", "--output", metavar="DIR", help="Save metrics.json in this folder.")
@click.option("--watch", is_flag=True, help="Look again every few seconds until the run has ended.")
@click.pass_obj
def command(invocation: Invocation, name: str, output: str | None, watch: bool) -> DetailResult:
    """Show an evaluation run with its figures.

    NAME is the run's name or id. For people metrics.json is also saved under .osmosis/evals/NAME/. Rows, trajectories
    and logs come with eval download.
    """
    from osmosis_ai.cli.eval_runs import show_eval

    return show_eval(invocation, name, output_root=output, watch=watch)
