"""`osmosis train info`: its arguments. What it shows is made in `osmosis_ai.cli.training_runs`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from osmosis_ai.cli.results import DetailResult
    from osmosis_ai.cli.root import Invocation


@click.command("info")
@click.argument("name")
@click.option("-o", "--output", metavar="PATH", help="Save the metrics here: a .json file, or a folder.")
@click.option("--overwrite", is_flag=True, help="Replace the file of -o.")
@click.option("--watch", is_flag=True, help="Look again every few seconds until the run has ended.")
@click.pass_obj
def command(invocation: Invocation, name: str, output: str | None, overwrite: bool, watch: bool) -> DetailResult:
    """Show a training run with its checkpoints and metrics.

    NAME is the run's name or id. For people the metrics are also saved under .osmosis/metrics/.
    """
    from osmosis_ai.cli.training_runs import show_training

    return show_training(invocation, name, output_file=output, overwrite=overwrite, watch=watch)
