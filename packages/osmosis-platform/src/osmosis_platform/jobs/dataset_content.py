"""Reads a dataset file: checks it by the client's rules, counts and samples its rows, writes its Parquet copy.

Runs in a limited child process (jobs.dataset_child), since the file may be anything; streams, in constant memory.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from osmosis_ai.errors import ValidationError
from osmosis_ai.evaluation import readers
from osmosis_ai.evaluation.dataset import read_records
from osmosis_ai.evaluation.readers import Finding, Format, Row
from osmosis_ai.evaluation.validate import validate_dataset

from osmosis_platform.jobs.column_statistics import ColumnStatistics

MAX_COLUMNS = 4096
COLUMNS_TOLD = 200
PREVIEW_ROWS = 100
PREVIEW_BYTES = 256 << 10
CELL_CHARS = 2000
ERRORS_TOLD = 20
_BATCH_ROWS = 8192
_BATCH_BYTES = 8 << 20

type Report = Callable[[str, str, str], None]
"""Tells the log: level, step, message."""
type Progress = Callable[[str, int], None]
"""Is told often how far it is: step, rows."""
_TELL_ROWS = 1024


class ContentError(Exception):
    """The file is no dataset that runs can use.

    Args:
        code: Stable, upper case.
        message: What is wrong and where, for whoever uploaded it.
        lines: Findings for the log.
    """

    def __init__(self, code: str, message: str, lines: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.lines = list(lines)


@dataclass
class Content:
    """What a file holds.

    Attributes:
        sha256: Of its bytes.
        columns: In file order.
        preview: The first rows, fit for JSON and cut to size.
    """

    sha256: str
    row_count: int = 0
    columns: dict[str, ColumnStatistics] = field(default_factory=dict)
    preview: list[dict[str, Any]] = field(default_factory=list)

    def statistics(self) -> dict[str, Any]:
        """The statistics of the first columns."""
        some = list(self.columns.items())[:COLUMNS_TOLD]
        told = [{"name": _clean(name), **column.to_json()} for name, column in some]
        return {"column_count": len(self.columns), "columns": told}


def examine(path: Path, format: Format, parquet_path: Path | None, report: Report, progress: Progress) -> Content:
    """Checks and reads a file.

    Args:
        path: With the format as its extension.
        format: Of the file.
        parquet_path: Where to write a Parquet copy; None to write none.
        report: Told of each step.
        progress: Told of every thousandth row.

    Raises:
        ContentError: `DATASET_INVALID`, `DATASET_TOO_WIDE` or `DATASET_UNREADABLE`.
    """
    try:
        _check_width(path, format)
        _validate(path, report)
        content = _read(path, format, progress)
        report("info", "validate", f"{content.row_count} rows in {len(content.columns)} columns are valid")
        if parquet_path is not None:
            _convert(path, format, content, parquet_path, progress)
            report("info", "convert", f"converted to Parquet, {parquet_path.stat().st_size} bytes")
        return content
    except ValidationError as error:
        raise ContentError("DATASET_INVALID", error.message, [error.message]) from error
    except RecursionError as error:
        raise ContentError("DATASET_UNREADABLE", "A value is nested too deeply. Flatten it.") from error


def _check_width(path: Path, format: Format) -> None:
    """Refuses a file of more columns than anybody can mean, before each of its rows becomes as many objects."""
    if format == "parquet":
        with readers.open_parquet(path) as file:
            width = file.metadata.num_columns
    elif format == "csv":
        with path.open("rb") as stream:
            width = len(readers.read_csv_header(stream)[0] or ())
    else:
        first = next((one for one in read_records(path, format) if isinstance(one, Row)), None)
        width = len(first.fields) if first else 0
    if width > MAX_COLUMNS:
        message = f"The file has {width} columns; at most {MAX_COLUMNS} are read. Put them into one metadata column."
        raise ContentError("DATASET_TOO_WIDE", message)


def _validate(path: Path, report: Report) -> None:
    found = validate_dataset(path)
    for warning in found.warnings:
        report("warning", "validate", warning)
    if not found.valid:
        lines = [str(error["message"]) for error in found.errors[:ERRORS_TOLD]]
        if found.error_count > len(lines):
            lines.append(f"{found.error_count - len(lines)} more errors")
        raise ContentError("DATASET_INVALID", found.message, lines)


def _read(path: Path, format: Format, progress: Progress) -> Content:
    with path.open("rb") as file:
        content = Content(hashlib.file_digest(file, "sha256").hexdigest())
    budget = PREVIEW_BYTES
    for fields in _rows(path, format):
        content.row_count += 1
        if not content.row_count % _TELL_ROWS:
            progress("read", content.row_count)
        for name, value in fields.items():
            column = content.columns.get(name)
            if column is None:
                column = content.columns[name] = ColumnStatistics()
            column.add(value)
        if budget > 0 and len(content.preview) < PREVIEW_ROWS:
            row = {_clean(name): preview_cell(value) for name, value in fields.items()}
            budget -= len(json.dumps(row))
            if budget > 0 or not content.preview:
                content.preview.append(row)
    return content


def _rows(path: Path, format: Format) -> Iterator[Mapping[str, Any]]:
    if format == "parquet":
        yield from _parquet_rows(path)
        return
    for record in read_records(path, format):
        if isinstance(record, Row):
            yield record.fields
        elif isinstance(record, Finding) and not record.harmless:  # validation has seen the same bytes
            raise ContentError("DATASET_UNREADABLE", str(record))


def _parquet_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    with readers.open_parquet(path) as file:
        told, read = file.metadata.num_rows, 0
        names = file.schema_arrow.names
        try:
            for batch in file.iter_batches(batch_size=256):
                read += batch.num_rows
                columns = [_cells(batch.column(index)) for index in range(batch.num_columns)]
                for values in zip(*columns, strict=True):
                    yield dict(zip(names, values, strict=True))
        except (OSError, ValueError) as error:
            message = f"The Parquet file cannot be read from row {read + 1} on: {error}"
            raise ContentError("DATASET_UNREADABLE", message[:1000]) from error
    if read != told:
        message = f"The Parquet file says that it has {told} rows and has {read}. Write it again."
        raise ContentError("DATASET_UNREADABLE", message)


def _cells(column: Any) -> list[Any]:
    """The values of an Arrow column; as text where Python has no type for all of them."""
    import pyarrow as pa

    try:
        if pa.types.is_temporal(column.type) or pa.types.is_decimal(column.type):
            column = column.cast(pa.string())
        return column.to_pylist()
    except (pa.ArrowException, ValueError, OverflowError):
        return [None if not valid else str(column.type) for valid in column.is_valid().to_pylist()]


def _convert(path: Path, format: Format, content: Content, target: Path, progress: Progress) -> None:
    """Writes the rows as Parquet: text, 64-bit integers, doubles or booleans where a column is that, else JSON text."""
    import pyarrow as pa
    from pyarrow import parquet

    kinds = {name: _kind(column) for name, column in content.columns.items()}
    types = {"string": pa.large_string(), "int64": pa.int64(), "double": pa.float64(), "bool": pa.bool_()}
    fields = [
        pa.field(
            name, types.get(kind, pa.large_string()), metadata={"osmosis.encoding": "json"} if kind == "json" else None
        )
        for name, kind in kinds.items()
    ]
    schema = pa.schema(fields)
    cells: dict[str, list[Any]] = {name: [] for name in kinds}
    rows = size = written = 0

    def flush() -> None:
        arrays = [pa.array(cells[one.name], type=one.type) for one in schema]
        writer.write_batch(pa.record_batch(arrays, schema=schema))
        for values in cells.values():
            values.clear()

    with parquet.ParquetWriter(target, schema, compression="zstd") as writer:
        for row in _rows(path, format):
            for name, kind in kinds.items():
                value = row.get(name)
                if value is not None:
                    if kind == "json":
                        value = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
                    elif kind == "double":
                        value = float(value)
                    size += len(value) if isinstance(value, str) else 8
                cells[name].append(value)
            rows += 1
            if rows >= _BATCH_ROWS or size >= _BATCH_BYTES:
                flush()
                written += rows
                progress("convert", written)
                rows = size = 0
        if rows:
            flush()


def _kind(column: ColumnStatistics) -> str:
    types = set(column.types) - {"null"}
    if types <= {"string"}:
        return "string"
    if types == {"boolean"}:
        return "bool"
    if types == {"integer"} and column.fits_int64:
        return "int64"
    if types <= {"integer", "number"} and column.fits_double:
        return "double"
    return "json"


def preview_cell(value: Any) -> Any:
    """A cell as pages may get it: JSON that every database takes, cut when long. What looks like a formula stays text."""
    if value is None or isinstance(value, (bool, int)):
        return value if not isinstance(value, int) or abs(value) < 1 << 63 else str(value)[:CELL_CHARS]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        text = _clean(value[: CELL_CHARS + 1])
        return text if len(text) <= CELL_CHARS else text[:CELL_CHARS] + "…"
    if isinstance(value, (dict, list, tuple)):
        text = json.dumps(value, default=_text_of).replace("\\u0000", "\\ufffd")
        return text[:CELL_CHARS] + "…" if len(text) > CELL_CHARS else json.loads(text, parse_constant=str)
    return preview_cell(_text_of(value))


def _text_of(value: Any) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _clean(text: str) -> str:
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
