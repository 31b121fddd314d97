"""`osmosis workspace list`: its options. Workspaces are read by `osmosis_ai.client.workspaces`."""

from __future__ import annotations

import click

from osmosis_ai.cli.results import ListResult
from osmosis_ai.cli.root import Invocation


@click.command("list")
@click.pass_obj
def command(invocation: Invocation) -> ListResult:
    """List the workspaces of the account, with the repository that each is connected to.

    The names are what --workspace takes.
    """
    from osmosis_ai.cli.workspaces import list_all

    return list_all(invocation.output)
