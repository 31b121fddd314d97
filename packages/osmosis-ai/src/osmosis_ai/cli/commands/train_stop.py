"""`osmosis train stop`: its arguments. What it does is `osmosis_ai.cli.run_stops`'s."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from osmosis_ai.cli.results import OperationResult
    from osmosis_ai.cli.root import Invocation


@click.command("stop")
@click.argument("name")
@click.option("-y", "--yes", is_flag=True, help="Stop it without asking.")
@click.pass_obj
def command(invocation: Invocation, name: str, yes: bool) -> OperationResult:
    """Stop a training run that has not ended.

    NAME is the run's name or id. Results so far are kept.
    """
    from osmosis_ai.cli.run_stops import stop_run

    return stop_run(invocation, "training-runs", name, yes=yes)
