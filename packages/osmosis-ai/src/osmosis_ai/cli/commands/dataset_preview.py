"""`osmosis dataset preview`: its options. Datasets are shown by `osmosis_ai.cli.datasets`."""

from __future__ import annotations

import click

from osmosis_ai.cli.results import DetailResult
from osmosis_ai.cli.root import Invocation


@click.command("preview")
@click.argument("name")
@click.option("--rows", type=click.IntRange(min=0), default=5, show_default=True, metavar="N", help="How many rows.")
@click.pass_obj
def command(invocation: Invocation, name: str, rows: int) -> DetailResult:
    """Show the first rows of the dataset NAME (or id), as the platform keeps them."""
    from osmosis_ai.cli.datasets import preview_dataset

    return preview_dataset(invocation, name, rows)
