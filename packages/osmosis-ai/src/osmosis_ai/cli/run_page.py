"""The platform's page of a run, whichever kind it is: found by name or id, and opened where there is a browser."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Literal

from osmosis_ai.cli.results import OperationResult
from osmosis_ai.errors import NotFoundError

if TYPE_CHECKING:
    from pathlib import Path

    from osmosis_ai.cli.root import Invocation
    from osmosis_ai.client.session import PlatformClient

type RunKind = Literal["eval", "train", "benchmark"]

_PLACES: dict[RunKind, tuple[str, str]] = {
    "eval": ("/eval-runs", "eval_run"),
    "train": ("/training-runs", "training_run"),
    "benchmark": ("/benchmark-runs", "benchmark_run"),
}
"""Where each kind is asked for, and the key of a detail that holds the run."""


def open_run(invocation: Invocation, name: str, kind: RunKind | None, *, only_print: bool) -> OperationResult:
    """Find a run and open its page, or only say where it is.

    Args:
        invocation: The root options.
        name: Name or id.
        kind: Look among the runs of this kind only; else evaluations first, then trainings, then benchmarks.
        only_print: Open nothing. Nothing is opened either where nobody sits at a terminal.

    Raises:
        NotFoundError: No run is called so, or it has no page.
        OsmosisError: No scope, no login, or the platform's error.
    """
    from osmosis_ai.client.scope import resolve_scope
    from osmosis_ai.client.session import open_client

    scope = resolve_scope(invocation.workspace)
    output = invocation.output
    with open_client(scope, warn=output.warn) as client, output.working(f"Looking for {name}..."):
        found = _find(client, name, (kind,) if kind else tuple(_PLACES), scope.base_directory)
    url = found["platform_url"]
    opened = False
    if output.interactive and not only_print:
        from osmosis_ai.cli.desktop import open_page

        opened = open_page(url)
    return OperationResult(
        operation="open",
        resource={**found, "opened": opened, **scope.extras()},
        message=url,
        next_steps_structured=[{"action": "open_url", "url": url}],
    )


def _find(client: PlatformClient, name: str, kinds: tuple[RunKind, ...], base: Path) -> dict[str, Any]:
    from osmosis_ai.client.refusals import SCOPE_CODES, looked_for
    from osmosis_ai.client.session import segment
    from osmosis_ai.client.wire import Record

    unserved: list[NotFoundError] = []
    for kind in kinds:
        path, key = _PLACES[kind]
        try:
            reply = Record(client.get(f"{path}/{segment(name)}"), "run")
        except NotFoundError as error:
            if error.details.get("platform_code") in SCOPE_CODES:
                raise
            if not looked_for(error):
                unserved.append(error)
            continue
        run = reply.maybe_record(key) or reply
        url = run.maybe_text("platform_url") or reply.maybe_text("platform_url")
        if url is None:
            raise NotFoundError(f"The platform names no page of the {kind} run {name}. Read it: {_info(kind, name)}")
        return {"kind": kind, "id": run.text("id"), "name": run.maybe_text("name") or name, "platform_url": url}
    if "eval" in kinds and name not in ("", ".", "..") and (base / ".osmosis/evals" / name / "manifest.json").is_file():
        raise NotFoundError(
            f"The run {name} lies here and is not on the platform. Read it: osmosis eval view {shlex.quote(name)}\n"
            f"Publish it: osmosis eval upload {shlex.quote(name)}"
        )
    if len(unserved) == len(kinds):
        raise unserved[0]
    lists = " or ".join(f"osmosis {words} list" for words in _words(kinds))
    raise NotFoundError(f"There is no run {name} on the platform. See the names: {lists}")


def _words(kinds: tuple[RunKind, ...]) -> list[str]:
    return ["benchmark runs" if kind == "benchmark" else kind for kind in kinds]


def _info(kind: RunKind, name: str) -> str:
    return f"osmosis {_words((kind,))[0]} info {shlex.quote(name)}"
