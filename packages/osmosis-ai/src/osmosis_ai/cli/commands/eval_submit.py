"""`osmosis eval submit`: its arguments. What it does is `osmosis_ai.cli.submission`'s."""

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
    """Evaluate an agent on the platform.

    CONFIG_PATH is a file under configs/eval/ of the repository that the workspace is connected to. The platform takes
    the code from Git, so push it first; the config is sent as it is here. Values of secrets given here are for this run
    only: from --secrets-file, the environment, the platform's stored ones, a hidden prompt, in this order.
    """
    from osmosis_ai.cli.submission import submit

    return submit(invocation, "eval", config_path, yes=yes, secrets_file=secrets_file, dry_run=dry_run)
