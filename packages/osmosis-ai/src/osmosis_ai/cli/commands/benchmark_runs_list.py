"""`osmosis benchmark runs list`: its options. The table is `osmosis_ai.cli.benchmark_runs`'s."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from osmosis_ai.cli.paging import page_options

if TYPE_CHECKING:
    from osmosis_ai.cli.results import ListResult
    from osmosis_ai.cli.root import Invocation


@click.command("list")
@page_options("benchmark runs")
@click.pass_obj
def command(invocation: Invocation, limit: int, everything: bool) -> ListResult:
    """List the benchmark runs of the workspace, the newest first."""
    from osmosis_ai.cli.benchmark_runs import BENCHMARK_RUNS
    from osmosis_ai.cli.listing import show_list

    return show_list(invocation, BENCHMARK_RUNS, "benchmark runs", limit, everything)
