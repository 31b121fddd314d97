"""`osmosis template list`: the starter rollouts. Which there are is the workspace room's business."""

from __future__ import annotations

import click

from osmosis_ai.cli.results import Column, ListResult, Table


@click.command("list")
def command() -> ListResult:
    """List the starter rollouts that `osmosis template apply` copies into a workspace.

    The items are the catalogue of every client. This installation also has starters without a framework, which the text
    names below it: they need no package but ours.
    """
    from osmosis_ai.workspace.recipes import CATALOGUE, recipe_names, recipe_summary

    more = [name for name in recipe_names() if name not in CATALOGUE]
    return ListResult(
        items=[{"name": name} for name in CATALOGUE],
        table=Table([Column("Name", keep=True)], [[name] for name in CATALOGUE]),
        total_count=len(CATALOGUE),
        hints=[
            *(f"{name}: {recipe_summary(name)}" for name in CATALOGUE),
            "Also here, without a framework:",
            *(f"{name}: {recipe_summary(name)}" for name in more),
            "Add one: osmosis template apply NAME",
        ],
    )
