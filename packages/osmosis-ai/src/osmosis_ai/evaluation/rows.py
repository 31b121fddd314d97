"""Which rows a run takes and what each becomes: selectors, the two row schemas, work items. Reading is `dataset`'s."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from osmosis_ai.errors import ValidationError
from osmosis_ai.evaluation.dataset import Dataset, read_records, read_rows
from osmosis_ai.evaluation.jsontext import JsonTextError, parse_json_text, printable, text_problem, text_problems, walk
from osmosis_ai.evaluation.readers import Finding, Findings, Format, Row, place_of, separator_hint
from osmosis_ai.evaluation.verdict import ItemKey, WorkItem

columns = ("metadata", "system_prompt", "user_prompt", "ground_truth", "label")
_selector_part = re.compile(r"(\d{1,15})(?:-(\d{1,15}))?", re.ASCII)
_missing_words = ("nan", "NaN", "NAN")


@dataclass(frozen=True, slots=True)
class Selection:
    """The rows of a run: sorted, unique source positions as inclusive ranges.

    `row_index` is the position in here, `source_row_index` the position in the file.
    """

    ranges: tuple[tuple[int, int], ...]
    total_rows: int
    warnings: tuple[str, ...] = ()
    _ends: tuple[int, ...] = field(default=(), repr=False, compare=False)

    def __post_init__(self) -> None:
        ends = tuple(accumulate(last - first + 1 for first, last in self.ranges))
        object.__setattr__(self, "_ends", ends)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __contains__(self, source_row_index: int) -> bool:
        position = bisect_right(self.ranges, (source_row_index, math.inf)) - 1
        return position >= 0 and source_row_index <= self.ranges[position][1]

    @property
    def indices(self) -> Iterator[int]:
        """The source positions, ascending."""
        return (index for first, last in self.ranges for index in range(first, last + 1))

    @property
    def selector(self) -> str:
        """The compact text of the selection, such as `0-9,12`."""
        return _format_ranges(self.ranges)


def parse_selector(text: str) -> list[tuple[int, int]]:
    """Read a selector such as `3,7,10-20` into sorted, disjoint, inclusive ranges.

    Raises:
        ValidationError: Not integers and ranges, or an inverted range.
    """
    ranges: list[tuple[int, int]] = []
    for part in text.split(","):
        match = _selector_part.fullmatch(part.strip())
        if match is None:
            raise ValidationError(
                f"--rows {text!r} cannot be read: {part.strip()!r} is neither a row nor a range. Write rows and ranges "
                "such as 3,7,10-20 (rows count from 0)."
            )
        first = int(match[1])
        last = int(match[2]) if match[2] else first
        if last < first:
            raise ValidationError(f"--rows {text!r}: the range {part.strip()} ends before it starts.")
        ranges.append((first, last))
    return _merge(ranges)


def format_selector(indices: Iterable[int]) -> str:
    """Write positions as the shortest selector: `[0, 1, 2, 12]` is `0-2,12`."""
    return _format_ranges(_merge((index, index) for index in indices))


def select(dataset: Dataset, *, rows: str | None = None, limit: int | None = None, check: bool = True) -> Selection:
    """Choose the rows of a run and make sure that each of them can be used, before anything is paid for.

    Args:
        dataset: From `open_dataset`.
        rows: A selector; wins over `limit`.
        limit: The first so many rows, when positive.
        check: Read and normalise the selected rows once; False only chooses.

    Raises:
        ValidationError: A row is out of range, none is selected, or rows cannot be used: one report of all of them.
    """
    last_row = dataset.total_rows - 1
    if rows is not None:
        ranges = parse_selector(rows)
        if ranges[-1][1] > last_row:
            raise ValidationError(
                f"--rows {rows!r} asks for row {ranges[-1][1]}, and {dataset.path} has "
                + ("1 row (row 0)." if last_row == 0 else f"{dataset.total_rows} rows (0 to {last_row}).")
            )
    else:
        ranges = [(0, min(limit, dataset.total_rows) - 1 if limit is not None and limit > 0 else last_row)]
    selection = Selection(tuple(ranges), dataset.total_rows)
    if not check:
        return selection
    return Selection(selection.ranges, dataset.total_rows, tuple(_check(dataset, selection)))


def work_items(
    dataset: Dataset, selection: Selection, n: int, only: Container[ItemKey] | None = None
) -> Iterator[WorkItem]:
    """Stream the work items of a run: rows ascending, attempts 0 to n-1 inside a row.

    Args:
        dataset: The file the selection was made of.
        selection: Its rows.
        n: Attempts a row.
        only: The keys to make; None makes all.

    Raises:
        ValidationError: A row cannot be used, or the file changed.
    """
    row_index = 0
    for row in read_rows(dataset, wanted=selection.__contains__):
        keys = [(row_index, run) for run in range(n) if only is None or (row_index, run) in only]
        if keys:
            content, findings = normalise(row, dataset.format)
            if findings:
                raise ValidationError(f"Dataset {dataset.path}: {findings[0]}")
            for key in keys:
                yield WorkItem(*key, row.source_row_index, content.messages, content.label, content.metadata)
        row_index += 1


def item_keys(row_count: int, n: int) -> Iterator[ItemKey]:
    """Every key of a run in the order of dispatch."""
    return ((row, run) for row in range(row_count) for run in range(n))


@dataclass(frozen=True, slots=True)
class RowContent:
    """What the rollout gets of a row."""

    messages: tuple[Mapping[str, Any], ...]
    label: str | None
    metadata: Mapping[str, Any] | None


def normalise(row: Row, format: Format) -> tuple[RowContent, list[Finding]]:
    """Turn a row into messages, label and metadata; the findings say why it cannot be used, when it cannot."""
    findings: list[Finding] = []
    place = place_of(format, row.record_number, row.line_number)

    def report(column: str, problem: str) -> None:
        findings.append(Finding(f"{column} {problem}", place, row.line_number, column))

    def text(column: str, value: Any) -> str | None:
        if value is None or value == "":
            return None
        if isinstance(value, float) and not math.isfinite(value):
            report(column, f"is {value}, which is how a missing number is written; give it a value")
            return None
        if isinstance(value, bytes):
            report(column, "holds bytes; store it as text")
            return None
        if format == "csv" and value in _missing_words:
            report(
                column,
                f"is {value!r}, which tools write for a missing value; fill it in, or write the dataset as jsonl when "
                "this is the wanted text",
            )
            return None
        result = value if isinstance(value, str) else str(value)
        if problem := text_problem(result):
            report(column, problem)
            return None
        return result

    fields = row.fields
    metadata_mode = "metadata" in fields
    metadata: Mapping[str, Any] | None = None
    if metadata_mode:
        metadata, problem = parse_metadata(fields["metadata"], from_json=format == "jsonl")
        if problem:
            report("metadata", problem)
    messages: list[Mapping[str, Any]] = []
    for column, role in (("system_prompt", "system"), ("user_prompt", "user")):
        value = fields.get(column)
        if isinstance(value, (dict, list, tuple)):
            report(column, f"must be text, this is {_kind(value)}")
        elif (content := text(column, value)) is not None:
            messages.append({"role": role, "content": content})
    label_column = "ground_truth" if fields.get("ground_truth") not in (None, "") else "label"
    label = text(label_column, fields.get(label_column))
    if not findings:
        if not metadata_mode:
            if not messages or messages[-1]["role"] != "user":
                report("user_prompt", f"{_lack(fields, 'user_prompt')}; give every row one, or add a metadata column")
            if label is None:
                report("ground_truth", f"{_lack(fields, 'ground_truth', 'label')}; give every row one")
        elif not messages and not metadata:
            report("metadata", "is empty and there is no user_prompt; a row needs one of them")
    return RowContent(tuple(messages), label, metadata or None), findings


def parse_metadata(value: Any, *, from_json: bool = False) -> tuple[dict[str, Any] | None, str | None]:
    """Read a metadata cell: an object, or text that holds one; empty, blank and null are absent.

    Args:
        value: The cell.
        from_json: An object comes out of JSON text, so JSON can hold what is in it.

    Returns:
        The object or None, and what is wrong or None.
    """
    if isinstance(value, str):
        if not value.strip():
            return None, None
        try:
            value = parse_json_text(value).value
        except JsonTextError as error:
            return None, f"is not valid JSON ({error})"
    elif value is not None and not from_json and (problem := _unsendable(value)):
        return None, problem
    if value is None:
        return None, None
    if not isinstance(value, dict):
        return None, f"must be a JSON object, this is {_kind(value)}"
    return value or None, None


def _lack(fields: Mapping[str, Any], *names: str) -> str:
    """How a needed value is absent: as a whole column, or in this row."""
    if any(name in fields for name in names):
        return "is empty" + (" (label counts too)" if "label" in names else "")
    there = ", ".join(printable(repr(name)) for name in list(fields)[:8]) or "nothing"
    there += separator_hint(list(fields))
    return f"is missing (label counts too): there is {there}" if "label" in names else f"is missing: there is {there}"


def _unsendable(value: Any) -> str | None:
    """Why a value of a jsonl object or a parquet struct cannot be sent as JSON, or None."""
    for path, current in walk(value):
        if isinstance(current, float) and not math.isfinite(current):
            return f"holds {current} at {printable(path)}, which JSON cannot; use null or text"
        if not isinstance(current, (str, int, float, bool, dict, list, type(None))):
            return f"holds {_kind(current)} at {printable(path)}, which JSON cannot; store it as text"
    return next(text_problems(value), None)


def _check(dataset: Dataset, selection: Selection) -> list[str]:
    """Normalise the selected rows; raise one report of what cannot be used, return warnings about the rest."""
    errors, warnings = Findings(), Findings()
    last = selection.ranges[-1][1]
    for record in read_records(dataset.path, dataset.format, wanted=selection.__contains__, columns=columns):
        if isinstance(record, Finding):
            (warnings if record.harmless else errors).add(record)
            continue
        for finding in normalise(record, dataset.format)[1]:
            errors.add(finding)
        if record.source_row_index >= last:
            break
    if errors.count:
        raise ValidationError(
            "\n".join([f"Dataset {dataset.path} has rows that cannot be evaluated:", *errors.lines()])
        )
    if not warnings.count:
        return []
    shown = [str(found) for found in warnings.kept[:5]]
    if warnings.count > len(shown):
        shown.append(f"... (showing first {len(shown)} of {warnings.count} warnings)")
    return [f"{dataset.path}: {line}" for line in shown]


def _merge(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged


def _format_ranges(ranges: Sequence[tuple[int, int]]) -> str:
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", tuple: "a list", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), "text" if isinstance(value, str) else f"a {type(value).__name__}")
