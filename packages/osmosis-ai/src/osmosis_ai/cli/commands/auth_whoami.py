"""`osmosis auth whoami`. The work is `osmosis_ai.cli.account`'s."""

from __future__ import annotations

import click

from osmosis_ai.cli.results import DetailResult
from osmosis_ai.cli.root import Invocation


@click.command("whoami")
@click.pass_obj
def command(invocation: Invocation) -> DetailResult:
    """Show the account, the platform, where the login comes from, and the linked workspace."""
    from osmosis_ai.cli.account import who_am_i

    return who_am_i(invocation.output)
