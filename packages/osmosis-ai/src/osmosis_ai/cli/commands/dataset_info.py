"""`osmosis dataset info`: its argument. Datasets are shown by `osmosis_ai.cli.datasets`."""

from __future__ import annotations

import click

from osmosis_ai.cli.results import DetailResult
from osmosis_ai.cli.root import Invocation


@click.command("info")
@click.argument("name")
@click.pass_obj
def command(invocation: Invocation, name: str) -> DetailResult:
    """Show the dataset NAME (or id): its state, format, rows and size."""
    from osmosis_ai.cli.datasets import show_dataset

    return show_dataset(invocation, name)
