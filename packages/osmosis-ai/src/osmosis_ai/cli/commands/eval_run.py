"""`osmosis eval run`: its options. What it does is `osmosis_ai.cli.evaluate`'s."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from osmosis_ai.cli.results import OperationResult
    from osmosis_ai.cli.root import Invocation


class _PanelledCommand(click.Command):
    """A command whose help lists the rarely used options last, under their own heading."""

    advanced = ("rollout_port", "listener_port", "advertise_url", "tunnel", "verbose")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        everyday, advanced = [], []
        for parameter in self.get_params(ctx):
            if isinstance(parameter, click.Option) and (record := parameter.get_help_record(ctx)) is not None:
                (advanced if parameter.name in self.advanced else everyday).append(record)
        for title, records in (("Options", everyday), ("Advanced", advanced)):
            with formatter.section(title):
                formatter.write_dl(records)


@click.command("run", cls=_PanelledCommand)
@click.argument("config_path", type=click.Path())
@click.option("--dataset-file", metavar="FILE", help="Evaluate this local file; no login is needed.")
@click.option("--model", metavar="MODEL", help="Evaluate this model instead of the config's model_path.")
@click.option("--name", metavar="NAME", help="Name of the run; the name of an existing run resumes it.")
@click.option("-o", "--output", metavar="DIR", help="Folder of the results.  [default: .osmosis/evals]")
@click.option("--rows", metavar="ROWS", help='Rows to take, such as "3,7,10-20"; wins over limit in the config.')
@click.option("--max-in-flight", type=int, metavar="N", help="Rollouts at once; wins over batch_size in the config.")
@click.option("--fresh", is_flag=True, help="Put the run of that name aside and start over.")
@click.option("--retry-failed", is_flag=True, help="Run failed and skipped items of that run again.")
@click.option(
    "--max-cost", "max_cost_usd", type=float, metavar="USD", help="Stop starting rollouts at this cost since now."
)
@click.option("--fail-under", type=float, metavar="RATE", help="End with status 1 below this pass rate (0 to 1).")
@click.option("--secrets-file", metavar="FILE", help="NAME=value lines for [secrets]; - reads standard input.")
@click.option("-y", "--yes", is_flag=True, help="Start without asking.")
@click.option("--upload", is_flag=True, help="Send the finished run to the platform.")
@click.option("--tunnel", metavar="cloudflared", help="Open a tunnel for agents that run elsewhere.")
@click.option("--rollout-port", type=int, metavar="PORT", help="Fixed port of the rollout server.")
@click.option("--listener-port", type=int, metavar="PORT", help="Fixed port of the model gateway.")
@click.option("--advertise-url", metavar="URL", help="Public address of the gateway, with --listener-port.")
@click.option("--verbose", is_flag=True, help="Show the lines of logs.txt while it runs.")
@click.pass_obj
def command(invocation: Invocation, config_path: str, **options: Any) -> OperationResult:
    """Evaluate an agent on a dataset, on this machine.

    CONFIG_PATH is a file under configs/eval/. Every row of the dataset becomes a rollout: the agent talks to the model,
    the grader gives a reward. Results are kept after each rollout, so a run that was stopped goes on where it ended.

    \b
    Examples:
      osmosis eval run configs/eval/my-agent.toml --dataset-file data/my-agent.jsonl
      osmosis eval run configs/eval/my-agent.toml --dataset-file data/my-agent.jsonl --rows 0-9
      osmosis eval run configs/eval/my-agent.toml --dataset-file data/my-agent.jsonl --name first --retry-failed
    """  # noqa: D301 - \b is click's mark for lines that stay as they are
    from pathlib import Path

    from osmosis_ai.cli.eval_flags import EvalFlags

    flags = EvalFlags(config=Path(config_path), **options)
    flags.check(invocation.output.warn)
    from osmosis_ai.extras import optional_imports

    with optional_imports("eval"):
        from osmosis_ai.cli.evaluate import evaluate
    return evaluate(invocation.output, flags)
