"""`osmosis auth logout`: its options. The work is `osmosis_ai.cli.account`'s."""

from __future__ import annotations

import click

from osmosis_ai.cli.results import OperationResult
from osmosis_ai.cli.root import Invocation


@click.command("logout")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def command(invocation: Invocation, yes: bool) -> OperationResult:
    """Take the login of the active platform back and forget it.

    Works without a network too: the login is forgotten here, and a warning says that the platform still knows it.
    """
    from osmosis_ai.cli.account import log_out

    return log_out(invocation.output, yes=yes)
