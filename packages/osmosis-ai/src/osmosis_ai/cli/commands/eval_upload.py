"""`osmosis eval upload`: its arguments. What it does is `osmosis_ai.cli.eval_upload`'s."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from osmosis_ai.cli.results import OperationResult
    from osmosis_ai.cli.root import Invocation


@click.command("upload")
@click.argument("eval_name_or_directory")
@click.option(
    "--replace",
    is_flag=True,
    help="Replace the published results of this run, for one tried again with --retry-failed.",
)
@click.pass_obj
def command(invocation: Invocation, eval_name_or_directory: str, replace: bool) -> OperationResult:
    """Publish a finished local evaluation.

    EVAL_NAME_OR_DIRECTORY is a run under .osmosis/evals, or a directory. Nothing is asked. An upload that broke off is
    resumed by running it again; the local results stay as they are.
    """
    from osmosis_ai.cli.eval_upload import upload_eval

    return upload_eval(invocation, eval_name_or_directory, replace=replace)
