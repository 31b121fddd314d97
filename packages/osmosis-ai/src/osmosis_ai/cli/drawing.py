"""Results as a terminal shows them: frames, colours, wrapped text. The one module that loads rich, and only to draw."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from osmosis_ai.cli.output import clean, colours_allowed
from osmosis_ai.cli.results import (
    Block,
    Cell,
    DetailResult,
    Fields,
    Graphs,
    Lines,
    ListResult,
    ListsResult,
    OperationResult,
    Plot,
    Result,
    Role,
    Table,
    Text,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text as RichText

_STYLES: dict[Role, str] = {
    "good": "green",
    "bad": "red",
    "warn": "yellow",
    "waiting": "dark_orange",
    "active": "blue",
    "dim": "dim",
    "strong": "bold",
    "accent": "cyan",
}
_PIPE_WIDTH = 200
_NARROWEST = 16
_WIDEST = 120
_GAP = 3
_ABSENT = "–"
_RULE_WIDTH = 100
_GRAPHS_WIDTH = 100
_GRAPH_VALUES_WIDTH = 28
_RAMP = ("#005f00", "#006f00", "#008700", "#00a000", "#00af00", "#00c800", "#00d75f", "#5fff87")


def draw_result(result: Result) -> None:
    """Draw a command's result on stdout."""
    console = make_console()
    match result:
        case ListResult():
            _draw_list(console, result)
        case ListsResult():
            for page in result.lists.values():
                _draw_list(console, page)
        case DetailResult():
            if result.title:
                _rule(console, result.title)
            draw(console, *result.blocks)
            if result.hints:
                console.print()
            _dim(console, result.hints)
        case OperationResult():
            draw(console, *result.blocks)
            style = "green" if result.status == "success" and not result.exit_status else "yellow"
            console.print(_styled(result.message or f"{result.operation}: {result.status}", style))
            _dim(console, result.next_steps)


def _draw_list(console: Console, result: ListResult) -> None:
    draw(console, result.table)
    if result.has_more:
        _dim(console, [f"Showing {len(result.items)} of {result.total_count}. Use --all, or --limit, to see more."])
    _dim(console, result.hints)


def make_console(*, stderr: bool = False) -> Console:
    """A console for one stream; in a pipe lines are long, so that they can be filtered by whole values."""
    from rich.console import Console

    terminal = (sys.stderr if stderr else sys.stdout).isatty()
    width = None if terminal or os.environ.get("COLUMNS") else _PIPE_WIDTH
    return Console(
        stderr=stderr, width=width, no_color=not colours_allowed() or None, highlight=False, markup=False, emoji=False
    )


def draw(console: Console, *blocks: Block) -> None:
    """Draw blocks one under the other, empty ones not at all."""
    for block in blocks:
        if isinstance(block, Plot | Graphs):
            _draw_curves(console, block)
            continue
        if not (block.lines if isinstance(block, Lines) else block.rows):
            continue
        if block.title:
            _rule(console, block.title)
        if isinstance(block, Lines):
            _draw_lines(console, block)
        elif isinstance(block, Table):
            _draw_table(console, block)
        else:
            console.print(_frame(block))
        if isinstance(block, Table) and block.note:
            _dim(console, [block.note])


def _draw_curves(console: Console, block: Plot | Graphs) -> None:
    if isinstance(block, Graphs):
        if not (block.rows and console.is_terminal and console.width >= _GRAPHS_WIDTH):
            return
        drawn: Any = graph_table(block, min(console.width, _GRAPHS_WIDTH), ascii_only=ascii_only(console))
    else:
        width = min(console.width, _RULE_WIDTH)
        drawn = plot_text(block, width, block.height, ascii_only=ascii_only(console))
        if not drawn.plain:
            return
    if block.title:
        _rule(console, block.title)
    console.print(drawn, soft_wrap=isinstance(block, Plot))


def plot_text(plot: Plot, width: int, height: int, *, ascii_only: bool) -> RichText:
    """A plot as lines of coloured text; empty without a value."""
    from rich.text import Text as RichText

    from osmosis_ai.cli.graph import plot_lines

    text = RichText(no_wrap=True, overflow="crop")
    for number, line in enumerate(plot_lines(plot.series, width, height, ascii_only=ascii_only)):
        text.append("\n" if number else "")
        for piece in line:
            text.append(piece.text, "dim" if piece.series is None else _STYLES[plot.roles[piece.series]])
    return text


def graph_table(graphs: Graphs, width: int, *, ascii_only: bool) -> RichTable:
    """Sparklines in a ramp from dark to bright, each with its first and last value."""
    from rich.table import Table as RichTable
    from rich.text import Text as RichText

    from osmosis_ai.cli.figures import value_text
    from osmosis_ai.cli.graph import bar_level, sparkline

    table = RichTable.grid(padding=(0, 2))
    room = width - max(len(title) for title, _ in graphs.rows) - _GRAPH_VALUES_WIDTH
    for title, values in graphs.rows:
        line = sparkline(values, room, ascii_only=ascii_only)
        if not line:
            table.add_row(RichText(title, "cyan"), RichText("No data", "dim"), "")
            continue
        bars = RichText()
        for character in line:
            bars.append(character, _RAMP[bar_level(character)])
        table.add_row(RichText(title, "cyan"), bars, f"{value_text(values[0])} → {value_text(values[-1])}")
    return table


