"""A page of a log as a result; the logs of every kind of run and of datasets look alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from osmosis_ai.cli.dates import moment_text
from osmosis_ai.cli.results import Cell, Column, ListResult, Role, Table, Text

if TYPE_CHECKING:
    from osmosis_ai.cli.root import Invocation

_ROLES: dict[str, Role] = {
    "error": "bad",
    "fatal": "bad",
    "critical": "bad",
    "warning": "warn",
    "warn": "warn",
    "debug": "dim",
}
_COLUMNS = (Column("Time", keep=True), Column("Level"), Column("Step"), Column("Message"))


def show_log(invocation: Invocation, kind: str, name: str, words: str, limit: int, cursor: str | None) -> ListResult:
    """Fetch a page of a log.

    Args:
        invocation: The root options.
        kind: First part of the path, such as `training-runs`.
        name: Name or id of the thing.
        words: The command's words, for the hint that leads to older lines.
        limit: Most lines.
        cursor: From the page before, or None.

    Raises:
        OsmosisError: No scope, no login, or the platform's error.
    """
    from osmosis_ai.client.scope import resolve_scope
    from osmosis_ai.client.session import open_client, segment

    scope = resolve_scope(invocation.workspace)
    with open_client(scope, warn=invocation.output.warn) as client, invocation.output.working("Fetching logs..."):
        page = client.logs(f"/{kind}/{segment(name)}/logs", limit=limit, cursor=cursor)
    hints = [f"Older lines: osmosis {words} {name} --cursor {page.next_cursor}"] if page.next_cursor else []
    if not page.entries:
        hints = ["There are no older lines." if cursor else "There are no log lines yet."]
    return ListResult(
        items=page.entries,
        table=Table(_COLUMNS, [_row(entry) for entry in page.entries], title="Logs"),
        total_count=len(page.entries),
        has_more=page.next_cursor is not None,
        hints=hints,
        extras={"next_cursor": page.next_cursor, **scope.extras()},
    )


def _row(entry: dict[str, Any]) -> list[Cell]:
    level = entry["level"]
    return [moment_text(entry["timestamp"]), Text(level, _ROLES.get(level.lower())), entry["step"], entry["message"]]
