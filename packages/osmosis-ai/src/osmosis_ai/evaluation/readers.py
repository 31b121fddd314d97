"""Streaming readers of dataset files (csv, jsonl, parquet): rows in constant memory, and what is wrong with them.

Readers report, they do not judge: a `Finding` that `harmless` is true for can be lived with. The rules of columns are
in `rows` (lenient, `eval run`) and `validate` (strict).
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal

from osmosis_ai.errors import ValidationError
from osmosis_ai.evaluation.jsontext import JsonTextError, parse_json_text, printable, text_problem

type Format = Literal["csv", "jsonl", "parquet"]
type Wanted = Callable[[int], bool]
type CsvRecord = tuple[int, int, list[str]]
"""(record number, line it starts on, cells)"""

max_line_bytes = 64 << 20
max_field_chars = 16 << 20
_bom = b"\xef\xbb\xbf"
_batch_rows = 256


@dataclass(frozen=True, slots=True)
class Row:
    """One record of a dataset.

    Attributes:
        source_row_index: Its position in the file, from 0, blank lines not counted.
        line_number: The line it starts on, from 1; None in parquet.
        record_number: Its number as a reader of the file counts: the line in jsonl, the record with the header as 1
            in csv, the row from 1 in parquet.
        fields: Column to value, in file order.
    """

    source_row_index: int
    line_number: int | None
    record_number: int
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong in a dataset.

    Attributes:
        place: "Line 3" (jsonl), "Row 6" or "Row 6 (line 9)" (csv; the header is row 1), "Row 3" (parquet), or "".
        harmless: `eval run` can live with it (a warning there); `dataset validate` reports it as an error.
        fatal: Nothing behind it can be read.
    """

    message: str
    place: str = ""
    line_number: int | None = None
    column: str | None = None
    harmless: bool = False
    fatal: bool = False

    def __str__(self) -> str:
        return printable(f"{self.place}: {self.message}" if self.place else self.message)


@dataclass(slots=True)
class Findings:
    """Findings of one file: all are counted, the first `keep` are kept."""

    keep: int = 1000
    count: int = 0
    kept: list[Finding] = field(default_factory=list)

    def add(self, finding: Finding) -> None:
        """Count a finding, and keep it while there is room."""
        self.count += 1
        if len(self.kept) < self.keep:
            self.kept.append(finding)

    def lines(self, shown: int = 5) -> list[str]:
        """The first findings as bullet lines, then a line that says so when there are more."""
        lines = [f"  - {finding}" for finding in self.kept[:shown]]
        if self.count > shown:
            lines.append(f"  - ... (showing first {shown} of {self.count} errors)")
        return lines


def place_of(format: Format, record_number: int, line_number: int | None) -> str:
    """How a message names a record."""
    if format == "jsonl":
        return f"Line {record_number}"
    if format == "csv" and line_number != record_number:
        return f"Row {record_number} (line {line_number})"
    return f"Row {record_number}"


class HashingFile(io.RawIOBase):
    """A file read once, front to back, whose SHA-256 is known afterwards."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = path.open("rb", buffering=0)
        self._hash = hashlib.sha256()

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read, and add what was read to the hash."""
        count = self._file.readinto(buffer) or 0
        self._hash.update(memoryview(buffer)[:count])
        return count

    def hexdigest(self) -> str:
        """The hash of everything read so far."""
        return self._hash.hexdigest()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()


