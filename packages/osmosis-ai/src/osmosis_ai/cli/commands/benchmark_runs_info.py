"""`osmosis benchmark runs info`: its arguments. What it shows is made in `osmosis_ai.cli.benchmark_runs`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from osmosis_ai.cli.results import DetailResult
    from osmosis_ai.cli.root import Invocation


@click.command("info")
@click.argument("name")
@click.pass_obj
def command(invocation: Invocation, name: str) -> DetailResult:
    """Show a benchmark run with its agents and totals.

    NAME is the run's name or id.
    """
    from osmosis_ai.cli.benchmark_runs import show_run

    return show_run(invocation, name)
