"""`osmosis upgrade`: its options. How an installation is upgraded is `osmosis_ai.cli.self_upgrade`'s."""

from __future__ import annotations

import click

from osmosis_ai.cli.results import OperationResult
from osmosis_ai.cli.root import Invocation


@click.command("upgrade")
@click.pass_obj
def command(invocation: Invocation) -> OperationResult:
    """Upgrade osmosis-ai to the latest release.

    Finds out how it was installed (uv tool, pipx or pip) and runs that tool. A development install is left alone.
    """
    from osmosis_ai.cli.self_upgrade import upgrade

    return upgrade(invocation.output)
