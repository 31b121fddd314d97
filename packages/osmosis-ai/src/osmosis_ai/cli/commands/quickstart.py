"""`osmosis quickstart`: its options. The wizard is `osmosis_ai.cli.quickstart`."""

from __future__ import annotations

import click

from osmosis_ai.cli.results import OperationResult
from osmosis_ai.cli.root import Invocation


@click.command("quickstart")
@click.option("-w", "--workspace", metavar="TEXT", help="Set this workspace up, without asking which.")
@click.pass_obj
def command(invocation: Invocation, workspace: str | None) -> OperationResult:
    """Log in, clone the workspace, and get the first text for a coding agent.

    Every step looks first, so it can be run again at any time: what is done already is only reported.
    """
    from osmosis_ai.cli.quickstart import run_wizard

    return run_wizard(invocation.output, workspace or invocation.workspace)
