"""Two runs of one dataset against each other: which rows changed sides, by how much, and whether that is chance.

Pure over `RunResults`; drawing it is the command's. A row counts when both runs have an attempt of it whose result is
the agent's doing: graded, or failed by the agent (not passed). Skipped attempts and failures of graders or
infrastructure say nothing about the agent and are left out, and counted.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from osmosis_ai.errors import ValidationError
from osmosis_ai.evaluation import statistics as stats
from osmosis_ai.evaluation.events import Entry
from osmosis_ai.evaluation.results import RunResults, outcome_counts
from osmosis_ai.evaluation.verdict import Fault, Outcome

least_differing_rows = 6


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two runs.

    Attributes:
        counts: Items graded, skipped and failed, over the whole run.
        pass_rate: Over the rows compared, mean of the rows' rates; None when there are none.
        mean_reward: Over the rows in which both runs have rewards, mean of the rows' means; None when there are none.
    """

    name: str
    model: str
    counts: Mapping[str, int]
    pass_rate: float | None
    mean_reward: float | None


@dataclass(frozen=True, slots=True)
class Flip:
    """A row whose pass rate differs; `a_row` and `b_row` are its positions in the two selections."""

    source_row_index: int
    a_row: int
    b_row: int
    a_rate: float
    b_rate: float
    a_reward: float | None
    b_reward: float | None
    attempts: int

    @property
    def lost(self) -> bool:
        """Whether B is worse than A here."""
        return self.b_rate < self.a_rate


