"""Tables on terminals of every width and in pipes; dates and status words as people read them."""

import io
from datetime import UTC, datetime

import pytest
from osmosis_ai.cli import drawing
from osmosis_ai.cli.dates import age_text, date_cell, day_text, moment_text
from osmosis_ai.cli.results import Column, Table, Text
from osmosis_ai.cli.statuses import status_token, status_word
from rich.console import Console

LONG = "a-rather-long-dataset-name-for-multiplication-v2"
TABLE = Table(
    [Column("Name", keep=True), Column("Status", keep=True), Column("Size", right=True), Column("Uploaded"), Column("By")],
    [
        ["math", status_token("uploaded"), "2.0 MB", Text("2026-11-01 10:00 AM UTC", short="28d ago"), "Ada Lovelace"],
        [LONG, status_token("error"), "12 B", Text("2026-11-01 10:00 AM UTC", short="28d ago"), "–"],
    ],
)  # fmt: skip


def drawn(width: int, *, terminal: bool, table: Table = TABLE) -> list[str]:
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=terminal, no_color=True, color_system=None)
    drawing.draw(console, table)
    return [line.rstrip() for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_a_table_fits_the_terminal_and_cuts_no_word(width: int):
    lines = drawn(width, terminal=True)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    for word in ("math", LONG, "[uploaded]", "[error]", "2.0 MB", "28d ago"):
        assert word in text
    assert "2026" not in text


def test_a_narrow_terminal_gets_each_row_on_lines_of_its_own():
    assert drawn(60, terminal=True) == [
        "math",
        "  [uploaded] · Size 2.0 MB · 28d ago · Ada Lovelace",
        LONG,
        "  [error] · Size 12 B · 28d ago",
    ]


def test_a_pipe_has_whole_names_and_dates_on_one_line_each():
    name = "n" * 300
    lines = drawn(100, terminal=False, table=Table(TABLE.columns, [[name, *TABLE.rows[0][1:]]]))
    row = next(line for line in lines if name in line)
    assert "2026-11-01 10:00 AM UTC" in row and row.endswith("Ada Lovelace")


def test_prose_in_a_pipe_wraps_where_it_is_very_long():
    table = Table([Column("Name", keep=True), Column("Why")], [["n" * 150, "because " * 200]])
    lines = drawn(100, terminal=False, table=table)
    assert max(map(len, lines)) <= 150 + 120 + 10
    assert sum("n" * 150 in line for line in lines) == 1


def test_a_table_without_rows_or_headings_is_no_trouble():
    assert drawn(60, terminal=True, table=Table(TABLE.columns, [])) == []
    unnamed = Table([Column(""), Column("B")], [["a", "b"]])
    assert any("a" in line for line in drawn(60, terminal=True, table=unnamed))


@pytest.mark.parametrize(
    ("moment", "cell", "detail", "day"),
    [
        ("2026-11-01T09:05:07Z", "2026-11-01 9:05 AM UTC", "2026-11-01 9:05:07 AM UTC", "2026-11-01"),
        ("2026-11-01T00:00:00+00:00", "2026-11-01 12:00 AM UTC", "2026-11-01 12:00:00 AM UTC", "2026-11-01"),
        ("2026-11-01T12:30:00+02:00", "2026-11-01 10:30 AM UTC", "2026-11-01 10:30:00 AM UTC", "2026-11-01"),
        ("2026-11-01T10:00:00", "2026-11-01T10:00:00", "2026-11-01T10:00:00", "2026-11-01T10:00:00"),
        ("soon", "soon", "soon", "soon"),
        (None, "–", "–", "–"),
        ("", "–", "–", "–"),
    ],
)
def test_dates_are_local_with_their_zone(monkeypatch, moment, cell, detail, day):
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    assert (str(date_cell(moment)), moment_text(moment), day_text(moment)) == (cell, detail, day)


@pytest.mark.parametrize(
    ("moment", "age"),
    [
        ("2026-11-03T11:59:40Z", "just now"),
        ("2026-11-03T11:15:00Z", "45m ago"),
        ("2026-11-03T02:00:00Z", "10h ago"),
        ("2026-11-01T10:00:00Z", "2d ago"),
        ("2026-08-01T10:00:00Z", "3mo ago"),
        ("2020-11-01T10:00:00Z", "6y ago"),
        ("2026-11-03T12:00:30Z", "just now"),
    ],
)
def test_ages_are_in_the_largest_unit(moment, age):
    assert age_text(moment, datetime(2026, 11, 3, 12, tzinfo=UTC)) == age


def test_a_status_reads_without_colour_and_has_one():
    assert (str(status_token("running")), status_token("running").role) == ("[running]", "active")
    assert (str(status_word("not_started")), status_word("finished").role) == ("Not started", "good")
    assert str(status_token(None)) == "–"
    assert [status_token(word).role for word in ("pending", "failed", "stopped", "other")] == [
        "waiting", "bad", "dim", None,
    ]  # fmt: skip
