"""`osmosis secret set`: its options. Secrets are handled by `osmosis_ai.cli.secrets`."""

from __future__ import annotations

import click

from osmosis_ai.cli.results import OperationResult
from osmosis_ai.cli.root import Invocation


@click.command("set")
@click.argument("name")
@click.option(
    "--scope",
    default="personal",
    show_default=True,
    metavar="personal|workspace",
    help="For you alone, or shared with the workspace.",
)
@click.option("--env", "variable", metavar="VARNAME", help="Take the value from this environment variable.")
@click.pass_obj
def command(invocation: Invocation, name: str, scope: str, variable: str | None) -> OperationResult:
    """Store the secret NAME, or give it a new value.

    NAME has capital letters, digits and underscores. The value is typed unseen, or comes from the variable that --env
    names; it is never an argument, where others could read it.

    \b
    Examples:
      osmosis secret set OPENAI_API_KEY
      osmosis secret set OPENAI_API_KEY --env OPENAI_API_KEY --scope workspace
    """  # noqa: D301 - \b is click's mark for lines that stay as they are
    from osmosis_ai.cli.secrets import set_secret

    return set_secret(invocation, name, scope, variable)
