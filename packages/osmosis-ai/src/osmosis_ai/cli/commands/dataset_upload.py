"""`osmosis dataset upload`: its options. The transfer is `osmosis_ai.cli.dataset_transfer`'s."""

from __future__ import annotations

import click

from osmosis_ai.cli.results import OperationResult
from osmosis_ai.cli.root import Invocation


@click.command("upload")
@click.argument("file", type=click.Path())
@click.option("--overwrite", is_flag=True, help="Replace the dataset of the same name.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def command(invocation: Invocation, file: str, overwrite: bool, yes: bool) -> OperationResult:
    """Check FILE and upload it as a dataset.

    FILE is a csv, jsonl or parquet file of up to 5 GiB; the dataset is called like it, without the suffix. It is checked
    like `osmosis dataset validate` does before anything is sent.
    """
    from osmosis_ai.cli.dataset_transfer import upload_dataset

    return upload_dataset(invocation, file, overwrite=overwrite, yes=yes)
