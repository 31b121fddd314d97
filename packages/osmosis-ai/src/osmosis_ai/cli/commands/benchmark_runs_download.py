"""`osmosis benchmark runs download`: its arguments. What it does is `osmosis_ai.cli.run_downloads`'s."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from osmosis_ai.cli.results import OperationResult
    from osmosis_ai.cli.root import Invocation


@click.command("download")
@click.argument("name")
@click.option(
    "--type", "types", metavar="TYPES", help="Of summary, results, artifacts, logs; or all.  [default: summary,results]"
)
@click.option("-o", "--output", metavar="DIR", help="Folder of the files.  [default: .osmosis/benchmarks/NAME]")
@click.option("--overwrite", is_flag=True, help="Fetch files again that are there already.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask above 100 MiB.")
@click.pass_obj
def command(
    invocation: Invocation, name: str, types: str | None, output: str | None, overwrite: bool, yes: bool
) -> OperationResult:
    """Fetch the outputs of a benchmark run.

    NAME is the run's name or id. Of a running one you get what is there now; --overwrite refreshes it later.
    """
    from osmosis_ai.cli.run_downloads import download_benchmark_run

    return download_benchmark_run(invocation, name, types=types, folder=output, overwrite=overwrite, yes=yes)
