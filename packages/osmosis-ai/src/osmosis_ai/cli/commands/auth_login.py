"""`osmosis auth login`: its options. How logins are made and told is `osmosis_ai.cli.account`'s."""

from __future__ import annotations

import click

from osmosis_ai.cli.results import OperationResult
from osmosis_ai.cli.root import Invocation


@click.command("login")
@click.option(
    "--token",
    metavar="TEXT",
    help="Verify and store this personal token instead of opening a browser; - reads it from standard input.",
)
@click.pass_obj
def command(invocation: Invocation, token: str | None) -> OperationResult:
    """Log in to the platform.

    Shows a code and opens the page where it is confirmed. The login is kept in the system's keyring, or in a file that
    only you can read. Logins of several platforms stand side by side; --platform and OSMOSIS_PLATFORM_URL choose.
    """
    from osmosis_ai.cli.account import log_in

    return log_in(invocation.output, token)
