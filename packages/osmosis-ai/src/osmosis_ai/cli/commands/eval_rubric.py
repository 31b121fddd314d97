"""`osmosis eval rubric`: its options, checked before anything is loaded. The scoring is `osmosis_ai.cli.rubric`'s."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from osmosis_ai.cli.results import OperationResult
    from osmosis_ai.cli.root import Invocation


@click.command("rubric")
@click.option("-d", "--data", required=True, metavar="FILE", help="JSONL file with the answers to score.")
@click.option("-r", "--rubric", required=True, metavar="TEXT", help="The rubric, or @FILE to read it from a file.")
@click.option("--model", required=True, metavar="MODEL", help="The judge, such as openai/gpt-5-mini.")
@click.option("-n", "--number", type=int, default=1, show_default=True, metavar="N", help="Judgements of each answer.")
@click.option("-o", "--output", metavar="PATH", help="Write the report to this file, or into this folder.")
@click.option("--api-key", metavar="KEY", help="Deprecated: it shows in the process list; use the environment.")
@click.option("--timeout", type=float, metavar="SECONDS", help="Limit of one judgement.")
@click.option("--score-min", type=float, default=0.0, show_default=True, help="The lowest score.")
@click.option("--score-max", type=float, default=1.0, show_default=True, help="The highest score.")
@click.pass_obj
def command(
    invocation: Invocation,
    data: str,
    rubric: str,
    model: str,
    number: int,
    output: str | None,
    api_key: str | None,
    timeout: float | None,
    score_min: float,
    score_max: float,
) -> OperationResult:
    """Score answers with a model as the judge.

    Every line of the file is an object with messages (the last assistant message is scored) or solution_str, and
    optionally ground_truth, original_input, metadata and id.

    \b
    Example:
      osmosis eval rubric -d answers.jsonl -r "Is the answer polite?" --model openai/gpt-5-mini
    """  # noqa: D301 - \b is click's mark for lines that stay as they are
    import math

    from osmosis_ai.cli.rubric import RubricJob, read_answers, read_rubric, score_answers
    from osmosis_ai.errors import ValidationError

    if number < 1:
        raise ValidationError(f"--number must be 1 or more, got {number}")
    if timeout is not None and not (math.isfinite(timeout) and timeout > 0):
        raise ValidationError(f"--timeout must be more than 0 seconds, got {timeout:g}")
    if not (math.isfinite(score_min) and math.isfinite(score_max) and score_min < score_max):
        raise ValidationError(
            f"--score-max must be above --score-min, both finite; got {score_min:g} and {score_max:g}"
        )
    if not model.strip():
        raise ValidationError("--model must name a model, such as openai/gpt-5-mini.")
    if api_key is not None:
        invocation.output.warn(
            "--api-key is deprecated: arguments show in the process list. Set the provider's environment variable.",
            "DEPRECATION",
        )
    text = read_rubric(rubric)
    answers = read_answers(data)
    job = RubricJob(data, answers, text, model.strip(), number, output, api_key, timeout, score_min, score_max)
    return score_answers(invocation.output, job)