@dataclass(frozen=True, slots=True)
class Difference:
    """B minus A over the rows compared.

    Attributes:
        interval: 95 % Student t interval of the mean over rows, a pass rate's within -1 and 1; None when fewer than
            two rows are compared, or all changed alike.
        p_value: Two-sided sign-flip permutation test; None when nothing is compared.
        exact: Whether all sign patterns were counted.
    """

    mean: float
    standard_error: float | None
    interval: stats.Interval | None
    p_value: float
    differing_rows: int
    rows: int
    exact: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """What `eval compare` shows.

    Attributes:
        flips: Rows that differ: losses first, the largest changes first.
        passes: The difference of pass rates.
        rewards: The difference of rewards; None when rewards are only 0 and 1, or no row has them on both sides.
        mcnemar: For one attempt a row on both sides; gained: A failed and B passed.
        only_a: Rows that only A has, by source position; `only_b` likewise.
        not_compared: Rows both have, but without an attempt that counts in one of them.
        left_out_attempts: Attempts in common rows that do not count.
    """

    a: Side
    b: Side
    pass_threshold: float
    rows: int
    flips: tuple[Flip, ...]
    passes: Difference | None
    rewards: Difference | None
    mcnemar: stats.McNemar | None
    only_a: tuple[int, ...]
    only_b: tuple[int, ...]
    not_compared: tuple[int, ...]
    left_out_attempts: int
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The comparison as plain data."""
        document = asdict(self)
        for name in ("passes", "rewards"):
            difference = getattr(self, name)
            if difference is not None and difference.interval is not None:
                document[name]["interval"] = list(difference.interval)
        document["mcnemar"] = self.mcnemar._asdict() if self.mcnemar else None
        return document


@dataclass(slots=True)
class _RowTally:
    row_index: int
    scored: int = 0
    passed: int = 0
    left_out: int = 0
    rewards: list[float] | None = None

    @property
    def rate(self) -> float:
        return self.passed / self.scored

    @property
    def reward(self) -> float | None:
        return stats.mean(self.rewards) if self.rewards else None


def compare(
    a: RunResults, b: RunResults, *, pass_threshold: float | None = None, any_dataset: bool = False
) -> Comparison:
    """Compare two runs over the rows they share.

    Args:
        a: The run to compare with (the baseline).
        b: The run of interest.
        pass_threshold: The reward that passes in both; None takes A's.
        any_dataset: Compare although the datasets are not the same bytes.

    Raises:
        ValidationError: The datasets differ, a run has no verdicts, or no row is in both.
    """
    warnings: list[str] = []
    _check_datasets(a, b, any_dataset, warnings)
    for run in (a, b):
        if not run.verdicts:
            raise ValidationError(f"Run '{run.name}' ({run.run_dir}) has no results yet. Finish it before comparing.")
    threshold = a.pass_threshold if pass_threshold is None else pass_threshold
    if pass_threshold is None and a.pass_threshold != b.pass_threshold:
        warnings.append(
            f"The runs have different pass thresholds ({a.pass_threshold:g} and {b.pass_threshold:g}); "
            f"{threshold:g} is used for both."
        )
    if a.n != b.n:
        warnings.append(f"The runs have different numbers of attempts a row ({a.n} and {b.n}).")
    for run in (a, b):
        if run.pending_items:
            warnings.append(f"Run '{run.name}' is incomplete: {run.pending_items} of {run.total_items} items pending.")
    rows_a, rows_b = _tally(a, threshold), _tally(b, threshold)
    common = sorted(rows_a.keys() & rows_b.keys())
    if not common:
        raise ValidationError(f"Runs '{a.name}' and '{b.name}' have no row in common. Compare runs with shared rows.")
    compared = [row for row in common if rows_a[row].scored and rows_b[row].scored]
    left_out = sum(rows_a[row].left_out + rows_b[row].left_out for row in common)
    if left_out:
        warnings.append(
            f"{left_out} attempts in common rows do not count: skipped, or failed by grader or infrastructure."
        )
    changes = [rows_b[row].rate - rows_a[row].rate for row in compared]
    passes = _difference(changes, limit=1.0)
    rewarded = [row for row in compared if rows_a[row].rewards and rows_b[row].rewards]
    reward_changes = [(rows_b[row].reward or 0.0) - (rows_a[row].reward or 0.0) for row in rewarded]
    binary = all(value in (0, 1) for row in rewarded for side in (rows_a, rows_b) for value in side[row].rewards or ())
    rewards = None if binary else _difference(reward_changes)
    if passes is not None and 0 < passes.differing_rows < least_differing_rows:
        warnings.append(
            f"Only {passes.differing_rows} rows differ: with fewer than {least_differing_rows} no p value can be below "
            "0.05."
        )
    return Comparison(
        a=_side(a, rows_a, compared, rewarded),
        b=_side(b, rows_b, compared, rewarded),
        pass_threshold=threshold,
        rows=len(compared),
        flips=_flips(compared, rows_a, rows_b),
        passes=passes,
        rewards=rewards,
        mcnemar=_mcnemar(compared, rows_a, rows_b),
        only_a=tuple(sorted(rows_a.keys() - rows_b.keys())),
        only_b=tuple(sorted(rows_b.keys() - rows_a.keys())),
        not_compared=tuple(row for row in common if not (rows_a[row].scored and rows_b[row].scored)),
        left_out_attempts=left_out,
        warnings=tuple(warnings),
    )


def counts_for_agent(entry: Entry) -> bool:
    """Whether an attempt's result is the agent's doing: it has a reward, or the agent failed."""
    if entry.outcome is Outcome.GRADED:
        return entry.reward is not None
    return entry.outcome is Outcome.FAILED and entry.failure is not None and entry.failure.fault is Fault.AGENT


def _check_datasets(a: RunResults, b: RunResults, any_dataset: bool, warnings: list[str]) -> None:
    first, second = a.dataset_sha256, b.dataset_sha256
    if first is None or second is None:
        unknown = a if first is None else b
        warnings.append(f"The dataset of run '{unknown.name}' is not recorded; rows are matched by position only.")
    elif first != second:
        text = f"Runs '{a.name}' and '{b.name}' used different datasets ({first[:12]} and {second[:12]})"
        if not any_dataset:
            raise ValidationError(
                f"{text}, so row numbers do not mean the same. Compare runs of one dataset, or allow it with --any-dataset.",
                details={"a_sha256": first, "b_sha256": second},
            )
        warnings.append(f"{text}; rows are matched by position.")


def _tally(run: RunResults, threshold: float) -> dict[int, _RowTally]:
    sources: dict[int, int | None] = {}
    tallies: dict[int, _RowTally] = {}
    for entry in run.verdicts.values():
        if entry.row_index not in sources:
            known = entry.source_row_index
            sources[entry.row_index] = known if known is not None else run.source_row(entry.row_index)
        source = sources[entry.row_index]
        tally = tallies.setdefault(entry.row_index if source is None else source, _RowTally(entry.row_index))
        if not counts_for_agent(entry):
            tally.left_out += 1
            continue
        tally.scored += 1
        if entry.outcome is Outcome.GRADED and entry.reward is not None:
            tally.rewards = [*(tally.rewards or ()), entry.reward]
            tally.passed += entry.reward >= threshold
    return tallies


def _difference(changes: list[float], *, limit: float = math.inf) -> Difference | None:
    """Judge the changes of the rows; `limit` is how far a mean of such changes can be from 0."""
    if not changes:
        return None
    test = stats.sign_flip(changes)
    estimate = stats.t_estimate(changes)
    interval = estimate.interval
    if interval is not None and math.isclose(*interval, rel_tol=1e-9):
        interval = None  # changes that are all alike say nothing about their spread
    if interval is not None:
        interval = stats.Interval(max(interval.low, -limit), min(interval.high, limit))
    return Difference(
        estimate.mean,
        estimate.standard_error,
        interval,
        test.p_value,
        test.differing_rows,
        len(changes),
        test.exact,
    )


def _flips(compared: list[int], rows_a: Mapping[int, _RowTally], rows_b: Mapping[int, _RowTally]) -> tuple[Flip, ...]:
    flips = [
        Flip(
            source_row_index=row,
            a_row=rows_a[row].row_index,
            b_row=rows_b[row].row_index,
            a_rate=rows_a[row].rate,
            b_rate=rows_b[row].rate,
            a_reward=rows_a[row].reward,
            b_reward=rows_b[row].reward,
            attempts=min(rows_a[row].scored, rows_b[row].scored),
        )
        for row in compared
        if rows_a[row].rate != rows_b[row].rate
    ]
    return tuple(
        sorted(flips, key=lambda flip: (not flip.lost, -abs(flip.b_rate - flip.a_rate), flip.source_row_index))
    )


def _mcnemar(
    compared: list[int], rows_a: Mapping[int, _RowTally], rows_b: Mapping[int, _RowTally]
) -> stats.McNemar | None:
    if not compared or any(rows_a[row].scored != 1 or rows_b[row].scored != 1 for row in compared):
        return None
    flips: dict[bool, int] = defaultdict(int)
    for row in compared:
        if rows_a[row].passed != rows_b[row].passed:
            flips[rows_b[row].passed > rows_a[row].passed] += 1
    return stats.mcnemar(flips[True], flips[False])


def _side(run: RunResults, rows: Mapping[int, _RowTally], compared: list[int], rewarded: list[int]) -> Side:
    return Side(
        name=run.name,
        model=run.model,
        counts=outcome_counts(run.verdicts),
        pass_rate=stats.mean([rows[row].rate for row in compared]) if compared else None,
        mean_reward=stats.mean([rows[row].reward or 0.0 for row in rewarded]) if rewarded else None,
    )
