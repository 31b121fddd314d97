"""Lines that the details of every managed run have: configuration, secrets, times, durations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from osmosis_ai.cli.dates import ABSENT, moment_text, parse_moment
from osmosis_ai.cli.figures import duration_text
from osmosis_ai.cli.results import Cell, Fields, Text

if TYPE_CHECKING:
    from osmosis_ai.client.wire import Record

_SCOPES = {
    "workspace": "workspace",
    "user": "personal",
    "user_override": "personal, overrides workspace",
    "provided": "this run only",
}


def configuration_fields(detail: Record) -> Fields:
    """Entrypoint, config values, branch, commit, secrets and variables of a run with source."""
    rows: list[tuple[str, Cell]] = []
    if entrypoint := detail.maybe_text("entrypoint"):
        rows.append(("Entrypoint", entrypoint))
    if config := _config_text(detail.mapping("config")):
        rows.append(("Config", config))
    if branch := detail.maybe_text("branch"):
        rows.append(("Branch", branch))
    if commit := detail.maybe_text("commit_sha"):
        rows.append(("Commit", commit[:7]))
    if secrets := secrets_text(detail.mapping("resolved_secret_scopes")):
        rows.append(("Secrets", secrets))
    if variables := detail.mapping("env_config"):
        rows.append(
            ("Environment Variables", ", ".join(f"{name}={value}" for name, value in sorted(variables.items())))
        )
    return Fields(rows, title="Configuration")


def secrets_text(scopes: Mapping[str, Any]) -> str:
    """`A (workspace), B (personal)`."""
    return ", ".join(f"{name} ({_SCOPES.get(str(scope), scope)})" for name, scope in sorted(scopes.items()))


def _config_text(config: Mapping[str, Any]) -> str:
    """`k=v` pairs in order, one level of nesting as `k.sub=v`; the model stands elsewhere."""
    pairs = []
    for key, value in sorted(config.items()):
        if key == "model_path" or value is None:
            continue
        if isinstance(value, Mapping):
            pairs += [f"{key}.{name}={_value(inner)}" for name, inner in sorted(value.items())]
        else:
            pairs.append(f"{key}={_value(value)}")
    return ", ".join(pairs)


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def time_rows(record: Mapping[str, Any]) -> tuple[list[tuple[str, Cell]], list[tuple[str, Cell]]]:
    """Who submitted when, and when it started and ended."""
    submitted: list[tuple[str, Cell]] = [("Submitted", moment_text(record.get("created_at")))]
    if creator := record.get("creator_name"):
        submitted.append(("Submitted By", creator))
    labels = (("Started", "started_at"), ("Completed", "completed_at"))
    times: list[tuple[str, Cell]] = [(label, moment_text(record[key])) for label, key in labels if record.get(key)]
    return submitted, times


def duration_row(record: Mapping[str, Any], duration_ms: float | None = None) -> list[tuple[str, Cell]]:
    """How long it took: the platform's word for it, else from its times."""
    if duration_ms is None:
        started, ended = parse_moment(record.get("started_at")), parse_moment(record.get("completed_at"))
        if started is None or ended is None:
            return []
        duration_ms = max(0.0, (ended - started).total_seconds() * 1000)
    return [("Duration", duration_text(duration_ms / 1000))]


def name_rows(record: Mapping[str, Any], *, internal: bool) -> list[tuple[str, Cell]]:
    """The name, and the id where the account may see it."""
    name: Cell = Text(record.get("name") or record["id"], "strong")
    return [("Name", name), *([("ID", record["id"])] if internal else [])]


def who_cell(record: Mapping[str, Any]) -> str:
    """The creator in a table."""
    return record.get("creator_name") or ABSENT
