"""`osmosis eval view`: its options. What it shows is made in `osmosis_ai.cli.run_view`."""

from __future__ import annotations

import click

from osmosis_ai.cli.results import DetailResult, ListResult
from osmosis_ai.errors import ValidationError


def _complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from osmosis_ai.cli.runs import complete_run

    return complete_run(context, parameter, incomplete)


@click.command("view")
@click.argument("run", shell_complete=_complete)
@click.option("--row", type=click.IntRange(min=0), metavar="ROW", help="Show this row of the dataset, from 0.")
@click.option("--run", "attempt", type=click.IntRange(min=0), metavar="N", help="Which attempt at the row, from 0.")
@click.option("--failed", is_flag=True, help="Only rollouts that failed.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, metavar="N", help="Length of the list."
)
@click.option("--all", "everything", is_flag=True, help="The whole list.")
def command(
    run: str, row: int | None, attempt: int | None, failed: bool, limit: int, everything: bool
) -> DetailResult | ListResult:
    """Read one trajectory of a run in the terminal.

    RUN is the name of a run under .osmosis/evals, or its directory. Without --row it lists the rollouts to choose
    from, the worst first.

    \b
    Examples:
      osmosis eval view brave-otter-7
      osmosis eval view brave-otter-7 --row 12
    """  # noqa: D301 - \b is click's mark for lines that stay as they are
    if everything and limit != 50:
        raise ValidationError("--all and --limit are mutually exclusive.")
    if attempt is not None and row is None:
        raise ValidationError("--run chooses among the attempts at a row; say which row with --row.")
    from osmosis_ai.cli.run_view import list_rollouts, show_rollout
    from osmosis_ai.cli.runs import find_run
    from osmosis_ai.evaluation.results import read_run

    results = read_run(find_run(run))
    if row is None:
        return list_rollouts(results, run, failed=failed, limit=None if everything else limit)
    return show_rollout(results, run, row, attempt, failed=failed)
