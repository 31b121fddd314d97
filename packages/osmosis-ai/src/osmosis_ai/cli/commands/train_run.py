"""`osmosis train run`: its options. What it does is `osmosis_ai.cli.train`'s."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from osmosis_ai.cli.results import OperationResult
    from osmosis_ai.cli.root import Invocation


@click.command("run")
@click.argument("config_path", type=click.Path())
@click.option("--dataset-file", metavar="FILE", help="Train on this local file; no login is needed.")
@click.option("--name", metavar="NAME", help="Name of the run.")
@click.option("--resume", is_flag=True, help="Go on where the run of that name, or the latest of this config, ended.")
@click.option("--engine", metavar="ENGINE", help="numpy or torch: who owns the weights.  [default: numpy]")
@click.option("-o", "--output", metavar="DIR", help="Folder of the results.  [default: .osmosis/trainings]")
@click.option("--max-steps", type=int, metavar="N", help="Stop after so many steps.")
@click.option("--rows", metavar="ROWS", help='Rows of the dataset to use, such as "3,7,10-20".')
@click.option("--secrets-file", metavar="FILE", help="NAME=value lines for [secrets]; - reads standard input.")
@click.option("-y", "--yes", is_flag=True, help="Start without asking.")
@click.pass_obj
def command(invocation: Invocation, config_path: str, **options: Any) -> OperationResult:
    """Train an adapter on a dataset, on this machine.

    CONFIG_PATH is a file under configs/training/. Each step samples several rollouts of some rows with your agent, your
    grader gives rewards, and the model learns from what did better than the rest of its group. The reward is drawn
    while it runs; checkpoints are LoRA adapters in PEFT format. Ctrl-C stops at the end of a step.

    \b
    Examples:
      osmosis train run configs/training/my-agent.toml --dataset-file data/my-agent.jsonl
      osmosis train run configs/training/my-agent.toml --dataset-file data/my-agent.jsonl --max-steps 20
      osmosis train run configs/training/my-agent.toml --dataset-file data/my-agent.jsonl --name first --resume
    """  # noqa: D301 - \b is click's mark for lines that stay as they are
    from pathlib import Path

    from osmosis_ai.cli.train_flags import TrainFlags

    flags = TrainFlags(config=Path(config_path), **options)
    flags.check()
    from osmosis_ai.extras import optional_imports

    with optional_imports("eval"):
        from osmosis_ai.cli.train import train
    return train(invocation.output, flags)