def read_lines(stream: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """Number the lines of a file from 1, line ends kept; a line longer than `max_line_bytes` is skipped, as None.

    Raises:
        ValidationError: The file is UTF-16 or UTF-32.
    """
    number = 0
    while line := stream.readline(max_line_bytes + 1):
        number += 1
        if number == 1:
            if line.startswith((b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")):
                raise ValidationError("the file is UTF-16 or UTF-32; save it as UTF-8")
            line = line.removeprefix(_bom)
        if len(line) > max_line_bytes and not line.endswith(b"\n"):
            while (rest := stream.readline(max_line_bytes)) and not rest.endswith(b"\n"):
                pass
            yield number, None
        else:
            yield number, line


def read_jsonl(stream: BinaryIO, wanted: Wanted | None = None) -> Iterator[Row | Finding]:
    """Read JSON lines; blank lines take no index, a bad line does."""
    index = -1
    for number, raw in read_lines(stream):
        if raw is not None and (not raw or raw.isspace()):
            continue
        index += 1
        if wanted is not None and not wanted(index):
            continue
        place = f"Line {number}"
        if raw is None:
            yield Finding(f"longer than {max_line_bytes >> 20} MiB; split it or move large values out", place, number)
            continue
        text, problem = _decode(raw)
        if problem:
            yield Finding(problem, place, number)
            continue
        try:
            parsed = parse_json_text(text.rstrip("\r\n"))
        except JsonTextError as error:
            if error.cut_off and not raw.endswith(b"\n"):
                message = "the last line is cut off; write the file again or remove the line"
            else:
                message = f"invalid JSON - {error}"
                if index == 0 and text.lstrip().startswith("["):
                    message += "; write one object per line instead of an array"
            yield Finding(message, place, number)
            continue
        if not isinstance(parsed.value, dict):
            kind = "null" if parsed.value is None else type(parsed.value).__name__
            yield Finding(f"invalid JSONL row - top-level value must be an object, this is {kind}", place, number)
            continue
        for key in parsed.duplicate_keys:
            message = f"the key {key!r} occurs twice in one object; the last value counts, remove the others"
            yield Finding(message, place, number, key, harmless=True)
        yield Row(index, number, number, parsed.value)


def read_csv_header(
    stream: BinaryIO,
) -> tuple[list[str] | None, Iterator[tuple[int, int, list[str]] | Finding]]:
    """Read the header and hand back the records behind it as (record number, line number, cells) or findings."""
    records = _csv_records(stream)
    for record in records:
        if not isinstance(record, Finding):
            return record[2], records
        if not record.harmless:
            return None, iter([record])
    return None, iter(())


def read_csv(stream: BinaryIO, wanted: Wanted | None = None) -> Iterator[Row | Finding]:
    """Read CSV with a header; blank lines take no index; surplus cells are dropped and reported."""
    header, records = read_csv_header(stream)
    if header is None:
        yield from (record for record in records if isinstance(record, Finding))
        return
    for name in sorted({name for name in header if header.count(name) > 1}):
        message = f"the header names column {name!r} twice; the last one counts, rename the others"
        yield Finding(message, "Row 1", 1, name, harmless=True)
    index = -1
    held: list[Finding] = []
    for record in records:
        if isinstance(record, Finding):
            held.append(record)
            continue
        number, line, cells = record
        index += 1
        if wanted is not None and not wanted(index):
            held.clear()
            continue
        yield from held
        held.clear()
        place = place_of("csv", number, line)
        if len(cells) != len(header):
            message = f"expected {len(header)} columns, got {len(cells)}"
            if len(cells) > len(header):
                message += "; the surplus cells are dropped, quote cells that hold a comma"
            else:
                message += f"; no value for {', '.join(header[len(cells) :])}"
            yield Finding(message, place, line, harmless=True)
        yield Row(index, line, number, dict(zip(header, cells, strict=False)))
    yield from held


def separator_hint(names: Sequence[str]) -> str:
    """What to say about a header that was not split because another separator than the comma is used, or nothing."""
    if len(names) == 1 and (used := next((mark for mark in ";\t|" if mark in names[0]), None)):
        return f"; cells are separated by commas here, the file seems to use {used!r}"
    return ""


def read_parquet(path: Path, wanted: Wanted | None = None, columns: Sequence[str] | None = None) -> Iterator[Row]:
    """Read parquet by small batches, only the columns asked for.

    Raises:
        ValidationError: pyarrow is not installed, or the file is no parquet.
    """
    with open_parquet(path) as file:
        names = None if columns is None else [name for name in file.schema_arrow.names if name in columns]
        index = 0
        try:
            for batch in file.iter_batches(batch_size=_batch_rows, columns=names):
                first, index = index, index + batch.num_rows
                if wanted is not None and not any(wanted(position) for position in range(first, index)):
                    continue
                for offset, fields in enumerate(batch.to_pylist()):
                    if wanted is None or wanted(first + offset):
                        yield Row(first + offset, None, first + offset + 1, fields)
        except (OSError, ValueError) as error:
            raise ValidationError(f"invalid parquet file: row {index + 1} onwards cannot be read: {error}") from error


def open_parquet(path: Path) -> Any:
    """Open a parquet file, for its `metadata.num_rows`, `schema_arrow` and `iter_batches`.

    Raises:
        ValidationError: pyarrow is not installed (details name the extra), or the file is no parquet.
    """
    try:
        from pyarrow import parquet
    except ImportError:
        raise ValidationError(
            f'{path} is parquet, and reading it needs pyarrow: pip install "osmosis-ai[parquet]"',
            details={"missing_module": "pyarrow", "extra": "parquet"},
        ) from None
    try:
        return parquet.ParquetFile(path, memory_map=True)
    except (OSError, ValueError) as error:
        raise ValidationError(f"invalid parquet file: {error}") from error


def _csv_records(stream: BinaryIO) -> Iterator[CsvRecord | Finding]:
    """The non-empty records, the header as number 1."""
    csv.field_size_limit(max_field_chars)
    problems: list[Finding] = []
    consumed = 0

    def lines() -> Iterable[str]:
        nonlocal consumed
        for line_number, raw in read_lines(stream):
            consumed = line_number
            if raw is None:
                message = f"longer than {max_line_bytes >> 20} MiB; is a quote missing?"
                problems.append(Finding(message, f"Line {line_number}", line_number))
                continue
            text, problem = _decode(raw)
            if not problem and "\0" in text:
                problem = text_problem(text)
            if problem:
                problems.append(Finding(problem, f"Line {line_number}", line_number))
            yield text

    reader = csv.reader(lines(), strict=True)
    number = 0
    while True:
        start = consumed + 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            yield from problems
            place = f"Line {start}" if start == consumed else f"Lines {start} to {consumed}"
            yield Finding(f"malformed CSV - {_csv_remedy(error)}", place, start, fatal=True)
            return
        yield from problems
        problems.clear()
        if cells is None:
            return
        if cells:
            number += 1
            yield number, start, cells


def _csv_remedy(error: csv.Error) -> str:
    text = str(error)
    if "unexpected end of data" in text:
        return "a quoted cell is never closed; add the missing quote"
    if "new-line character" in text:
        return "a bare carriage return outside quotes; save the file with LF or CRLF line ends"
    if "field larger" in text:
        return f"a cell longer than {max_field_chars >> 20} MiB; is a quote missing?"
    return f"{text}; double a quote that belongs to a cell"


def _decode(raw: bytes) -> tuple[str, str | None]:
    """The text of a line, and what is wrong with its bytes."""
    try:
        return raw.decode(), None
    except UnicodeDecodeError as error:
        byte = raw[error.start]
        problem = f"byte {error.start + 1} (0x{byte:02x}) is not UTF-8; save the file as UTF-8"
        return raw.decode("utf-8", "replace"), problem
