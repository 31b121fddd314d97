"""A comparison of two runs in words: the rows that changed sides, the difference, and what it means."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from osmosis_ai.cli.figures import plural, rate_text, reward_text
from osmosis_ai.cli.results import Block, Cell, Column, DetailResult, Fields, Lines, Table, Text
from osmosis_ai.evaluation.rows import format_selector

if TYPE_CHECKING:
    from osmosis_ai.evaluation.compare import Comparison, Difference, Flip, Side

_SIGNIFICANT = 0.05
_FLIPS_SHOWN = 20


def comparison_result(found: Comparison, a: str, b: str) -> DetailResult:
    """What `eval compare A B` shows; `a` and `b` are the runs as they were typed."""
    blocks: list[Block] = [
        *_flips(found),
        _sides(found),
        _differences(found),
        Lines([Text(line, "strong") for line in _verdict(found)]),
        Lines([Text(f"⚠ {warning}", "warn") for warning in found.warnings]),
    ]
    hints = []
    if found.flips:
        row = found.flips[0].source_row_index
        views = [f"osmosis eval view {shlex.quote(run)} --row {row}" for run in (a, b)]
        hints = [f"Look at a row in both: {'; '.join(views)}"]
    return DetailResult(found.to_json(), blocks, hints=hints)


def _flips(found: Comparison) -> list[Block]:
    worse = [flip for flip in found.flips if flip.lost]
    better = [flip for flip in found.flips if not flip.lost]
    return [*_flip_table("Got worse", worse, found), *_flip_table("Got better", better, found)]


def _flip_table(title: str, flips: Sequence[Flip], found: Comparison) -> list[Block]:
    if not flips:
        return []
    rows = [
        (
            str(flip.source_row_index),
            rate_text(flip.a_rate),
            rate_text(flip.b_rate),
            _reward(flip.a_reward),
            _reward(flip.b_reward),
        )
        for flip in flips[:_FLIPS_SHOWN]
    ]
    names = ("Row", "Pass in A", "Pass in B", "Reward in A", "Reward in B")
    more = len(flips) - len(rows)
    listed = format_selector(flip.source_row_index for flip in flips)
    note = f"all {len(flips)} rows: {listed}" if more else ""
    columns = [Column(name, right=True) for name in names]
    return [Table(columns, rows, title=f"{title}: {plural(len(flips), 'row')}", note=note)]


def _sides(found: Comparison) -> Table:
    columns = [Column(""), Column("Run"), Column("Model")]
    columns += [Column(name, right=True) for name in ("Pass Rate", "Reward", "Graded", "Failed", "Skipped")]
    return Table(columns, [_side("A", found.a), _side("B", found.b)], title="Runs")


def _side(letter: str, side: Side) -> list[Cell]:
    counts = [f"{side.counts[name]:,}" for name in ("graded", "failed", "skipped")]
    rate = rate_text(side.pass_rate) if side.pass_rate is not None else "–"
    return [Text(letter, "accent"), side.name, side.model, rate, _reward(side.mean_reward), *counts]


def _differences(found: Comparison) -> Fields:
    rows: list[tuple[str, Cell]] = []
    if found.passes is not None:
        rows.append(("Pass Rate", _points(found.passes)))
    if found.rewards is not None:
        rows.append(("Reward", _change(found.rewards)))
    if found.mcnemar is not None:
        test = found.mcnemar
        rows.append(("McNemar", f"{test.gained} gained, {test.lost} lost, exact p {_p(test.p_exact)}"))
    coverage = [plural(found.rows, "row") + " compared"]
    for letter, only in (("A", found.only_a), ("B", found.only_b)):
        if only:
            coverage.append(f"{len(only):,} only in {letter} ({_listed(only)})")
    if found.not_compared:
        coverage.append(f"{len(found.not_compared):,} without a result that counts ({_listed(found.not_compared)})")
    rows.append(("Coverage", "; ".join(coverage)))
    rows.append(("Passes", f"reward ≥ {found.pass_threshold:g}"))
    return Fields(rows, title="B minus A")


def _points(change: Difference) -> str:
    text = f"{100 * change.mean:+.1f} points"
    if change.interval is not None:
        text += f"  (95% interval {100 * change.interval[0]:+.1f} to {100 * change.interval[1]:+.1f})"
    return f"{text}  p {_p(change.p_value)}"


def _change(change: Difference) -> str:
    text = f"{change.mean:+.4g}"
    if change.interval is not None:
        text += f"  (95% interval {change.interval[0]:+.3g} to {change.interval[1]:+.3g})"
    return f"{text}  p {_p(change.p_value)}"


def _verdict(found: Comparison) -> list[str]:
    """Plain words for what the figures mean."""
    lines: list[str] = []
    for what, change in (("pass rate", found.passes), ("reward", found.rewards)):
        if change is None:
            continue
        if change.differing_rows == 0:
            lines.append(f"The {what} is the same in every row compared.")
        elif change.p_value < _SIGNIFICANT and change.mean != 0:
            word = "higher" if change.mean > 0 else "lower"
            sure = f"chance alone would rarely make such a difference (p {_p(change.p_value)})"
            lines.append(f"The {what} of B is {word} than A's: {sure}.")
        else:
            unsure = f"this could be chance (p {_p(change.p_value)})"
            lines.append(f"A and B are not told apart by {what}: {unsure}. More rows would show smaller differences.")
    return lines or ["No row has a result that counts in both runs, so nothing can be said."]


def _p(value: float) -> str:
    """`= 0.12`, or `< 0.001`."""
    return "< 0.001" if value < 0.001 else f"= {value:.3f}" if value < 0.1 else f"= {value:.2f}"


def _reward(value: float | None) -> str:
    return reward_text(value) if value is not None else "–"


def _listed(rows: Sequence[int]) -> str:
    text = format_selector(rows)
    return f"rows {text}" if len(text) <= 60 else f"rows {text[:57]}..."
