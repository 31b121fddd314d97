"""The figures of metrics.json."""

import json
from pathlib import Path

import pytest
from osmosis_ai.evaluation.metrics import figures, summarise
from osmosis_ai.evaluation.results import read_run
from osmosis_ai.evaluation.statistics import wilson
from osmosis_ai.evaluation.verdict import Failure, Fault, Outcome, Verdict

PUBLISHED = Path(__file__).parent / "pub"


def verdict(
    row: int, run: int, status: str, reward: float | None = None, tokens: int | None = None, **more: object
) -> Verdict:
    return Verdict(row, run, "f" * 32, Outcome(status), reward=reward, tokens=tokens, **more)


# Every outcome with and without a reward; the expected object is what the published package computes from these rows.
MIXED = [
    verdict(0, 0, "success", 1.0, 0), verdict(0, 1, "failed", 0.5, 1), verdict(0, 2, "skipped", None, 2),
    verdict(1, 0, "success", 0.0, 3), verdict(1, 1, "failed", 1.0, 4), verdict(1, 2, "skipped", 0.5, 5),
    verdict(2, 0, "success", None, 6), verdict(2, 1, "success", 0.0, 7), verdict(2, 2, "failed", 1.0, 8),
    verdict(3, 0, "skipped", 0.5, 9), verdict(3, 1, "success", None, 10), verdict(3, 2, "failed", 0.0, 11),
    verdict(4, 0, "skipped", 1.0, 12), verdict(4, 1, "success", 0.5, 13), verdict(4, 2, "success", None, 14),
]  # fmt: skip


def test_the_summary_is_the_published_one() -> None:
    assert summarise(MIXED, 0.5, 3) == {
        "total_samples": 15, "completed_samples": 11, "graded": 8, "passed": 5, "failed": 4, "skipped": 4,
        "pass_rate": 0.45454545454545453, "pass_threshold": 0.5, "tokens_used": 105,
        "reward_stats": {"mean": 0.5, "median": 0.5, "std": pytest.approx(0.4330127018922193), "min": 0.0, "max": 1.0},
        "n_runs": 3,
        "pass_at_k": [{"k": 1, "value": pytest.approx(0.4666666666666667)}, {"k": 2, "value": pytest.approx(0.7333333333333334)}],
    }  # fmt: skip


def test_the_summary_of_a_published_run_is_the_stored_one() -> None:
    run = read_run(PUBLISHED)
    stored = json.loads((PUBLISHED / "metrics.json").read_text())["summary"]
    assert summarise(run.verdicts.values(), 1.0, 2) == stored
    assert list(summarise(run.verdicts.values(), 1.0, 2)) == list(stored)


def test_no_verdicts_have_no_rewards_and_no_rate() -> None:
    assert summarise([], 1.0) == {
        "total_samples": 0, "completed_samples": 0, "graded": 0, "passed": 0, "failed": 0, "skipped": 0, "pass_rate": 0,
        "pass_threshold": 1.0, "tokens_used": 0,
    }  # fmt: skip
    assert figures([], 1.0) == {}


def test_an_absent_reward_is_never_a_zero() -> None:
    verdicts = [verdict(0, 0, "success", 1.0), verdict(1, 0, "success"), verdict(2, 0, "skipped")]
    summary = summarise(verdicts, 0.0)
    assert (summary["graded"], summary["passed"], summary["completed_samples"]) == (1, 1, 2)
    assert summary["reward_stats"]["mean"] == 1.0


def test_a_threshold_of_zero_is_honoured() -> None:
    assert summarise([verdict(0, 0, "success", 0.0)], 0.0)["passed"] == 1


def test_pass_at_k_needs_two_points() -> None:
    lone = [verdict(0, 0, "success", 1.0), verdict(0, 1, "skipped")]
    summary = summarise(lone, 1.0, 2)
    assert summary["n_runs"] == 2
    assert "pass_at_k" not in summary


def test_our_figures_have_intervals_costs_and_causes() -> None:
    failure = Failure(Fault.INFRASTRUCTURE, "server_died", "gone")
    verdicts = [
        verdict(0, 0, "success", 1.0, 10, cost_usd=0.5),
        verdict(1, 0, "success", 0.0, 10, cost_usd=0.25),
        verdict(2, 0, "failed", None, 10, failure=failure),
        verdict(3, 0, "failed", None, None, failure=failure),
        verdict(4, 0, "failed", None, None, failure=Failure(Fault.AGENT, "timeout")),
        verdict(5, 0, "skipped"),
    ]
    ours = figures(verdicts, 1.0)
    assert (ours["pass_rate"]["mean"], ours["pass_rate"]["rows"]) == (0.2, 5)
    assert (ours["pass_rate"]["low"], ours["pass_rate"]["high"]) == tuple(wilson(1, 5))
    assert (ours["reward"]["mean"], ours["reward"]["rows"]) == (0.5, 2)
    assert (ours["cost_usd"], ours["cost_unknown_items"]) == (0.75, 1)
    assert ours["failures"] == {"agent": 1, "infrastructure": 2}
    assert ours["causes"][0] == {"fault": "infrastructure", "code": "server_died", "count": 2}
    json.dumps(ours, allow_nan=False)


def test_pass_hat_k_is_given_up_to_the_attempts_every_row_has() -> None:
    verdicts = [verdict(row, run, "success", float(run > row)) for row in range(2) for run in range(4)]
    assert figures(verdicts, 1.0)["pass_hat_k"] == [
        {"k": 1, "value": pytest.approx((3 / 4 + 2 / 4) / 2)},
        {"k": 2, "value": pytest.approx((3 / 6 + 1 / 6) / 2)},
        {"k": 4, "value": 0.0},
    ]
