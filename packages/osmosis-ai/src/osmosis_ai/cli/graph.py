"""Curves as characters: a line plot in braille dots with axes, and sparklines of eight block heights.

Owns: where a value lies in a grid of characters. Colours are the drawing's; which curves there are, the caller's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

type Point = tuple[float, float]
"""A step and a value."""

_BARS = "▁▂▃▄▅▆▇█"
_ASCII_BARS = "_.:-=+*#"
_FLAT = 3
_SPARK_MIN = 8
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of a braille cell, by row and column
_BRAILLE = 0x2800
_NICE_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Series:
    """One curve.

    Attributes:
        name: What the legend calls it.
        points: By rising step; values that are not finite are left out.
        mark: `line` joins the points with dots, `points` sets a mark at each.
    """

    name: str
    points: Sequence[Point]
    mark: Literal["line", "points"] = "line"


@dataclass(frozen=True, slots=True)
class Piece:
    """Characters of a plot that look alike: an axis (`series` is None) or a curve by its position."""

    text: str
    series: int | None = None


def plot_lines(series: Sequence[Series], width: int, height: int, *, ascii_only: bool = False) -> list[list[Piece]]:
    """Draw curves over one pair of axes, the legend first.

    Args:
        series: The curves; a later one covers an earlier one.
        width: Columns of the whole, axis labels included; at least 24.
        height: Rows of the plot itself; at least 3. The legend and the step axis take three more.
        ascii_only: Where the terminal has no other characters.

    Returns:
        One list of pieces a row; nothing when no series has a finite value.
    """
    curves = [[(x, y) for x, y in one.points if math.isfinite(y)] for one in series]
    if not any(curves):
        return []
    height = max(3, height)
    low, high, marks = _scale([y for curve in curves for _, y in curve])
    label_width = max(len(text) for _, text in marks)
    columns = max(10, width - label_width - 2)
    first = min(curve[0][0] for curve in curves if curve)
    last = max(curve[-1][0] for curve in curves if curve)
    last = max(last, first + 1)

    def column(x: float) -> float:
        return (x - first) / (last - first) * (2 * columns - 1)

    def row(y: float) -> float:
        return (high - y) / (high - low) * (4 * height - 1)

    cells: list[list[Piece]] = [[Piece(" ")] * columns for _ in range(height)]
    for index, (one, curve) in enumerate(zip(series, curves, strict=True)):
        at = [(column(x), row(y)) for x, y in curve]
        if one.mark == "points":
            for x, y in at:
                cells[round(y) // 4][round(x) // 2] = Piece(_marker(ascii_only), index)
        else:
            _draw_line(cells, at, index, ascii_only)
    labels = {min(height - 1, round(row(value)) // 4): text for value, text in marks}
    legend: list[Piece] = [Piece(" " * (label_width + 2))]
    for index, one in enumerate(series):
        if curves[index]:
            glyph = _marker(ascii_only) if one.mark == "points" else ("*" if ascii_only else "⠤⠤")
            legend += [Piece(f"{glyph} {one.name}", index), Piece("   ")]
    corner, wall, floor = ("+", "|", "-") if ascii_only else ("└", "│", "─")
    lines = [legend]
    lines += [[Piece(f"{labels.get(y, ''):>{label_width}} {wall}"), *_joined(cells[y])] for y in range(height)]
    lines.append([Piece(f"{'':>{label_width}} {corner}{floor * columns}")])
    start, end = f"{first:g}", f"{last:g} step"
    lines.append([Piece(f"{'':>{label_width + 2}}{start}{end:>{max(0, columns - len(start))}}")])
    return lines


def sparkline(values: Sequence[float], width: int, *, ascii_only: bool = False) -> str:
    """One character a value, its height the value's place between the least and the greatest; a flat one in the middle.

    Args:
        values: What is not finite is left out.
        width: Most characters, at least 8; more values are taken evenly.
        ascii_only: Where the terminal has no other characters.
    """
    kept = [value for value in values if math.isfinite(value)]
    if not kept:
        return ""
    width = max(_SPARK_MIN, width)
    if len(kept) > width:
        kept = [kept[round(at * (len(kept) - 1) / (width - 1))] for at in range(width)]
    bars = _ASCII_BARS if ascii_only else _BARS
    low, high = min(kept), max(kept)
    if high <= low:
        return bars[_FLAT] * len(kept)
    return "".join(bars[min(len(bars) - 1, int((value - low) / (high - low) * len(bars)))] for value in kept)


def bar_level(character: str) -> int:
    """The height, 0 to 7, that a character of a sparkline stands for."""
    return max(_BARS.find(character), _ASCII_BARS.find(character), 0)


def _marker(ascii_only: bool) -> str:
    return "o" if ascii_only else "◆"


def _draw_line(cells: list[list[Piece]], at: Sequence[Point], index: int, ascii_only: bool) -> None:
    """Set the dots of straight lines from point to point."""
    dots: dict[tuple[int, int], int] = {}
    previous = at[0] if at else (0.0, 0.0)
    for x, y in at:
        steps = max(1, math.ceil(max(abs(x - previous[0]), abs(y - previous[1]))))
        for step in range(steps + 1):
            dot_x = round(previous[0] + (x - previous[0]) * step / steps)
            dot_y = round(previous[1] + (y - previous[1]) * step / steps)
            cell = (dot_y // 4, dot_x // 2)
            dots[cell] = dots.get(cell, 0) | _DOTS[dot_y % 4][dot_x % 2]
        previous = (x, y)
    for (y, x), dot in dots.items():
        cells[y][x] = Piece("*" if ascii_only else chr(_BRAILLE | dot), index)


def _joined(cells: Sequence[Piece]) -> list[Piece]:
    """Neighbours that look alike together, blanks at the end left out."""
    pieces: list[Piece] = []
    for cell in cells:
        if pieces and pieces[-1].series == cell.series:
            pieces[-1] = Piece(pieces[-1].text + cell.text, cell.series)
        else:
            pieces.append(cell)
    if pieces and pieces[-1].series is None:
        pieces.pop()
    return pieces


def _scale(values: Sequence[float]) -> tuple[float, float, list[tuple[float, str]]]:
    """The axis for values: its ends, and the values that are written beside it."""
    low, high = min(values), max(values)
    if low >= 0 and high <= 1 and (high > 0.2 or high <= low):  # rewards mostly: the range says where they stand
        low, high = 0.0, 1.0
    if high <= low:
        low, high = low - 0.5, high + 0.5
    step = _nice((high - low) / 4)
    low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    count = round((high - low) / step)
    digits = max(0, -math.floor(math.log10(step) + 1e-9)) + (step / 10 ** math.floor(math.log10(step)) == 2.5)
    marks = [low + at * step for at in range(count + 1)]
    return low, high, [(mark, f"{mark:.{digits}f}") for mark in marks]


def _nice(step: float) -> float:
    """The least of 1, 2, 2.5, 5 times a power of ten that is not below `step`."""
    power = 10 ** math.floor(math.log10(step))
    return next((nice * power for nice in _NICE_STEPS if nice * power >= step * (1 - 1e-9)), 10 * power)
