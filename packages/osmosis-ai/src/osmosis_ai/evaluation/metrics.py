"""The figures of a run from its verdicts: the published `summary` of metrics.json, and our own figures beside it.

Pure functions over anything that has the few attributes of `Graded`; the formulas are in `statistics`.
"""

from __future__ import annotations

import math
from collections import defaultdict
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
