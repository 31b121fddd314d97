"""`osmosis rollout list`: its options. Rollouts are shown by `osmosis_ai.cli.rollouts`."""

from __future__ import annotations

import click

from osmosis_ai.cli.paging import page_options
from osmosis_ai.cli.results import ListResult
from osmosis_ai.cli.root import Invocation


@click.command("list")
@page_options("rollouts")
@click.option("--branch", metavar="TEXT", help="Rollouts of this branch; of the default branch unless given.")
@click.pass_obj
def command(invocation: Invocation, limit: int, everything: bool, branch: str | None) -> ListResult:
    """List the rollouts that the platform has found in this repository."""
    from osmosis_ai.cli.rollouts import list_rollouts

    return list_rollouts(invocation, branch, limit, everything)
