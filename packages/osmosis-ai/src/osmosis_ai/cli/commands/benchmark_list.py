"""`osmosis benchmark list`: its options. The table is `osmosis_ai.cli.benchmarks`'s."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from osmosis_ai.cli.paging import page_options

if TYPE_CHECKING:
    from osmosis_ai.cli.results import ListResult
    from osmosis_ai.cli.root import Invocation


@click.command("list")
@page_options("benchmarks")
@click.pass_obj
def command(invocation: Invocation, limit: int, everything: bool) -> ListResult:
    """List the benchmarks that were added to the workspace."""
    from osmosis_ai.cli.benchmarks import BENCHMARKS
    from osmosis_ai.cli.listing import show_list

    return show_list(invocation, BENCHMARKS, "benchmarks", limit, everything)
