"""`osmosis secret delete`: its options. Secrets are handled by `osmosis_ai.cli.secrets`."""

from __future__ import annotations

import click

from osmosis_ai.cli.results import OperationResult
from osmosis_ai.cli.root import Invocation


@click.command("delete")
@click.argument("name")
@click.option(
    "--scope", default="personal", show_default=True, metavar="personal|workspace", help="Where the secret is."
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def command(invocation: Invocation, name: str, scope: str, yes: bool) -> OperationResult:
    """Delete the secret NAME from one scope."""
    from osmosis_ai.cli.secrets import delete_secret

    return delete_secret(invocation, name, scope, yes=yes)
