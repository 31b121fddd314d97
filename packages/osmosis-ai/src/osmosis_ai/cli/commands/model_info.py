"""`osmosis model info`: its argument. Models are shown by `osmosis_ai.cli.models`."""

from __future__ import annotations

import click

from osmosis_ai.cli.results import DetailResult
from osmosis_ai.cli.root import Invocation


@click.command("info")
@click.argument("model")
@click.pass_obj
def command(invocation: Invocation, model: str) -> DetailResult:
    """Show a LoRA model or a base model.

    MODEL is a LoRA model's name, a base model's name, or a base model's path such as Qwen/Qwen3-4B. A name is looked
    for among the LoRA models first.
    """
    from osmosis_ai.cli.models import show_model

    return show_model(invocation, model)
