"""`osmosis dataset download`: its options. The transfer is `osmosis_ai.cli.dataset_transfer`'s."""

from __future__ import annotations

import click

from osmosis_ai.cli.results import OperationResult
from osmosis_ai.cli.root import Invocation


@click.command("download")
@click.argument("name")
@click.option("-o", "--output", type=click.Path(), metavar="PATH", help="A file, or an existing folder.")
@click.option("--overwrite", is_flag=True, help="Replace a file that exists.")
@click.pass_obj
def command(invocation: Invocation, name: str, output: str | None, overwrite: bool) -> OperationResult:
    """Fetch the file of the dataset NAME (or id) into the current directory."""
    from osmosis_ai.cli.dataset_transfer import download_dataset

    return download_dataset(invocation, name, output, overwrite=overwrite)
