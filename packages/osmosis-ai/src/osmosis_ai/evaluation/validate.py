"""The strict check of a dataset before it is uploaded or shared: everything wrong with it, in one report.

`eval run` is more lenient (`rows`); what only it would refuse is reported here as a warning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from osmosis_ai.errors import ValidationError
from osmosis_ai.evaluation import readers
from osmosis_ai.evaluation.dataset import check_file, read_records
from osmosis_ai.evaluation.jsontext import JsonTextError, parse_json_text, printable
from osmosis_ai.evaluation.readers import Finding, Findings, Format, Row, place_of, separator_hint
from osmosis_ai.evaluation.rows import columns, normalise, parse_metadata

min_rows = 4
max_size_bytes = 5 << 30
_int64 = range(-(1 << 63), 1 << 63)
_max_paths = 10_000
_required = ("user_prompt", "ground_truth")


@dataclass(frozen=True, slots=True)
class ValidationReport:
    """What `dataset validate` says.

    Attributes:
        extension: csv, jsonl or parquet.
        file_size: Bytes.
        errors: `{"message", "line"?, "column"?}` each; the message starts with its place. At most 1,000 are listed.
        error_count: All of them.
        warnings: What `eval run` would refuse or work around, as text.
        checked: False where the rows could not be looked at, because a package is missing.
    """

    file: str
    file_name: str
    extension: Format
    file_size: int
    errors: tuple[Mapping[str, Any], ...] = ()
    warnings: tuple[str, ...] = ()
    error_count: int = 0
    checked: bool = True
    lines: tuple[str, ...] = field(default=(), repr=False)

    @property
    def valid(self) -> bool:
        """Whether nothing is wrong."""
        return self.error_count == 0

    @property
    def message(self) -> str:
        """The first five errors as people read them."""
        return "\n".join(["Validation failed:", *self.lines])

    @property
    def full_message(self) -> str:
        """All listed errors, for machines."""
        more = self.error_count - len(self.errors)
        lines = [f"  - {error['message']}" for error in self.errors]
        return "\n".join(["Validation failed:", *lines, *([f"  - ... and {more} more"] if more else [])])

    def to_json(self) -> dict[str, Any]:
        """The published shape."""
        return {
            "valid": self.valid,
            "file": self.file,
            "file_name": self.file_name,
            "extension": self.extension,
            "file_size": self.file_size,
            "errors": list(self.errors),
            "warnings": list(self.warnings),
        }


def validate_dataset(path: Path) -> ValidationReport:
    """Check a dataset by every rule, in constant memory.

    Raises:
        NotFoundError: There is no such file.
        ValidationError: It is no file that could be a dataset: another suffix, a directory, unreadable, empty.
    """
    format, size_bytes, _ = check_file(path)
    errors, warnings = Findings(), Findings()
    checked = True
    if size_bytes > max_size_bytes:
        errors.add(Finding(f"Dataset too large: {size_bytes / (1 << 30):.1f} GiB. At most 5 GiB are allowed."))
    elif format == "parquet":
        checked = _check_parquet(path, errors, warnings)
    else:
        _check_records(path, format, read_records(path, format), errors, warnings)
    return ValidationReport(
        file=str(path),
        file_name=path.name,
        extension=format,
        file_size=size_bytes,
        errors=tuple(_error(finding) for finding in errors.kept),
        warnings=tuple(_shown(warnings)),
        error_count=errors.count,
        checked=checked,
        lines=tuple(errors.lines()),
    )


def _check_parquet(path: Path, errors: Findings, warnings: Findings) -> bool:
    """Check a parquet file; False when nothing here can read one."""
    try:
        with readers.open_parquet(path) as file:
            rows, schema = file.metadata.num_rows, file.schema_arrow
            names = list(schema.names)
            kind = str(schema.field("metadata").type) if names.count("metadata") == 1 else ""
    except ValidationError as error:
        if error.details.get("extra") == "parquet":
            warnings.add(Finding(f"Not checked: {error.message}"))
            return False
        errors.add(Finding(error.message[:1].upper() + error.message[1:]))
        return True
    for name in sorted({name for name in names if names.count(name) > 1}):
        errors.add(Finding(f"column {name!r} occurs twice; rename one", column=name))
    if kind and not kind.startswith(("struct<", "string", "large_string", "string_view")):
        message = f"Invalid metadata column: must be a struct or JSON-object string, got {kind}"
        errors.add(Finding(message, column="metadata"))
    if errors.count:
        return True
    if rows < min_rows:
        errors.add(_too_small(rows))
    _require_columns(names, errors)
    if not errors.count:
        try:
            records = read_records(path, "parquet", columns=columns)
            _check_records(path, "parquet", records, errors, warnings, names=names)
        except ValidationError as error:
            errors.add(Finding(error.message))
    return True


def _check_records(
    path: Path,
    format: Format,
    records: Iterator[Row | Finding],
    errors: Findings,
    warnings: Findings,
    names: Sequence[str] | None = None,
) -> None:
    count = 0
    seen_places: set[str] = set()
    types: dict[str, str] = {}
    try:
        for record in records:
            if isinstance(record, Finding):
                errors.add(record)
                if not record.harmless and record.place not in seen_places:
                    seen_places = {record.place}
                    count += 1  # a row that cannot be read is a row
                continue
            count += 1
            if names is None:
                names = list(record.fields) if format == "jsonl" else _csv_header(path)
                _require_columns(names, errors)
            elif format == "jsonl":
                _check_keys(record, names, errors)
            if "metadata" in names:
                _check_metadata(record, format, types, errors)
            if not _missing_columns(names):
                for finding in normalise(record, format)[1]:
                    if finding.column != "metadata":
                        warnings.add(finding)
    except ValidationError as error:
        errors.add(Finding(error.message))
        return
    if format == "csv" and names is None and not errors.count and (header := _csv_header(path)):
        _require_columns(header, errors)
    if count < min_rows and format != "parquet" and not any(finding.fatal for finding in errors.kept):
        errors.add(_too_small(count))


def _csv_header(path: Path) -> list[str]:
    with path.open("rb") as stream:
        return readers.read_csv_header(stream)[0] or []


def _missing_columns(names: Sequence[str]) -> list[str]:
    if "metadata" in names:
        return []
    have = {"ground_truth" if name == "label" else name for name in names}
    return sorted(set(_required) - have)


def _require_columns(names: Sequence[str], errors: Findings) -> None:
    if missing := _missing_columns(names):
        errors.add(
            Finding(
                f"Missing required columns: {', '.join(missing)}. Datasets without a metadata column must include "
                f"user_prompt and ground_truth (label is accepted as an alias){separator_hint(names)}."
            )
        )


def _check_keys(row: Row, first: Sequence[str], errors: Findings) -> None:
    keys = row.fields.keys()
    if keys == set(first):
        return
    parts = [
        f"{word}: {', '.join(map(printable, sorted(names)))}"
        for word, names in (("missing", set(first) - keys), ("extra", keys - set(first)))
        if names
    ]
    message = f"top-level fields differ from the first row ({'; '.join(parts)})"
    errors.add(Finding(message, place_of("jsonl", row.record_number, row.line_number), row.line_number))


def _check_metadata(row: Row, format: Format, types: dict[str, str], errors: Findings) -> None:
    """Metadata mode: a non-empty object in every row, storable, and of one type at each path over all rows."""

    def report(problem: str) -> None:
        place = place_of(format, row.record_number, row.line_number)
        errors.add(Finding(f"invalid metadata - {problem}", place, row.line_number, "metadata"))

    raw = row.fields.get("metadata")
    if isinstance(raw, str) and raw.strip():
        try:
            duplicates = parse_json_text(raw).duplicate_keys
        except JsonTextError:
            duplicates = ()  # `parse_metadata` says what is wrong
        for key in duplicates:
            report(f"the key {key!r} occurs twice in one object; remove one")
    metadata, problem = parse_metadata(raw, from_json=format == "jsonl")
    if problem:
        report(problem)
        return
    if not metadata:
        report("metadata mode requires a non-empty JSON object in every row")
        return
    empty, oversized = _unstorable(metadata)
    if empty:
        report(
            "contains an empty nested object ({}), which cannot be stored. Remove that key or add at least one nested "
            "key."
        )
    if oversized:
        report("contains an integer too large to store (must fit in 64 bits)")
    if empty or oversized:
        return  # a row that has to change says nothing about types
    for path, known, name in _type_changes(metadata, types):
        report(f"value type at {printable(path)} is inconsistent across rows ({known} vs {name})")


def _unstorable(value: Any) -> tuple[bool, bool]:
    """Whether a value holds an empty object, and an integer past 64 bits."""
    empty = oversized = False
    stack = [value]
    while stack:
        current = stack.pop()
        if isinstance(current, dict):
            empty = empty or not current
            stack.extend(current.values())
        elif isinstance(current, (list, tuple)):
            stack.extend(current)
        elif isinstance(current, int) and current not in _int64:
            oversized = True
    return empty, oversized


def _type_changes(value: Any, types: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    """Paths whose type is not the one in `types`, which learns new paths.

    The elements of a list share one path; null has no type; what lies under a changed path is not looked at.
    """
    stack: list[tuple[str, Any]] = [("$", value)]
    changed: set[str] = set()
    while stack:
        path, current = stack.pop()
        name = _type_name(current)
        if name is None:
            continue
        known = types.get(path)
        if known is None:
            if len(types) < _max_paths:
                types[path] = name
        elif known != name:
            if path not in changed:
                changed.add(path)
                yield path, known, name
            continue
        if isinstance(current, dict):
            stack.extend((f"{path}.{key}", inner) for key, inner in reversed(current.items()))
        elif isinstance(current, (list, tuple)):
            stack.extend((f"{path}[]", inner) for inner in reversed(current))


def _type_name(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str):
        return "str"
    return "object" if isinstance(value, dict) else "array"


def _too_small(rows: int) -> Finding:
    counted = "1 row" if rows == 1 else f"{rows} rows"
    return Finding(f"Dataset too small: {counted}. A minimum of {min_rows} rows is required.")


def _error(finding: Finding) -> dict[str, Any]:
    error: dict[str, Any] = {"message": str(finding)}
    if finding.line_number is not None:
        error["line"] = finding.line_number
    if finding.column is not None:
        error["column"] = printable(finding.column)
    return error


def _shown(warnings: Findings, shown: int = 5) -> list[str]:
    lines = [str(finding) for finding in warnings.kept[:shown]]
    if lines and warnings.kept[0].place:
        lines = [f"{line} (`eval run` would refuse the row)" for line in lines]
    if warnings.count > shown:
        lines.append(f"... (showing first {shown} of {warnings.count} warnings)")
    return lines
