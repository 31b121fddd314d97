"""`osmosis secret list`: its options. Secrets are handled by `osmosis_ai.cli.secrets`."""

from __future__ import annotations

import click

from osmosis_ai.cli.paging import page_options
from osmosis_ai.cli.results import ListResult
from osmosis_ai.cli.root import Invocation


@click.command("list")
@page_options("secrets")
@click.option(
    "--scope", default="all", show_default=True, metavar="all|workspace|personal", help="Whose secrets to list."
)
@click.pass_obj
def command(invocation: Invocation, limit: int, everything: bool, scope: str) -> ListResult:
    """List the secrets you can use: names and dates, never values.

    Where a workspace secret and a personal one have the same name, your runs use the personal one.
    """
    from osmosis_ai.cli.secrets import list_secrets

    return list_secrets(invocation, scope, limit, everything)
