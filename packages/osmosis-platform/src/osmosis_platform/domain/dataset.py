"""What a dataset is: its states, what it may be called, how large it may be. Pure; rows are db.repositories.datasets.

    uploading ──complete──► pending ──worker──► processing ──► uploaded
        │                      │                    └────────► error      wrong content, or the platform's fault
        ├──abort, swept──► cancelled ◄──cancel──────┘
        └──deleted

Only `uploaded` can be downloaded and used by runs. A name belongs to one dataset at a time, from its creation until it is
cancelled or deleted; a dataset that overwrites another takes the name over when its upload is complete.
"""

from __future__ import annotations

import unicodedata
from enum import StrEnum
from typing import Literal, get_args

from osmosis_platform.errors import InvalidRequestError, TooLargeError
from osmosis_platform.ids import looks_like_id

type Format = Literal["csv", "jsonl", "parquet"]
FORMATS: tuple[str, ...] = get_args(Format.__value__)

_NAME_LIMIT = 200
_NAME_BYTES = 240  # with an extension still a file name everywhere
_NO_TEXT = {"Cc", "Cs", "Co", "Zl", "Zp"}
_DIRECTION = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


class DatasetStatus(StrEnum):
    """Where a dataset is, as the wire says it."""

    UPLOADING = "uploading"
    PENDING = "pending"
    PROCESSING = "processing"
    UPLOADED = "uploaded"
    ERROR = "error"
    CANCELLED = "cancelled"


IN_WORK = (DatasetStatus.PENDING, DatasetStatus.PROCESSING)


def check_name(text: str) -> str:
    """The name in its one spelling (Unicode NFC).

    Raises:
        InvalidRequestError: It is no file stem, could be taken for an id, or for another name.
    """
    name = unicodedata.normalize("NFC", text)
    problem = _problem(name)
    if problem:
        shown = "".join(one if one.isprintable() else "?" for one in name[:60])
        message = f"A dataset cannot be called {shown!r}: {problem}. Rename the file and upload it again."
        raise InvalidRequestError(message, field="file_name")
    return name


def spelled(text: str) -> str:
    """How a name that somebody asks for is spelled in rows."""
    return unicodedata.normalize("NFC", text)


def check_size(size_bytes: int, limit: int) -> None:
    """Lets a size pass.

    Raises:
        InvalidRequestError: There is nothing to upload.
        TooLargeError: It is over the limit.
    """
    if size_bytes < 1:
        raise InvalidRequestError("The file is empty; a dataset needs rows.", field="file_size")
    if size_bytes > limit:
        message = f"The file has {size_bytes} bytes; this platform takes datasets up to {limit}. Split it."
        raise TooLargeError(message, field="file_size", details={"limit_bytes": limit})


def _problem(name: str) -> str | None:
    if not name:
        return "the name is empty"
    if len(name) > _NAME_LIMIT or len(name.encode("utf-8", "replace")) > _NAME_BYTES:
        return f"a name has at most {_NAME_LIMIT} characters and {_NAME_BYTES} bytes"
    if any(unicodedata.category(one) in _NO_TEXT or unicodedata.bidirectional(one) in _DIRECTION for one in name):
        return "it holds control characters"
    if "/" in name or "\\" in name or name in {".", ".."}:
        return "a name is the file's name without folder and extension"
    if name != name.strip():
        return "it begins or ends with a blank"
    if looks_like_id(name):
        return "it looks like one of the platform's ids"
    return None
