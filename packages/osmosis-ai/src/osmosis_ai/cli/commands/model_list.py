"""`osmosis model list`: its options. Models are shown by `osmosis_ai.cli.models`."""

from __future__ import annotations

import click

from osmosis_ai.cli.paging import page_options
from osmosis_ai.cli.results import ListResult, ListsResult
from osmosis_ai.cli.root import Invocation


@click.command("list")
@page_options("models of each type")
@click.option("--type", "kind", default="all", show_default=True, metavar="all|base|lora", help="Which models.")
@click.pass_obj
def command(invocation: Invocation, limit: int, everything: bool, kind: str) -> ListResult | ListsResult:
    """List the base models, and the LoRA models that trainings made."""
    from osmosis_ai.cli.models import list_models

    return list_models(invocation, kind, limit, everything)
