"""`osmosis eval retry`: its arguments. What it does is `osmosis_ai.cli.eval_runs`'s."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from osmosis_ai.cli.results import OperationResult
    from osmosis_ai.cli.root import Invocation


@click.command("retry")
@click.argument("name")
@click.option("-y", "--yes", is_flag=True, help="Retry without asking.")
@click.option("--secrets-file", metavar="FILE", help="NAME=value lines for this run; - reads standard input.")
@click.pass_obj
def command(invocation: Invocation, name: str, yes: bool, secrets_file: str | None) -> OperationResult:
    """Run the failed and skipped samples of an evaluation run again.

    NAME is the run's name or id; it has ended, and at least one sample has no reward. Graded samples stay as they are.
    The retry is billed like a new run of its samples.
    """
    from osmosis_ai.cli.eval_runs import retry_eval

    return retry_eval(invocation, name, yes=yes, secrets_file=secrets_file)
