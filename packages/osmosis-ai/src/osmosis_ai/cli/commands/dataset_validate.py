"""`osmosis dataset validate`: shows what the evaluation room's check of a dataset found."""

from __future__ import annotations

import click

from osmosis_ai.cli.results import DetailResult, Fields, Lines, Text
from osmosis_ai.cli.root import Invocation
from osmosis_ai.errors import ValidationError


@click.command("validate")
@click.argument("file", type=click.Path())
@click.pass_obj
def command(invocation: Invocation, file: str) -> DetailResult:
    """Check a dataset before it is used or uploaded.

    FILE is a csv, jsonl or parquet file with at least 4 rows. Its columns are user_prompt and ground_truth (or label),
    or metadata with an object in every row. Everything wrong is told at once, with line numbers. No login is needed.
    """
    from pathlib import Path

    from osmosis_ai.cli.figures import size_text
    from osmosis_ai.evaluation.validate import validate_dataset

    report = validate_dataset(Path.cwd() / file)
    data = report.to_json()
    if not report.valid:
        raise ValidationError(report.full_message if invocation.output.format == "json" else report.message)
    rows = [
        ("File", report.file_name),
        ("Size", size_text(report.file_size)),
        ("Status", Text(f"Valid {report.extension} file", "good")),
    ]
    warnings = Lines([Text(f"⚠ {line}", "warn") for line in report.warnings])
    return DetailResult(data, [Fields(rows), warnings], title="Dataset Validation")
