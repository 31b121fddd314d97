"""`osmosis open`: its options. Runs are found by `osmosis_ai.cli.run_page`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from osmosis_ai.cli.results import OperationResult
from osmosis_ai.cli.root import Invocation

if TYPE_CHECKING:
    from osmosis_ai.cli.run_page import RunKind


@click.command("open")
@click.argument("run")
@click.option(
    "--kind", type=click.Choice(["eval", "train", "benchmark"]), help="Look among the runs of this kind only."
)
@click.option("--print", "only_print", is_flag=True, help="Say where the page is; open nothing.")
@click.pass_obj
def command(invocation: Invocation, run: str, kind: RunKind | None, only_print: bool) -> OperationResult:
    """Open the page of RUN (name or id) on the platform.

    Evaluations are looked through first, then trainings, then benchmark runs. Away from a terminal the address is
    printed and nothing is opened.
    """
    from osmosis_ai.cli.run_page import open_run

    return open_run(invocation, run, kind, only_print=only_print)
