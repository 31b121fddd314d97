"""Datasets of a workspace as results: the list, one of them, its first rows.

Owns the record's keys. Uploading and downloading are `dataset_transfer`'s.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from osmosis_ai.cli.dates import ABSENT, date_cell, moment_text
from osmosis_ai.cli.figures import plural, size_text
from osmosis_ai.cli.listing import Listing, naming
from osmosis_ai.cli.results import Cell, Column, DetailResult, Fields
from osmosis_ai.cli.statuses import status_token, status_word

if TYPE_CHECKING:
    from osmosis_ai.cli.root import Invocation
    from osmosis_ai.client.scope import Scope
    from osmosis_ai.client.wire import Record

WAITING_STATUSES = frozenset({"pending", "uploading", "processing"})
"""What a dataset is in before it can be used."""
_NO_PREVIEW = "No preview available for this dataset."


def dataset_record(dataset: Record) -> dict[str, Any]:
    """A dataset with the keys of the JSON contract."""
    record = {
        "id": dataset.text("id"),
        "file_name": dataset.maybe_text("file_name") or "",
        "file_size": dataset.integer("file_size", 0),
        "status": dataset.maybe_text("status") or "",
        "file_format": dataset.maybe_text("file_format"),
        "original_file_format": dataset.maybe_text("original_file_format"),
        "row_count": dataset.maybe_int("row_count"),
        "original_file_size": dataset.maybe_int("original_file_size"),
        "creator_name": dataset.maybe_text("creator_name"),
        "created_at": dataset.maybe_text("created_at") or "",
        "updated_at": dataset.maybe_text("updated_at") or "",
    }
    if url := dataset.maybe_text("platform_url"):
        record["platform_url"] = url
    return record


def _row(item: Mapping[str, Any]) -> list[Cell]:
    return [
        item["file_name"],
        status_token(item["status"]),
        size_text(item["file_size"]),
        date_cell(item["created_at"]),
        item["creator_name"] or ABSENT,
    ]


DATASETS = Listing(
    path="/datasets",
    key="datasets",
    record=dataset_record,
    columns=(
        Column("Name", keep=True),
        Column("Status", keep=True),
        Column("Size", right=True),
        Column("Uploaded"),
        Column("Uploaded By"),
    ),
    row=_row,
    empty="There are no datasets yet. Upload one: osmosis dataset upload data/FILE.jsonl",
)


def show_dataset(invocation: Invocation, name: str) -> DetailResult:
    """One dataset.

    Raises:
        OsmosisError: No scope, no login, or the platform's error.
    """
    scope, dataset = _fetch(invocation, name)
    record = dataset_record(dataset)
    rows: list[tuple[str, Cell]] = [("File", record["file_name"])]
    if dataset.flag("is_internal_user"):
        rows.append(("ID", record["id"]))
    rows.append(("Status", status_word(record["status"])))
    if record["file_format"]:
        rows.append(("File Format", _format_text(record["file_format"], record["original_file_format"])))
    if record["row_count"] is not None:
        rows.append(("Total Rows", f"{record['row_count']:,}"))
    original = record["original_file_size"]
    size = size_text(record["file_size"]) + (f" (uncompressed: {size_text(original)})" if original else "")
    rows += [("Size", size), ("Uploaded", moment_text(record["created_at"]))]
    if record["creator_name"]:
        rows.append(("Uploaded By", record["creator_name"]))
    hints = [f"View: {record['platform_url']}"] if "platform_url" in record else []
    hints += (
        [f"See why: osmosis dataset logs {shlex.quote(record['file_name'])}"] if record["status"] == "error" else []
    )
    return DetailResult({**record, **scope.extras()}, [Fields(rows)], title="Dataset", hints=hints)


def preview_dataset(invocation: Invocation, name: str, wanted: int) -> DetailResult:
    """The first rows of a dataset, as the platform keeps them.

    Raises:
        OsmosisError: No scope, no login, or the platform's error.
    """
    from osmosis_ai.client.wire import finite

    scope, dataset = _fetch(invocation, name)
    record = dataset_record(dataset)
    kept = finite(dataset.fields.get("data_preview"))
    shown = kept[:wanted] if isinstance(kept, list) else kept
    returned = len(shown) if isinstance(shown, list) else int(shown is not None)
    data: dict[str, Any] = {
        "dataset": record,
        "rows": shown,
        "requested_rows": wanted,
        "returned_rows": returned,
        "available": kept is not None,
    }
    fields: list[tuple[str, Cell]] = [("Dataset", record["file_name"])]
    hints: list[str] = []
    if kept is None:
        data["message"] = _NO_PREVIEW
        fields += [("Status", status_word(record["status"])), ("Preview", _NO_PREVIEW)]
        if record["status"] in WAITING_STATUSES:
            hints = [f"It is not processed yet. Look again: osmosis dataset info {shlex.quote(record['file_name'])}"]
    elif isinstance(shown, list):
        total = record["row_count"]
        fields.append(("Rows", f"{returned:,} of {total:,}" if total is not None else plural(returned, "row")))
        fields += [(f"Row {number}", _value_text(row)) for number, row in enumerate(shown, 1)]
    else:
        fields.append(("Preview", _value_text(shown)))
    return DetailResult({**data, **scope.extras()}, [Fields(fields)], title="Dataset Preview", hints=hints)


def _fetch(invocation: Invocation, name: str) -> tuple[Scope, Record]:
    from osmosis_ai.client.scope import resolve_scope
    from osmosis_ai.client.session import open_client, segment
    from osmosis_ai.client.wire import Record

    scope = resolve_scope(invocation.workspace)
    with open_client(scope, warn=invocation.output.warn) as client, invocation.output.working("Fetching dataset..."):
        with naming("osmosis dataset list"):
            return scope, Record(client.get(f"/datasets/{segment(name)}"), "dataset")


def _format_text(now: str, original: str | None) -> str:
    uploaded = f" (uploaded as {original.upper()})" if original and original != now else ""
    return now.upper() + uploaded


def _value_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
