"""What a run came to, for whoever shows it: counts, failures, their causes. Made from the journal's entries."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from osmosis_ai.evaluation.journal import Entry
from osmosis_ai.evaluation.verdict import Fault, ItemKey, Outcome

_VARYING = re.compile(r"'[^']*'|\"[^\"]*\"|\b[0-9a-f]{32}\b|\d+")


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A work item without a reward: failed, or skipped (then without fault and code)."""

    key: ItemKey
    source_row_index: int | None
    rollout_id: str
    outcome: Outcome
    fault: Fault | None
    code: str | None
    message: str


@dataclass(frozen=True, slots=True)
class Cause:
    """Failures that are alike."""

    fault: Fault
    code: str
    message: str
    count: int


@dataclass(frozen=True, slots=True)
class RunReport:
    """The end of an invocation.

    Attributes:
        status: `finished` once every work item has a verdict.
        halt_reason: Why dispatch stopped early, in words.
        halt_code: `interrupted`, `max_cost`, or a failure's code.
        total: Work items of the run.
        dispatched: Begun in this invocation.
        succeeded: Graded, over all invocations; so are `failed` and `skipped`.
        resumed: Verdicts that were there before this invocation.
        cancelled: Begun in this invocation and left pending.
        duration_ms: Of this invocation; of the run when nothing ran.
        metrics: The `summary` of metrics.json.
        figures: Its `figures`: intervals over rows, pass^k, cost.
        failures: Every failed or skipped work item, by key.
        causes: Its failures, grouped, the most frequent first.
        cost_usd: What the verdicts' calls cost; None when any price is unknown.
    """

    run_name: str
    local_run_id: str
    run_dir: Path
    status: Literal["finished", "incomplete"]
    total: int
    halt_reason: str | None = None
    halt_code: str | None = None
    dispatched: int = 0
    succeeded: int = 0
    failed: int = 0
    skipped: int = 0
    resumed: int = 0
    cancelled: int = 0
    duration_ms: float = 0.0
    metrics: Mapping[str, Any] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)
    failures: tuple[Shortfall, ...] = ()
    causes: tuple[Cause, ...] = ()
    cost_usd: float | None = None


def shortfalls(entries: Iterable[Entry]) -> tuple[Shortfall, ...]:
    """The items without a reward, by key."""
    found = [
        Shortfall(
            entry.key,
            entry.source_row_index,
            entry.rollout_id,
            entry.outcome,
            entry.failure.fault if entry.failure else None,
            entry.failure.code if entry.failure else None,
            entry.failure.message if entry.failure else "",
        )
        for entry in entries
        if entry.outcome is not Outcome.GRADED
    ]
    return tuple(sorted(found, key=lambda shortfall: shortfall.key))


def causes(failures: Iterable[Shortfall]) -> tuple[Cause, ...]:
    """Why items failed, the most frequent first."""
    return group_causes(
        Counter(
            (failure.fault, failure.code or "rollout_failed", failure.message)
            for failure in failures
            if failure.fault is not None
        )
    )


def group_causes(counts: Counter[tuple[Fault, str, str]]) -> tuple[Cause, ...]:
    """Failures by fault, code and message; messages that differ only in numbers, ids and quoted words count together.

    Args:
        counts: How often each (fault, code, message) was met.

    Returns:
        One cause a group, the most frequent first, each under its most frequent message.
    """
    groups: dict[tuple[Fault, str, str], Cause] = {}
    for (fault, code, message), count in counts.most_common():
        key = (fault, code, _VARYING.sub("*", message))
        first = groups.get(key)
        groups[key] = Cause(fault, code, message, count) if first is None else replace(first, count=first.count + count)
    return tuple(sorted(groups.values(), key=lambda cause: -cause.count))


def total_cost(entries: Iterable[Entry]) -> float | None:
    """What all verdicts cost together; None when there is none, or any that used tokens has no known price."""
    total: float | None = None
    for entry in entries:
        if entry.cost_usd is not None:
            total = (total or 0.0) + entry.cost_usd
        elif entry.tokens:
            return None
    return total
