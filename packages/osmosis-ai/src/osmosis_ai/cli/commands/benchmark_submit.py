"""`osmosis benchmark submit`: its arguments. What it does is `osmosis_ai.cli.benchmark_submission`'s."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from osmosis_ai.cli.results import OperationResult
    from osmosis_ai.cli.root import Invocation


@click.command("submit")
@click.argument("config_path", type=click.Path())
@click.option("-y", "--yes", is_flag=True, help="Submit without asking.")
@click.option("--secrets-file", metavar="FILE", help="NAME=value lines for [secrets]; - reads standard input.")
@click.option("--dry-run", is_flag=True, help="Check everything and show what would be sent; send nothing.")
@click.pass_obj
def command(
    invocation: Invocation, config_path: str, yes: bool, secrets_file: str | None, dry_run: bool
) -> OperationResult:
    """Run agents on a benchmark of the workspace.

    CONFIG_PATH is any readable TOML file; configs/benchmark/ is the usual place. Keys of models, harnesses, judges and
    verifiers must be stored on the platform; only [secrets].required may be given for one run.
    """
    from osmosis_ai.cli.benchmark_submission import submit_benchmark

    return submit_benchmark(invocation, config_path, yes=yes, secrets_file=secrets_file, dry_run=dry_run)
