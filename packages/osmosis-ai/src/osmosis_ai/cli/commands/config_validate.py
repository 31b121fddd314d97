"""`osmosis config validate`: its arguments. The checks are `osmosis_ai.cli.config_validation`'s."""

from __future__ import annotations

import click

from osmosis_ai.cli.results import DetailResult


@click.command("validate")
@click.argument("file", type=click.Path())
@click.option(
    "--kind",
    type=click.Choice(("eval", "training", "benchmark")),
    help="What the file is for; found out from its folder or its sections by default.",
)
def command(file: str, kind: str | None) -> DetailResult:
    """Check a config file without a network or a login.

    FILE is an eval, training or benchmark config. Everything wrong is told at once, each finding with its key, its line
    and what was probably meant. The rollout's folder and entrypoint must exist; nothing is run.
    """
    from pathlib import Path

    from osmosis_ai.cli.config_validation import validate_config

    return validate_config(Path(file), kind)
