"""A dataset file: what it is (format, size, SHA-256, number of rows) and its rows, streamed in constant memory.

What a row must hold is decided in `rows` (for `eval run`) and `validate` (for `dataset validate`).
"""

from __future__ import annotations

import io
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from osmosis_ai.errors import NotFoundError, ValidationError
from osmosis_ai.evaluation import readers
from osmosis_ai.evaluation.readers import Finding, Format, Row

__all__ = ["Dataset", "Finding", "Row", "check_file", "open_dataset", "read_records", "read_rows"]

formats: tuple[str, ...] = get_args(Format.__value__)
_buffer_bytes = 1 << 20


@dataclass(frozen=True, slots=True)
class Dataset:
    """A dataset file as it was when it was opened.

    Attributes:
        name: What people call it: the platform's name, or the file name.
        sha256: Of the file's bytes, lowercase hex.
        total_rows: Rows in the file, blank lines not counted.
        modified_ns: The file's mtime when it was hashed; reading refuses a file that changed since.
    """

    path: Path
    name: str
    format: Format
    sha256: str
    total_rows: int
    size_bytes: int = 0
    modified_ns: int = 0


def check_file(path: Path) -> tuple[Format, int, int]:
    """Judge a dataset by its name and file type, without reading it.

    Returns:
        Its format, size in bytes and modification time in nanoseconds.

    Raises:
        NotFoundError: There is no such file.
        ValidationError: Not a csv, jsonl or parquet file, a directory, unreadable or empty.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        raise NotFoundError(f"File not found: {path}. Check the path of the dataset.", code="VALIDATION") from None
    except OSError as error:
        raise ValidationError(f"Dataset {path} cannot be read: {error.strerror}.") from error
    if stat.S_ISDIR(status.st_mode):
        raise ValidationError(f"Dataset {path} is a directory. Give a csv, jsonl or parquet file.")
    if not stat.S_ISREG(status.st_mode):
        raise ValidationError(f"Dataset {path} is not a regular file. Give a csv, jsonl or parquet file.")
    extension = path.suffix.lower().removeprefix(".")
    if extension not in formats:
        raise ValidationError(f"Unsupported file type '{path.suffix}' of {path}. Supported: {', '.join(formats)}")
    if status.st_size == 0:
        raise ValidationError(f"File is empty: {path}. A dataset needs at least one row.")
    format: Format = "csv" if extension == "csv" else "jsonl" if extension == "jsonl" else "parquet"
    return format, status.st_size, status.st_mtime_ns


def open_dataset(path: Path, *, name: str | None = None) -> Dataset:
    """Hash a dataset and count its rows in one pass; rows are not parsed beyond that.

    Args:
        path: A csv, jsonl or parquet file (suffix in any case).
        name: Its name, when it is not the file's.

    Raises:
        NotFoundError: There is no such file.
        ValidationError: It cannot be read, is no dataset file or has no rows.
    """
    format, size_bytes, modified_ns = check_file(path)
    count = 0
    try:
        file = readers.HashingFile(path)
        with io.BufferedReader(file, _buffer_bytes) as stream:
            if format == "jsonl":
                count = sum(raw is None or bool(raw.strip()) for _, raw in readers.read_lines(stream))
            elif format == "csv":
                header, records = readers.read_csv_header(stream)
                for record in records:
                    if not isinstance(record, Finding):
                        count += 1
                    elif record.fatal or header is None:
                        raise ValidationError(str(record))
                if header is None:
                    raise ValidationError("it holds no header; the first line must name the columns")
            else:
                with readers.open_parquet(path) as parquet:
                    count = parquet.metadata.num_rows
            while stream.read(_buffer_bytes):  # the hash is of the whole file
                pass
            sha256 = file.hexdigest()
    except ValidationError as error:
        raise _in_file(path, error) from error
    except OSError as error:
        raise ValidationError(f"Dataset {path} cannot be read: {error.strerror or error}.") from error
    if count == 0:
        raise ValidationError(f"Dataset {path} has no rows. A dataset needs at least one row.")
    return Dataset(path, name or path.name, format, sha256, count, size_bytes, modified_ns)


def read_records(
    path: Path,
    format: Format,
    *,
    wanted: Callable[[int], bool] | None = None,
    columns: Sequence[str] | None = None,
) -> Iterator[Row | Finding]:
    """Stream the rows of a file together with everything wrong with them.

    Args:
        path: The file.
        format: Its format.
        wanted: Which source_row_index to parse; the others are passed over.
        columns: Columns to read; only parquet can save work by it.

    Raises:
        ValidationError: The file cannot be read at all.
    """
    try:
        if format == "parquet":
            yield from readers.read_parquet(path, wanted, columns)
            return
        with path.open("rb", buffering=_buffer_bytes) as stream:
            yield from (readers.read_jsonl if format == "jsonl" else readers.read_csv)(stream, wanted)
    except ValidationError as error:
        raise _in_file(path, error) from error
    except OSError as error:
        raise ValidationError(f"Dataset {path} cannot be read: {error.strerror or error}.") from error


def read_rows(
    dataset: Dataset,
    *,
    wanted: Callable[[int], bool] | None = None,
    on_warning: Callable[[Finding], None] | None = None,
) -> Iterator[Row]:
    """Stream the rows of a dataset.

    Args:
        dataset: From `open_dataset`.
        wanted: Which source_row_index to read; the others are passed over.
        on_warning: Told of what is odd and can be lived with (surplus cells, duplicate keys).

    Raises:
        ValidationError: The file changed since it was opened, or a row cannot be read; names file and place.
    """
    _, size_bytes, modified_ns = check_file(dataset.path)
    if (size_bytes, modified_ns) != (dataset.size_bytes, dataset.modified_ns):
        raise ValidationError(f"Dataset {dataset.path} changed while it was in use. Start again with the new file.")
    for record in read_records(dataset.path, dataset.format, wanted=wanted):
        if isinstance(record, Row):
            yield record
        elif record.harmless:
            if on_warning is not None:
                on_warning(record)
        else:
            raise ValidationError(f"Dataset {dataset.path}: {record}")


def _in_file(path: Path, error: ValidationError) -> ValidationError:
    message = error.message if str(path) in error.message else f"Dataset {path}: {error.message}"
    return ValidationError(message, details=error.details)
