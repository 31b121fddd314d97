"""`osmosis train view`: its argument. What it shows is made in `osmosis_ai.cli.training_view`."""

from __future__ import annotations

import click

from osmosis_ai.cli.results import DetailResult


def _complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from osmosis_ai.cli.runs import complete_training

    return complete_training(context, parameter, incomplete)


@click.command("view")
@click.argument("run", shell_complete=_complete)
def command(run: str) -> DetailResult:
    """Draw the curves of a training, finished or not.

    RUN is the name of a run under .osmosis/trainings, or its directory. A run that is still going on is shown as far
    as it has come.

    \b
    Examples:
      osmosis train view brave-otter-7
      osmosis --json train view brave-otter-7
    """  # noqa: D301 - \b is click's mark for lines that stay as they are
    from osmosis_ai.cli.runs import find_run
    from osmosis_ai.cli.training_view import view_training

    return view_training(find_run(run, "trainings"))
