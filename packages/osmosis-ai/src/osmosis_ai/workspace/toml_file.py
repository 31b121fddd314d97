"""Reads one TOML file and remembers on which line each key stands.

Owns: opening, decoding and parsing with errors that name the file; line numbers. What the keys mean is left to the
config modules.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from osmosis_ai.errors import UsageError, ValidationError

_KEY_PART = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_KEY_PATH = rf"{_KEY_PART}(?:\s*\.\s*{_KEY_PART})*"
_TABLE = re.compile(rf"\s*(\[\[?)\s*({_KEY_PATH})\s*\]")
_ASSIGNMENT = re.compile(rf"\s*({_KEY_PATH})\s*=")
_PARTS = re.compile(_KEY_PART)


@dataclass(frozen=True, slots=True)
class TomlFile:
    """A parsed file.

    Attributes:
        path: Where it was read, as the user gave it.
        data: The parsed tables.
        lines: First line (from 1) of each key path that stands at the start of a line; entries of an array of tables
            also stand under their position: `("agents", "1", "model")`.
    """

    path: Path
    data: Mapping[str, Any]
    lines: Mapping[tuple[str, ...], int]

    def line_of(self, *keys: str) -> int | None:
        """The line of a key, else of the nearest table around it, else None."""
        for end in range(len(keys), 0, -1):
            if (line := self.lines.get(keys[:end])) is not None:
                return line
        return None


def read_toml(path: Path) -> TomlFile:
    """Read and parse `path`.

    Raises:
        UsageError: It is a directory.
        ValidationError: It does not exist, cannot be read, is not UTF-8 or is not TOML (with the parser's position).
    """
    if path.is_fifo() and not path.is_relative_to("/dev"):  # there the shell has somebody who writes it
        raise ValidationError(f"Config file {path} is a pipe, and nobody may be writing into it; give a regular file.")
    try:
        raw = path.read_bytes()
    except IsADirectoryError:
        raise UsageError(f"{path} is a directory; give the .toml file inside it.") from None
    except FileNotFoundError:
        raise ValidationError(f"Config file not found: {path}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ValidationError(f"Cannot read config file {path}: {reason}") from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ValidationError(
            f"Invalid TOML in {path}: line {line} is not UTF-8 text; save the file as UTF-8."
        ) from None
    try:
        data = tomllib.loads(text)
    except ValueError as error:
        raise ValidationError(f"Invalid TOML in {path}: {error}") from None
    except RecursionError:
        raise ValidationError(f"Invalid TOML in {path}: its arrays or tables are nested too deeply.") from None
    return TomlFile(path, data, _key_lines(text))


def _key_lines(text: str) -> dict[tuple[str, ...], int]:
    """Lines of tables and keys in a valid TOML text; keys inside inline tables are not listed."""
    lines: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    entries: dict[tuple[str, ...], int] = {}  # arrays of tables: how many entries there are so far
    quote = ""  # the delimiter of a multi-line string that is open at the start of the line
    depth = 0  # of brackets that are open at the start of the line
    for number, line in enumerate(text.split("\n"), 1):
        rest = line
        if not quote and depth == 0:
            if header := _TABLE.match(line):
                table = _split(header[2])
                if header[1] == "[[":
                    entries[table] = entries.get(table, 0) + 1
                lines.setdefault(table, number)
                lines.setdefault(_positioned(table, entries), number)
                continue
            if assignment := _ASSIGNMENT.match(line):
                path = table + _split(assignment[1])
                for end in range(len(table) + 1, len(path) + 1):
                    lines.setdefault(path[:end], number)
                    lines.setdefault(_positioned(path[:end], entries), number)
                rest = line[assignment.end() :]
        quote, depth = _state_after(rest, quote, depth)
    return lines


def _positioned(path: tuple[str, ...], entries: Mapping[tuple[str, ...], int]) -> tuple[str, ...]:
    """The path with the position of the current entry after each array of tables on its way."""
    found: list[str] = []
    for end, part in enumerate(path, 1):
        found.append(part)
        if count := entries.get(path[:end]):
            found.append(str(count - 1))
    return tuple(found)


def _split(key_path: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in _PARTS.findall(key_path))


def _state_after(text: str, quote: str, depth: int) -> tuple[str, int]:
    """What is still open after `text`: a multi-line string's delimiter and the number of brackets."""
    at = 0
    while at < len(text):
        if quote:
            if quote[0] == '"' and text[at] == "\\":
                at += 2
                continue
            if text.startswith(quote, at):
                at += len(quote)
                quote = ""
                continue
        elif text[at] in "\"'":
            triple = text[at] * 3
            quote = triple if text.startswith(triple, at) else text[at]
            at += len(quote)
            continue
        elif text[at] == "#":
            break
        elif text[at] in "[{":
            depth += 1
        elif text[at] in "]}":
            depth -= 1
        at += 1
    return (quote if len(quote) == 3 else ""), depth
