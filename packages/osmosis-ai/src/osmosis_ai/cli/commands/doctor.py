"""`osmosis doctor`: shows the workspace room's checkup of a work tree, and the workspace it is linked to."""

from __future__ import annotations

import click

from osmosis_ai.cli.results import OperationResult


@click.command("doctor")
@click.argument("path", type=click.Path(exists=True), default=".")
@click.option("--fix", is_flag=True, help="Create what is missing. Existing files are never changed.")
def command(path: str, fix: bool) -> OperationResult:
    """Check that the workspace around PATH has its folders and agent files.

    Needs neither a login nor a network; with them it also says which workspace the repository is linked to.
    """
    from osmosis_ai.cli.doctor import examine

    return examine(path, fix=fix)