def ascii_only(console: Console) -> bool:
    """Whether the stream cannot take more than ASCII."""
    try:
        "⠤◆▁".encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return True
    return False


def _draw_lines(console: Console, block: Lines) -> None:
    """Wrap every line to the width that the indent leaves; no blanks at the ends."""
    for line in block.lines:
        text = _styled(line)
        for part in text.wrap(console, max(20, console.width - block.indent)) or [text]:
            part.rstrip()
            if part.plain:
                part.pad_left(block.indent)
            console.print(part, soft_wrap=True)


def _draw_table(console: Console, table: Table) -> None:
    """Fit the terminal, as a list where columns do not; in a pipe a table is as wide as its cells.

    So lines of a pipe can be filtered by whole names, and on a narrow terminal no word is cut into letters.
    """
    from rich.cells import cell_len

    on_screen = console.is_terminal
    rows = [[_shown(cell) if on_screen else str(cell) for cell in row] for row in table.rows]
    cells = [max(map(cell_len, column), default=0) for column in zip(*rows, strict=True)] or [0] * len(table.columns)
    widest = [max(cell_len(column.name), width) for column, width in zip(table.columns, cells, strict=True)]
    floors = [
        whole if column.keep else max([min(width, _NARROWEST), *map(cell_len, column.name.split())])
        for column, width, whole in zip(table.columns, cells, widest, strict=True)
    ]
    gaps = _GAP * len(floors) - 1
    before = console.width
    if on_screen and sum(floors) + gaps > before:
        _draw_stacked(console, table)
        return
    if not on_screen:
        wanted = (
            whole if column.keep else min(whole, _WIDEST) for column, whole in zip(table.columns, widest, strict=True)
        )
        console.width = max(before, sum(wanted) + gaps)
    console.print(_frame(table, floors, short=on_screen))
    console.width = before


def _draw_stacked(console: Console, table: Table) -> None:
    """Each row as a line with its first cell, and the others under it, figures with their heading."""
    from rich.text import Text as RichText

    for row in table.rows:
        parts: list[RichText] = []
        for column, cell in zip(table.columns, row, strict=True):
            text = _styled(Text(_shown(cell), cell.role if isinstance(cell, Text) else None))
            if text.plain and (text.plain != _ABSENT or not parts):
                parts.append(RichText.assemble((f"{column.name} ", "dim"), text) if column.right else text)
        parts[0].stylize("bold")
        console.print(parts[0], soft_wrap=True)
        rest = RichText(" · ", "dim").join(parts[1:])
        for line in rest.wrap(console, max(20, console.width - 2)):
            line.rstrip()
            if line.plain:
                line.pad_left(2)
                console.print(line, soft_wrap=True)


def _frame(block: Fields | Table, floors: Sequence[int] = (), *, short: bool = False) -> RichTable:
    from rich import box
    from rich.table import Table as RichTable

    if isinstance(block, Fields):
        table = RichTable(box=box.ROUNDED, show_header=False, border_style="dim")
        table.add_column(style="cyan", no_wrap=True)
        table.add_column(overflow="fold")
        for label, value in block.rows:
            table.add_row(label, _styled(value))
        return table
    table = RichTable(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, border_style="dim")
    for column, floor in zip(block.columns, floors, strict=True):
        table.add_column(
            column.name,
            justify="right" if column.right else "left",
            no_wrap=column.keep,
            overflow="ellipsis" if column.keep else "fold",
            min_width=floor,
        )
    for row in block.rows:
        table.add_row(*(_styled(cell, short=short) for cell in row))
    return table


def _shown(cell: Cell) -> str:
    """What a terminal shows of a table's cell."""
    return clean(cell.short if isinstance(cell, Text) and cell.short is not None else str(cell))


def _styled(cell: Cell, style: str = "", *, short: bool = False) -> Any:
    from rich.text import Text as RichText

    if isinstance(cell, Text):
        style = _STYLES[cell.role] if cell.role else style
    return RichText(_shown(cell) if short else clean(str(cell)), style=style, overflow="fold")


def _rule(console: Console, title: str) -> None:
    from rich.rule import Rule

    console.print(Rule(clean(title), style="dim"), width=min(console.width, _RULE_WIDTH))


def _dim(console: Console, lines: Iterable[str]) -> None:
    for line in lines:
        console.print(_styled(Text(line, "dim")), soft_wrap=True)


def picture(console: Console, blocks: Iterable[Block]) -> RichText:
    """Blocks as one text of the console's width, for a region that is redrawn."""
    from rich.text import Text as RichText

    with console.capture() as captured:
        draw(console, *blocks)
    return RichText.from_ansi(captured.get().rstrip("\n"), no_wrap=True)
