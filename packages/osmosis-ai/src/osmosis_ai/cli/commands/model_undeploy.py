"""`osmosis model undeploy`: its argument. Deployments are changed by `osmosis_ai.cli.models`."""

from __future__ import annotations

import click

from osmosis_ai.cli.results import OperationResult
from osmosis_ai.cli.root import Invocation


@click.command("undeploy")
@click.argument("lora_model")
@click.pass_obj
def command(invocation: Invocation, lora_model: str) -> OperationResult:
    """Take the deployment of LORA_MODEL down. The model itself stays; doing it again changes nothing."""
    from osmosis_ai.cli.models import change_deployment

    return change_deployment(invocation, lora_model, "undeploy")
