"""`osmosis eval download`: its arguments. What it does is `osmosis_ai.cli.run_downloads`'s."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from osmosis_ai.cli.results import OperationResult
    from osmosis_ai.cli.root import Invocation


@click.command("download")
@click.argument("name")
@click.option(
    "--type",
    "types",
    metavar="TYPES",
    help="Of metrics, trajectories, artifacts, logs; or all.  [default: metrics,trajectories]",
)
@click.option("--rows", metavar="ROWS", help='Trajectories and artifacts of these rows only, such as "3,7,10-20".')
@click.option("-o", "--output", metavar="DIR", help="Folder of the files.  [default: .osmosis/evals/NAME]")
@click.option("--overwrite", is_flag=True, help="Fetch files again that are there already.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask above 100 MiB.")
@click.pass_obj
def command(
    invocation: Invocation,
    name: str,
    types: str | None,
    rows: str | None,
    output: str | None,
    overwrite: bool,
    yes: bool,
) -> OperationResult:
    """Fetch the outputs of an evaluation run.

    NAME is the run's name or id. Files that are there already are left out, so running it again fetches what is
    missing. The repository around the current directory says which workspace is meant.
    """
    from osmosis_ai.cli.run_downloads import download_eval

    return download_eval(invocation, name, types=types, rows=rows, folder=output, overwrite=overwrite, yes=yes)
