import math

import pytest
from osmosis_ai.cli.graph import Series, plot_lines, sparkline


def text(*series: Series, width: int = 60, height: int = 8, ascii_only: bool = False) -> list[str]:
    return ["".join(p.text for p in line) for line in plot_lines(series, width, height, ascii_only=ascii_only)]


RISING = Series("training", [(step, step / 40) for step in range(1, 41)])
VALIDATION = Series("validation", [(0, 0.1), (20, 0.5), (40, 0.9)], "points")


def test_a_rising_curve_goes_from_bottom_left_to_top_right():
    lines = text(RISING)
    plot = [line.partition("│")[2] for line in lines if "│" in line]
    assert len(plot) == 8
    first, last = plot[0], plot[-1]
    assert len(first) - len(first.lstrip()) > 40  # the top is reached at the right
    assert last.strip() and len(last) < 12  # the bottom is left at the left
    assert "0.00 │" in lines[-3] and "1.00 │" in lines[1]
    assert lines[-1].split() == ["1", "40", "step"]


def test_points_are_marks_on_the_same_axes():
    lines = text(RISING, VALIDATION)
    assert lines[0].strip() == "⠤⠤ training   ◆ validation"
    assert sum(line.count("◆") for line in lines[1:]) == 3
    rows = [number for number, line in enumerate(lines) if "◆" in line and number]
    assert rows == sorted(rows) and len(rows) == 3


@pytest.mark.parametrize("width", [24, 40, 79, 100])
def test_no_line_is_wider_than_asked(width: int):
    assert max(len(line) for line in text(RISING, VALIDATION, width=width)[1:]) <= width


@pytest.mark.parametrize(
    "values", [[0.0], [0.0, 0.0], [5.0, 5.0], [-3.0, 17.2], [1e-9, 2e-9], [1e12], [0.0, math.nan, 1.0], [-1e-300, 0]]
)
def test_every_range_has_an_axis(values: list[float]):
    lines = text(Series("x", list(enumerate(values))))
    assert len(lines) == 11
    assert any(set(line) & {chr(0x2800 + dot) for dot in range(1, 256)} for line in lines[1:])


def test_nothing_is_drawn_without_a_value():
    assert text(Series("x", [])) == []
    assert text(Series("x", [(1, math.nan), (2, math.inf)])) == []


def test_a_poor_terminal_gets_ascii():
    assert all(line.isascii() for line in text(RISING, VALIDATION, ascii_only=True))
    assert sparkline([1, 2, 3], 10, ascii_only=True).isascii()


def test_sparklines_follow_the_values():
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 20) == "▁▂▃▄▅▆▇█"
    assert sparkline([2, 2, 2], 20) == "▄▄▄"
    assert sparkline([], 20) == sparkline([math.nan], 20) == ""
    assert len(sparkline(range(1000), 30)) == 30
    assert len(sparkline(range(1000), 2)) == 8
    assert sparkline([0, math.nan, 1], 20) == "▁█"
