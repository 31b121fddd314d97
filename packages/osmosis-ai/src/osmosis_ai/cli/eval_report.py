"""What an evaluation came to: the figures, why rollouts failed, where the files are, what to type next."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from osmosis_ai.cli.figures import (
    cause_text,
    count_text,
    dollars_text,
    duration_text,
    path_text,
    plural,
    rate_text,
    reward_text,
)
from osmosis_ai.cli.results import Block, Cell, Column, Fields, OperationResult, Status, Table, Text
from osmosis_ai.evaluation.verdict import Outcome

if TYPE_CHECKING:
    from osmosis_ai.cli.eval_flags import EvalFlags
    from osmosis_ai.cli.eval_upload import Published
    from osmosis_ai.evaluation.report import Cause, RunReport
    from osmosis_ai.evaluation.run import RunRequest
    from osmosis_ai.workspace.repository import Origin

_FILES = ("metrics.json", "summary.jsonl", "trajectories/", "artifacts/", "logs.txt")
_CAUSES_SHOWN = 10
_ROWS_SHOWN = 15
_MESSAGE_WIDTH = 240


def run_result(
    report: RunReport, flags: EvalFlags, request: RunRequest, origin: Origin | None, published: Published | None = None
) -> OperationResult:
    """The result of an invocation that did work."""
    status: Status = "success"
    exit_status: int | None = None
    done = report.succeeded + report.failed + report.skipped
    if report.status != "finished":
        status = "partial"
        reason = report.halt_reason or "it was stopped"
        message = f"Stopped: {reason}. {done:,} of {plural(report.total, 'work item')} have a verdict."
        if remedy := _remedy(report.halt_code):
            message += f" {remedy}"
    elif report.succeeded == 0:
        status = "partial"
        message = f"Nothing was graded: {_none_graded(report)}."
    else:
        message = (
            f"{report.metrics.get('passed', 0):,} of {plural(report.metrics['completed_samples'], 'rollout')} passed."
        )
        if (shortfall := _below(report, flags)) is not None:
            exit_status, message = 1, f"{message} {shortfall}"
    return OperationResult(
        operation="eval.run",
        status=status,
        message=message,
        resource=_resource(report, request, origin, published),
        blocks=[*_why(report, request.config.n), _figures(report)],
        next_steps=_next_steps(report, flags, published),
        exit_status=exit_status,
    )


def noop_result(
    report: RunReport, flags: EvalFlags, request: RunRequest, origin: Origin | None, published: Published | None = None
) -> OperationResult:
    """The result when every work item had its verdict before: nothing ran, no file was touched."""
    message = f"Nothing to run: {report.run_name} is finished."
    exit_status = None
    if flags.fail_under is not None and (shortfall := _below(report, flags)) is not None:
        exit_status, message = 1, f"{message} {shortfall}"
    return OperationResult(
        operation="eval.run",
        message=message,
        resource=_resource(report, request, origin, published),
        blocks=[_figures(report)],
        next_steps=_next_steps(report, flags, published),
        exit_status=exit_status,
    )


def _none_graded(report: RunReport) -> str:
    if report.failed and report.skipped:
        return f"{plural(report.failed, 'rollout')} failed, {report.skipped:,} skipped"
    count = report.failed or report.skipped
    which = f"all {count:,} rollouts" if count > 1 else "the only rollout"
    return f"{which} {'failed' if report.failed else 'gave no reward'}"


def _below(report: RunReport, flags: EvalFlags) -> str | None:
    if flags.fail_under is None:
        return None
    if report.succeeded == 0:
        return "Nothing was graded, which --fail-under does not accept."
    rate = report.metrics.get("pass_rate", 0.0)
    return (
        f"The pass rate of {rate_text(rate)} is below --fail-under {flags.fail_under:g}."
        if rate < flags.fail_under
        else None
    )


def cause_table(causes: Sequence[Cause]) -> Table:
    """Why rollouts failed, the most frequent first."""
    rows = [
        (Text(str(cause.fault), "bad"), cause.code, f"{cause.count:,}", _short(cause.message))
        for cause in causes[:_CAUSES_SHOWN]
    ]
    more = len(causes) - len(rows)
    columns = [Column("Fault"), Column("Code"), Column("Count", right=True), Column("Message")]
    note = f"and {plural(more, 'other cause')}" if more else ""
    return Table(columns, rows, title="Why rollouts failed", note=note)


def _why(report: RunReport, n: int) -> list[Block]:
    """The cause table and the rows without a reward."""
    blocks: list[Block] = []
    if report.causes:
        blocks.append(cause_table(report.causes))
    if report.failures:
        rows = []
        for failure in report.failures[:_ROWS_SHOWN]:
            skipped = failure.outcome is Outcome.SKIPPED
            source = failure.source_row_index
            row: list[Cell] = [str(source if source is not None else failure.key[0])]
            row += [str(failure.key[1])] if n > 1 else []
            row.append(Text("skipped", "warn") if skipped else Text("failed", "bad"))
            row.append("no reward" if skipped else cause_text(str(failure.fault), failure.code))
            rows.append(row)
        more = len(report.failures) - len(rows)
        note = f"and {more:,} more" if more else ""
        columns = [Column("Row", right=True), *([Column("Run", right=True)] if n > 1 else [])]
        columns += [Column("Outcome"), Column("Cause")]
        blocks.append(Table(columns, rows, title="Rows without a reward", note=note))
    return blocks


def _remedy(halt_code: str | None) -> str | None:
    """What to do when the policy stopped the run."""
    if halt_code is None or not halt_code.startswith("policy_"):
        return None
    from osmosis_ai.evaluation.preflight import REMEDIES

    return REMEDIES.get(halt_code.removeprefix("policy_"))


def _figures(report: RunReport) -> Fields:
    metrics = report.metrics
    ended = report.succeeded + report.failed + report.skipped
    outcomes = [f"{report.succeeded:,} graded", f"{report.failed:,} failed", f"{report.skipped:,} skipped"]
    outcomes += [f"{report.total - ended:,} not done"] if report.total > ended else []
    shown = [outcome for outcome in outcomes if not outcome.startswith("0 ")]
    rows: list[tuple[str, Cell]] = [
        ("Run", report.run_name),
        ("Work Items", f"{report.total:,}"),
        ("Outcomes", Text(" · ".join(shown), None if len(shown) == 1 and report.succeeded else "warn")),
    ]
    if completed := metrics.get("completed_samples", 0):
        counted = f"{metrics['passed']:,} of {completed:,}, reward ≥ {metrics['pass_threshold']:g}"
        interval = _rate_interval(report.figures) if report.succeeded else ""  # without a reward there is no estimate
        rows.append(("Pass Rate", f"{rate_text(metrics['pass_rate'])}  ({counted}{interval})"))
    if stats := metrics.get("reward_stats"):
        spread = f"median {reward_text(stats['median'])}, {reward_text(stats['min'])} to {reward_text(stats['max'])}"
        rows.append(("Reward", f"{reward_text(stats['mean'])}{_reward_interval(report.figures)}  ({spread})"))
    rows += [(f"pass@{point['k']}", rate_text(point["value"])) for point in metrics.get("pass_at_k", ())]
    rows += [(f"pass^{point['k']}", rate_text(point["value"])) for point in report.figures.get("pass_hat_k", ())[1:]]
    if tokens := metrics.get("tokens_used"):
        rows.append(("Tokens Used", f"{tokens:,}  ({count_text(round(tokens / max(1, ended)))} a rollout)"))
    if report.cost_usd is not None:
        rows.append(("Cost", dollars_text(report.cost_usd)))
    rows.append(("Duration", duration_text(report.duration_ms / 1000)))
    rows.append(("Output", path_text(report.run_dir)))
    if files := [name for name in _FILES if (report.run_dir / name).exists()]:
        rows.append(("Files", ", ".join(files)))
    return Fields(rows, title="Results")


def _rate_interval(figures: Mapping[str, Any]) -> str:
    """The 95 % interval over rows; a single row has none worth showing."""
    rate = figures.get("pass_rate") or {}
    if rate.get("rows", 0) < 2 or "low" not in rate:
        return ""
    return f"; 95% interval {100 * rate['low']:.1f} to {100 * rate['high']:.1f}%"


def _reward_interval(figures: Mapping[str, Any]) -> str:
    reward = figures.get("reward") or {}
    reach = (reward["high"] - reward["low"]) / 2 if "low" in reward else 0.0
    return f" ± {reach:.2g}" if reach else ""


def _next_steps(report: RunReport, flags: EvalFlags, published: Published | None) -> list[str]:
    name = report.run_name
    steps: list[tuple[str, str]] = []
    if report.status != "finished":
        steps.append(("Go on", continuation(flags, name)))
    elif report.failed or report.skipped:
        again = ("--retry-failed", "--upload") if published else ("--retry-failed",)
        steps.append(("Try failed and skipped rows again", continuation(flags, name, *again)))
    where = f" -o {shlex.quote(flags.output)}" if flags.output else ""
    shown = shlex.quote(str(report.run_dir)) if where else name
    if report.succeeded or report.failed or report.skipped:
        failed = " --failed" if report.failed else ""
        steps.append(("Read a failed rollout" if failed else "Read a rollout", f"osmosis eval view {shown}{failed}"))
        steps.append(("Compare with another run", f"osmosis eval compare {shown} <other run>"))
    if published is not None:
        steps.append(("View on the platform", published.url))
    return [line for label, command in steps for line in (f"{label}:", f"  {command}")]


def continuation(flags: EvalFlags, name: str, *extra: str) -> str:
    """The command line that continues this run, with everything that matters for it."""
    words = ["osmosis", "eval", "run", str(flags.config)]
    for option, value in (
        ("--dataset-file", flags.dataset_file),
        ("--model", flags.model),
        ("--name", name),
        ("--output", flags.output),
        ("--rows", flags.rows),
        ("--secrets-file", flags.secrets_file),
        ("--max-in-flight", flags.max_in_flight),
        ("--tunnel", flags.tunnel),
        ("--listener-port", flags.listener_port),
        ("--advertise-url", flags.advertise_url),
        ("--rollout-port", flags.rollout_port),
        ("--max-cost", flags.max_cost_usd),
        ("--fail-under", flags.fail_under),
    ):
        if value is not None:
            words += [option, str(value)]
    return shlex.join([*words, *extra])


def _resource(
    report: RunReport, request: RunRequest, origin: Origin | None, published: Published | None
) -> dict[str, Any]:
    resource: dict[str, Any] = {
        "run_name": report.run_name,
        "local_run_id": report.local_run_id,
        "output_path": str(report.run_dir),
        "dataset_source": request.dataset_source,
        "total_work_items": report.total,
        "dispatched": report.dispatched,
        "succeeded": report.succeeded,
        "failed": report.failed,
        "skipped": report.skipped,
        "resumed": report.resumed,
        "cancelled": report.cancelled,
        "duration_ms": report.duration_ms,
        "metrics": dict(report.metrics),
        "failed_rows": [
            {
                "row_index": failure.key[0],
                "source_row_index": failure.source_row_index,
                "run_index": failure.key[1],
                "rollout_id": failure.rollout_id,
                "error_type": failure.code,
                "rollout_dir": str(report.run_dir / "rollout_trials" / failure.rollout_id),
                "outcome": str(failure.outcome),
                "fault": str(failure.fault) if failure.fault else None,
                "message": failure.message,
            }
            for failure in report.failures
        ],
        "causes": [
            {"fault": str(cause.fault), "code": cause.code, "message": cause.message, "count": cause.count}
            for cause in report.causes
        ],
        "cost_usd": report.cost_usd,
        "workspace_directory": str(request.workspace_dir),
    }
    if report.halt_reason is not None:
        resource["halt"] = {"code": report.halt_code, "reason": report.halt_reason}
    if published is not None:
        resource |= {"upload": dict(published.resource), "platform_url": published.url}
    if origin is not None:
        resource["git"] = {"identity": origin.identity, "remote_url": origin.remote_url}
    return resource


def _short(message: str) -> str:
    line = " ".join(message.split())
    return line if len(line) <= _MESSAGE_WIDTH else f"{line[:_MESSAGE_WIDTH]}…"
