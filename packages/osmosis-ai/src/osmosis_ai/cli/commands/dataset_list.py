"""`osmosis dataset list`: its options. Datasets are shown by `osmosis_ai.cli.datasets`."""

from __future__ import annotations

import click

from osmosis_ai.cli.paging import page_options
from osmosis_ai.cli.results import ListResult
from osmosis_ai.cli.root import Invocation


@click.command("list")
@page_options("datasets")
@click.pass_obj
def command(invocation: Invocation, limit: int, everything: bool) -> ListResult:
    """List the datasets of the workspace."""
    from osmosis_ai.cli.datasets import DATASETS
    from osmosis_ai.cli.listing import show_list

    return show_list(invocation, DATASETS, "datasets", limit, everything)
