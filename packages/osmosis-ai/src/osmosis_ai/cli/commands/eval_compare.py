"""`osmosis eval compare`: its arguments. What it says is made in `osmosis_ai.cli.run_comparison`."""

from __future__ import annotations

import click

from osmosis_ai.cli.results import DetailResult


def _complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from osmosis_ai.cli.runs import complete_run

    return complete_run(context, parameter, incomplete)


@click.command("compare")
@click.argument("a", shell_complete=_complete)
@click.argument("b", shell_complete=_complete)
@click.option("--pass-threshold", type=float, metavar="REWARD", help="A reward that passes in both; A's by default.")
@click.option("--any-dataset", is_flag=True, help="Compare by row position although the datasets differ.")
def command(a: str, b: str, pass_threshold: float | None, any_dataset: bool) -> DetailResult:
    """Say what differs between two runs, and whether it is chance.

    A is the run to compare with and B the new one: names under .osmosis/evals, or directories. Only rows in both
    count. Rows that changed sides come first; then how large the difference is, how sure one can be of it, and what
    was left out.
    """
    import math

    from osmosis_ai.errors import ValidationError

    if pass_threshold is not None and not math.isfinite(pass_threshold):
        raise ValidationError("--pass-threshold must be a finite number.")
    from osmosis_ai.cli.run_comparison import comparison_result
    from osmosis_ai.cli.runs import find_run
    from osmosis_ai.evaluation.compare import compare
    from osmosis_ai.evaluation.results import read_run

    found = compare(
        read_run(find_run(a)), read_run(find_run(b)), pass_threshold=pass_threshold, any_dataset=any_dataset
    )
    return comparison_result(found, a, b)
