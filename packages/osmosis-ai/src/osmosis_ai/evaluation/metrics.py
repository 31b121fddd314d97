"""The figures of a run from its verdicts: the published `summary` of metrics.json, and our own figures beside it.

Pure functions over anything that has the few attributes of `Graded`; the formulas are in `statistics`.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, Protocol

from osmosis_ai.evaluation import statistics as stats
from osmosis_ai.evaluation.verdict import Failure, Outcome


class Graded(Protocol):
    """What the figures need of a verdict; `Verdict` and `journal.Entry` have it."""

    @property
    def row_index(self) -> int:
        """Position of its row in the selection."""
        ...

    @property
    def run_index(self) -> int:
        """Its attempt number."""
        ...

    @property
    def outcome(self) -> Outcome:
        """Graded, skipped or failed."""
        ...

    @property
    def reward(self) -> float | None:
        """Finite or absent."""
        ...

    @property
    def tokens(self) -> int | None:
        """Prompt and completion tokens, or absent."""
        ...

    @property
    def cost_usd(self) -> float | None:
        """Dollars, or absent when unknown."""
        ...

    @property
    def failure(self) -> Failure | None:
        """Why it failed."""
        ...


def summarise(verdicts: Iterable[Graded], threshold: float, n: int = 1) -> dict[str, Any]:
    """The `summary` object of metrics.json.

    Args:
        verdicts: One for each recorded work item.
        threshold: A reward of at least this passes.
        n: Attempts a row of the run; the figures only depend on the verdicts.

    Returns:
        Counts, pass rate (of all that were not skipped; 0 when there are none), reward statistics and pass@k, exactly
        the published keys.
    """
    total = skipped = failed = passed = tokens = 0
    rewards: list[float] = []
    attempts: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    runs = 0
    for verdict in verdicts:
        total += 1
        tokens += verdict.tokens or 0
        runs = max(runs, verdict.run_index + 1)
        if verdict.outcome is Outcome.SKIPPED:
            skipped += 1
            continue
        failed += verdict.outcome is Outcome.FAILED
        tally = attempts[verdict.row_index]
        tally[0] += 1
        if verdict.reward is not None:
            rewards.append(verdict.reward)
            if verdict.reward >= threshold:
                passed += 1
                tally[1] += 1
    completed = total - skipped
    summary: dict[str, Any] = {
        "total_samples": total,
        "completed_samples": completed,
        "graded": len(rewards),
        "passed": passed,
        "failed": failed,
        "skipped": skipped,
        "pass_rate": passed / completed if completed else 0,
        "pass_threshold": threshold,
        "tokens_used": tokens,
    }
    if rewards:
        summary["reward_stats"] = stats.reward_stats(rewards)
    if runs >= 2:
        summary["n_runs"] = runs
        points = []
        k = 1
        while k <= runs:
            values = [stats.pass_at_k(tried, hits, k) for tried, hits in attempts.values() if tried >= k]
            if values:
                points.append({"k": k, "value": math.fsum(values) / len(values)})
            k *= 2
        if len(points) >= 2:
            summary["pass_at_k"] = points
    return summary


def figures(verdicts: Iterable[Graded], threshold: float) -> dict[str, Any]:
    """Our own figures, stored as `figures` beside `summary` in metrics.json; readers of the published files ignore it.

    Returns:
        `pass_rate` and `reward` as {mean, standard_error, low, high, rows}: 95 % intervals over rows (Wilson at the
        effective number of rows, Student t), skipped attempts left out; `pass_hat_k` like the summary's pass_at_k;
        `cost_usd` (of the items whose price is known) and `cost_unknown_items`; `failures` by fault; `causes`
        [{fault, code, count}], the most frequent first. What cannot be said is left out.
    """
    passes: dict[int, list[bool]] = defaultdict(list)
    rewards: dict[int, list[float]] = defaultdict(list)
    causes: Counter[tuple[str, str]] = Counter()
    costs: list[float] = []
    unknown_costs = 0
    for verdict in verdicts:
        if verdict.cost_usd is not None:
            costs.append(verdict.cost_usd)
        elif verdict.tokens:
            unknown_costs += 1
        if verdict.failure is not None:
            causes[verdict.failure.fault.value, verdict.failure.code] += 1
        if verdict.outcome is Outcome.SKIPPED:
            continue
        passes[verdict.row_index].append(verdict.reward is not None and verdict.reward >= threshold)
        if verdict.reward is not None:
            rewards[verdict.row_index].append(verdict.reward)
    result: dict[str, Any] = {}
    if passes:
        result["pass_rate"] = _estimate(stats.rate_estimate([sum(row) / len(row) for row in passes.values()]))
    if rewards:
        result["reward"] = _estimate(stats.t_estimate([stats.mean(row) for row in rewards.values()]))
    if attempts := min((len(row) for row in passes.values()), default=0):
        powers = [1 << power for power in range(attempts.bit_length())]
        if len(powers) >= 2:
            result["pass_hat_k"] = [
                {"k": k, "value": stats.mean([stats.pass_hat_k(len(row), sum(row), k) for row in passes.values()])}
                for k in powers
            ]
    if costs:
        result["cost_usd"] = math.fsum(costs)
    if unknown_costs:
        result["cost_unknown_items"] = unknown_costs
    if causes:
        faults: Counter[str] = Counter()
        for (fault, _), count in causes.items():
            faults[fault] += count
        result["failures"] = dict(sorted(faults.items()))
        result["causes"] = [
            {"fault": fault, "code": code, "count": count}
            for (fault, code), count in sorted(causes.items(), key=lambda item: (-item[1], item[0]))
        ]
    return result


def _estimate(estimate: stats.Estimate) -> dict[str, Any]:
    result: dict[str, Any] = {"mean": estimate.mean, "rows": estimate.rows}
    if estimate.standard_error is not None:
        result["standard_error"] = estimate.standard_error
    if estimate.interval is not None:
        result["low"], result["high"] = estimate.interval
    return result
