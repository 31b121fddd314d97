"""Tolerant reading of what the platform sends: wrong types become an error that names the field, never a crash.

Owns: how a field is taken out of a reply. Which fields a record has is said where the record is used.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from osmosis_ai.errors import PlatformError

_HALF_CHARACTER = re.compile("[\ud800-\udfff]")


class Record:
    """One object of a reply, read field by field.

    Args:
        value: What the platform sent in its place.
        where: What it is, for messages, such as `dataset` or `eval run 'a'`.

    Raises:
        PlatformError: It is no object.
    """

    __slots__ = ("fields", "where")

    def __init__(self, value: Any, where: str) -> None:
        if not isinstance(value, Mapping):
            _malformed(where, "an object", value)
        self.fields: Mapping[str, Any] = value
        self.where = where

    def __contains__(self, key: str) -> bool:
        return self.fields.get(key) is not None

    def text(self, key: str) -> str:
        """A text that must be there and not be empty.

        Raises:
            PlatformError: It is not.
        """
        value = self.fields.get(key)
        if not isinstance(value, str) or not value:
            _malformed(f"{self.where}.{key}", "a text", value)
        return value

    def maybe_text(self, key: str) -> str | None:
        """A text, or None where there is none (empty counts as none).

        Raises:
            PlatformError: It is something else.
        """
        value = self.fields.get(key)
        if value is None or value == "":
            return None
        if not isinstance(value, str):
            _malformed(f"{self.where}.{key}", "a text", value)
        return value

    def maybe_number(self, key: str) -> float | int | None:
        """A finite number; booleans and numbers that are not finite count as none.

        Raises:
            PlatformError: It is something else.
        """
        value = self.fields.get(key)
        if value is None or isinstance(value, bool):
            return None
        if not isinstance(value, int | float):
            _malformed(f"{self.where}.{key}", "a number", value)
        return value if math.isfinite(value) else None

    def maybe_int(self, key: str) -> int | None:
        """A whole number, or None where there is none.

        Raises:
            PlatformError: It is something else.
        """
        value = self.maybe_number(key)
        if value is None or isinstance(value, int):
            return value
        if not value.is_integer():
            _malformed(f"{self.where}.{key}", "a whole number", value)
        return int(value)

    def integer(self, key: str, default: int | None = None) -> int:
        """A whole number that must be there unless there is a default.

        Raises:
            PlatformError: It is not.
        """
        value = self.maybe_int(key)
        if value is None:
            value = default
        if value is None:
            _malformed(f"{self.where}.{key}", "a whole number", None)
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        """True or false.

        Raises:
            PlatformError: It is something else.
        """
        value = self.fields.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            _malformed(f"{self.where}.{key}", "true or false", value)
        return value

    def record(self, key: str) -> Record:
        """An object that must be there.

        Raises:
            PlatformError: It is not.
        """
        return Record(self.fields.get(key), f"{self.where}.{key}")

    def maybe_record(self, key: str) -> Record | None:
        """An object, or None where there is none.

        Raises:
            PlatformError: It is something else.
        """
        return self.record(key) if self.fields.get(key) is not None else None

    def records(self, key: str) -> list[Record]:
        """A list of objects; absent is empty.

        Raises:
            PlatformError: It is something else, or holds something else.
        """
        return [Record(item, f"{self.where}.{key}[{at}]") for at, item in enumerate(self.items(key))]

    def items(self, key: str) -> list[Any]:
        """A list of anything; absent is empty.

        Raises:
            PlatformError: It is no list.
        """
        value = self.fields.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            _malformed(f"{self.where}.{key}", "a list", value)
        return value

    def mapping(self, key: str) -> dict[str, Any]:
        """An object of anything; absent is empty.

        Raises:
            PlatformError: It is no object.
        """
        found = self.maybe_record(key)
        return dict(found.fields) if found else {}


def parse_json(text: str) -> Any:
    """A JSON text as a value that can be written as JSON again; None when it is no JSON.

    Numbers that are not finite become null, halves of surrogate pairs the replacement character.
    """
    try:
        value = json.loads(text, parse_constant=_no_number, parse_float=_finite_float)
        return _whole_text(value) if "\\ud" in text.lower() else value
    except (ValueError, RecursionError):
        return None


def _whole_text(value: Any) -> Any:
    """A JSON value whose texts can be written as UTF-8: an escape such as backslash ud800 alone is no character."""
    if isinstance(value, str):
        return _HALF_CHARACTER.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_whole_text(key): _whole_text(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole_text(item) for item in value]
    return value


def _no_number(_text: str) -> None:
    return None


def _finite_float(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


def finite(value: Any) -> Any:
    """A JSON value in which numbers that are not finite are null, so that it can be written as JSON."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def _malformed(where: str, wanted: str, value: Any) -> NoReturn:
    names = {
        type(None): "nothing", bool: "true or false", str: "a text", int: "a number", float: "a number",
        list: "a list", dict: "an object",
    }  # fmt: skip
    found = names.get(type(value), "something else")
    if found == wanted == "a text":
        found = "an empty text"
    raise PlatformError(
        f"The platform sent an answer that this client cannot read: {where} is {found} where it should be {wanted}.",
        details={"field": where},
    )
