"""The end of a managed run, asked for and confirmed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from osmosis_ai.cli.results import OperationResult

if TYPE_CHECKING:
    from osmosis_ai.cli.root import Invocation

_NOUNS = {"training-runs": ("train", "training run"), "eval-runs": ("eval", "evaluation run")}


def stop_run(invocation: Invocation, kind: str, name: str, *, yes: bool) -> OperationResult:
    """Stop a training or an evaluation.

    Args:
        invocation: The root options.
        kind: `training-runs` or `eval-runs`.
        name: Name or id.
        yes: Whether the user agreed on the command line.

    Raises:
        Cancelled: The user said no.
        OsmosisError: No scope, no login, nobody to ask, or the platform's error.
    """
    from osmosis_ai.client.scope import resolve_scope
    from osmosis_ai.client.session import open_client, segment

    group, noun = _NOUNS[kind]
    scope = resolve_scope(invocation.workspace)
    output = invocation.output
    with open_client(scope, warn=output.warn) as client:
        if not yes:
            output.confirm(f'Stop {noun} "{name}"?', default=False, summary={"Name": name})
        with output.working(f"Stopping {noun}..."):
            client.post(f"/{kind}/{segment(name)}/stop")
    return OperationResult(
        operation=f"{group}.stop",
        resource={"name": name, **scope.extras()},
        message=f'{noun.capitalize()} "{name}" stopped.',
    )


def stop_benchmark_run(invocation: Invocation, name: str, *, yes: bool) -> OperationResult:
    """Stop a benchmark run; it is looked up first, so that the question names the right one.

    Raises:
        Cancelled: The user said no.
        OsmosisError: No scope, no login, nobody to ask, or the platform's error.
    """
    from osmosis_ai.cli.benchmark_runs import fetch_run
    from osmosis_ai.client.scope import resolve_scope
    from osmosis_ai.client.session import open_client, segment

    scope = resolve_scope(invocation.workspace)
    output = invocation.output
    with open_client(scope, warn=output.warn) as client:
        with output.working("Fetching benchmark run..."):
            record, _ = fetch_run(client, name)
        shown = record["name"] or record["id"]
        if not yes:
            known = ", ".join(filter(None, (record["benchmark_name"], record["status"])))
            question = f'Stop benchmark run "{shown}"{f" ({known})" if known else ""}?'
            output.confirm(question, default=False, summary={"Name": shown})
        with output.working("Stopping benchmark run..."):
            client.post(f"/benchmark-runs/{segment(record['id'])}/stop")
    return OperationResult(
        operation="benchmark.stop",
        resource={"id": record["id"], "name": shown, "status": "stopped", **scope.extras()},
        message=f'Benchmark run "{shown}" stopped.',
    )
