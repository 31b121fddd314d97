"""Whole-file writes of a run directory: a reader sees the old file or the new one, never half of either."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from osmosis_ai.errors import OsmosisError
from osmosis_ai.evaluation.jsontext import encode_json

storage_code = "STORAGE"


def write_atomic(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Write a file of mode 600 through a temporary sibling.

    Args:
        path: The file; its directory exists.
        data: Its whole content.
        durable: Also force it to the disk; derived files that are rewritten in a moment can do without.

    Raises:
        OsmosisError: The disk is full or refuses; nothing of the old file is lost.
    """
    temporary: str | None = None
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name[:100]}.", suffix=".tmp", dir=path.parent)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            if durable:
                stream.flush()
                os.fsync(descriptor)
        Path(temporary).replace(path)
        temporary = None
        if durable:
            sync_directory(path.parent)
    except OSError as error:
        raise storage_error(path, error) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()


def json_bytes(value: Mapping[str, Any]) -> bytes:
    """A JSON document as the run directory stores it: indent 2, non-ASCII kept, NaN refused, a last newline."""
    return encode_json(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def sync_directory(path: Path) -> None:
    """Force a directory's entries to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def storage_error(path: Path, error: OSError) -> OsmosisError:
    """The error of a file that cannot be written, with what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        remedy = "Free some space and run the same command again; nothing recorded so far is lost."
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        remedy = "Check the permissions of the directory, or choose another output root with --output."
    else:
        remedy = "Check the disk and run the same command again; nothing recorded so far is lost."
    return OsmosisError(
        f"{path} cannot be written: {error.strerror or error}. {remedy}",
        details={"file": str(path), "errno": errno.errorcode.get(error.errno or 0, "")},
        code=storage_code,
    )
