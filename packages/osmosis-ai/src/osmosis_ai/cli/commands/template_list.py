"""`osmosis template list`: the starter rollouts. Which there are is the workspace room's business."""

from __future__ import annotations

import click

from osmosis_ai.cli.results import Column, ListResult, Table


@click.command("list")
def command() -> ListResult:
    """List the starter rollouts that `osmosis template apply` copies into a workspace."""
    from osmosis_ai.workspace.recipes import recipe_names, recipe_summary

    names = recipe_names()
    return ListResult(
        items=[{"name": name} for name in names],
        table=Table([Column("Name", keep=True)], [[name] for name in names]),
        total_count=len(names),
        hints=[*(f"{name}: {recipe_summary(name)}" for name in names), "Add one: osmosis template apply NAME"],
    )
