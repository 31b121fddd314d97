"""`osmosis benchmark info`: its arguments. What it shows is made in `osmosis_ai.cli.benchmarks`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from osmosis_ai.cli.paging import check_paging, page_options

if TYPE_CHECKING:
    from osmosis_ai.cli.results import DetailResult
    from osmosis_ai.cli.root import Invocation


@click.command("info")
@click.argument("key")
@page_options("runs")
@click.pass_obj
def command(invocation: Invocation, key: str, limit: int, everything: bool) -> DetailResult:
    """Show a benchmark with its leaderboard and the workspace's runs of it.

    KEY is the benchmark's key, its exact name or its id.
    """
    check_paging(limit, everything)
    from osmosis_ai.cli.benchmarks import show_benchmark

    return show_benchmark(invocation, key, limit, everything)
