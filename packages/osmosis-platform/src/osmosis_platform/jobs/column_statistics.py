"""What is in a column: types, nulls, distinct values, ranges, lengths. One pass, constant memory, any values."""

from __future__ import annotations

import heapq
import json
import math
from typing import Any

_KEPT = 1024
_HASHES = 1 << 64
_EXACT_INT = 1 << 53
_INT64 = range(-(1 << 63), 1 << 63)


class DistinctCount:
    """How many different values were added: exact below 1,024, beyond that an estimate with about 3 % standard error.

    Keeps the k smallest of 64-bit hashes; n is estimated as (k - 1) / (k-th smallest as a fraction of all hashes)
    (Beyer, Haas, Reinwald, Sismanis, Gemulla: On synopses for distinct-value estimation, SIGMOD 2007).
    """

    def __init__(self) -> None:
        self._largest_first: list[int] = []
        self._kept: set[int] = set()

    def add(self, value: Any) -> None:
        """Adds a hashable value."""
        hashed = hash(("", value)) % _HASHES
        if hashed in self._kept:
            return
        if len(self._kept) < _KEPT:
            heapq.heappush(self._largest_first, -hashed)
        elif hashed < -self._largest_first[0]:
            self._kept.discard(-heapq.heapreplace(self._largest_first, -hashed))
        else:
            return
        self._kept.add(hashed)

    @property
    def is_exact(self) -> bool:
        """Whether `count` is no estimate."""
        return len(self._kept) < _KEPT

    @property
    def count(self) -> int:
        """The number of different values."""
        if self.is_exact:
            return len(self._kept)
        return round((_KEPT - 1) * _HASHES / -self._largest_first[0])


class ColumnStatistics:
    """One column."""

    def __init__(self) -> None:
        self.types: dict[str, int] = {}
        self.distinct = DistinctCount()
        self.fits_int64 = True
        self.fits_double = True
        self._numbers = 0
        self._sum = 0.0
        self._least: int | float | None = None
        self._most: int | float | None = None
        self._lengths = 0
        self._length_sum = 0
        self._shortest: int | None = None
        self._longest = 0

    def add(self, value: Any) -> None:
        """Adds a cell."""
        name = type_name(value)
        self.types[name] = self.types.get(name, 0) + 1
        if name == "null":
            return
        if name == "string":
            self.distinct.add(value)
            self._add_length(len(value))
        elif name in {"integer", "number"}:
            self.distinct.add(value)
            self._add_number(value)
        elif name == "boolean":
            self.distinct.add(("boolean", value))
        else:
            self.distinct.add((name, json.dumps(value, sort_keys=True, default=str)))
            if name in {"object", "array"}:
                self._add_length(len(value))

    def to_json(self) -> dict[str, Any]:
        """What is known; only finite numbers."""
        facts: dict[str, Any] = {
            "types": dict(sorted((name, count) for name, count in self.types.items() if name != "null")),
            "nulls": self.types.get("null", 0),
            "distinct": self.distinct.count,
            "distinct_is_exact": self.distinct.is_exact,
        }
        if self._numbers:
            facts |= {"min": _storable(self._least), "max": _storable(self._most)}
            facts["mean"] = _storable(self._sum / self._numbers)
        if self._lengths:
            lengths = {"min": self._shortest, "max": self._longest, "mean": self._length_sum / self._lengths}
            facts["length"] = lengths
        return facts

    def _add_number(self, value: int | float) -> None:
        if isinstance(value, int):
            self.fits_int64 = self.fits_int64 and value in _INT64
            self.fits_double = self.fits_double and abs(value) <= _EXACT_INT
            if value not in _INT64:
                return  # no use to anybody as a mean
        elif not math.isfinite(value):
            return
        self._numbers += 1
        self._sum += value
        if self._least is None or value < self._least:
            self._least = value
        if self._most is None or value > self._most:
            self._most = value

    def _add_length(self, length: int) -> None:
        self._lengths += 1
        self._length_sum += length
        self._longest = max(self._longest, length)
        self._shortest = length if self._shortest is None else min(self._shortest, length)


def type_name(value: Any) -> str:
    """The JSON type of a cell; `other` for what JSON has no type for."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    if isinstance(value, dict):
        return "object"
    return "array" if isinstance(value, (list, tuple)) else "other"


def _storable(value: int | float | None) -> int | float | None:
    return value if value is not None and math.isfinite(value) else None
