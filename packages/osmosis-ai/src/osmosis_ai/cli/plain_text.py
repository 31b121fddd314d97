"""Results as plain text: no frames, no colours, a tab between cells. Loaded only to draw."""

from __future__ import annotations

from collections.abc import Iterable

from osmosis_ai.cli.output import clean
from osmosis_ai.cli.results import (
    Block,
    Cell,
    DetailResult,
    Fields,
    Lines,
    ListResult,
    ListsResult,
    OperationResult,
    Result,
    Table,
)


def plain_lines(result: Result) -> list[str]:
    """The lines of a result in plain text."""
    match result:
        case ListResult():
            return ["\t".join(_one_line(cell) for cell in row) for row in result.table.rows]
        case ListsResult():
            return [line for page in result.lists.values() for line in (f"{page.table.title}:", *plain_lines(page))]
        case DetailResult():
            return [*block_lines(result.blocks), *map(clean, result.hints)]
        case OperationResult():
            message = result.message or f"{result.operation}: {result.status}"
            return [*block_lines(result.blocks), clean(message), *map(clean, result.next_steps)]


def block_lines(blocks: Iterable[Block]) -> list[str]:
    """The lines of blocks in plain text, empty blocks left out."""
    lines: list[str] = []
    for block in blocks:
        match block:
            case Fields():
                lines += [f"{block.title}:"] if block.title and block.rows else []
                lines += [f"{label}: {_one_line(value)}" for label, value in block.rows]
            case Table():
                if block.rows and block.label:
                    lines += [f"{block.label}: {' '.join(map(_one_line, row))}" for row in block.rows]
                elif block.rows:
                    lines += [f"{block.title}:"] if block.title else []
                    lines += ["\t".join(column.name for column in block.columns)]
                    lines += ["\t".join(_one_line(cell) for cell in row) for row in block.rows]
                    lines += [block.note] if block.note else []
            case Lines():
                if block.lines:
                    lines += [f"{block.title}:"] if block.title else []
                    lines += [" " * block.indent + clean(str(line)) for line in block.lines]
    return lines


def _one_line(cell: Cell) -> str:
    return " ".join(clean(str(cell)).replace("\t", " ").split("\n"))
