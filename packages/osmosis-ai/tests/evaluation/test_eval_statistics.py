"""The statistics against what SciPy and statsmodels computed (golden_statistics.json)."""

import json
import math
import random
import statistics as stdlib
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from osmosis_ai.evaluation import statistics as stats

GOLDEN = json.loads((Path(__file__).parent / "golden_statistics.json").read_text())
PAIRS = GOLDEN["paired_89x5"]
A_MEANS = [stats.mean(row) for row in PAIRS["a"]]
B_MEANS = [stats.mean(row) for row in PAIRS["b"]]
CHANGES = [a - b for a, b in zip(A_MEANS, B_MEANS, strict=True)]


@pytest.mark.parametrize("case", GOLDEN["wilson_95"])
def test_wilson(case: str) -> None:
    passes, trials = map(int, case.split("/"))
    assert list(stats.wilson(passes, trials)) == pytest.approx(GOLDEN["wilson_95"][case], abs=1e-9)


@pytest.mark.parametrize("case", GOLDEN["clopper_pearson_95"])
def test_clopper_pearson(case: str) -> None:
    passes, trials = map(int, case.split("/"))
    assert list(stats.clopper_pearson(passes, trials)) == pytest.approx(GOLDEN["clopper_pearson_95"][case], abs=1e-9)


def numbers(name: str) -> list[int]:
    return [int("".join(filter(str.isdigit, part))) for part in name.split("_")]


@pytest.mark.parametrize("case", GOLDEN["pass_at_k"])
def test_pass_at_k(case: str) -> None:
    assert stats.pass_at_k(*numbers(case)) == pytest.approx(GOLDEN["pass_at_k"][case], abs=1e-12)


@pytest.mark.parametrize("case", GOLDEN["pass_hat_k"])
def test_pass_hat_k(case: str) -> None:
    assert stats.pass_hat_k(*numbers(case)) == pytest.approx(GOLDEN["pass_hat_k"][case], abs=1e-12)


@pytest.mark.parametrize("case", GOLDEN["mcnemar_exact_p"])
def test_mcnemar_exact(case: str) -> None:
    assert stats.mcnemar(*numbers(case)).p_exact == pytest.approx(GOLDEN["mcnemar_exact_p"][case], abs=1e-12)


@pytest.mark.parametrize("case", GOLDEN["mcnemar_midp"])
def test_mcnemar_mid_p(case: str) -> None:
    assert stats.mcnemar(*numbers(case)).p_mid == pytest.approx(GOLDEN["mcnemar_midp"][case], abs=1e-12)


def test_errors_over_rows_and_clusters() -> None:
    values = [value for row in PAIRS["a"] for value in row]
    clusters = [index for index, row in enumerate(PAIRS["a"]) for _ in row]
    assert stats.mean(A_MEANS) == pytest.approx(PAIRS["pass_at_1_a"])
    assert stats.standard_error(values) == pytest.approx(PAIRS["naive_se_a"])
    assert stats.standard_error(A_MEANS) == pytest.approx(PAIRS["task_mean_se_a"])
    assert stats.cluster_standard_error(values, clusters) == pytest.approx(PAIRS["cluster_se_a_statsmodels"])
    assert stats.variance(A_MEANS) == pytest.approx(PAIRS["between_task_var_a"])
    assert stats.t_estimate(values, clusters=clusters).standard_error == pytest.approx(
        PAIRS["cluster_se_a_statsmodels"]
    )


def test_paired_tests() -> None:
    assert stats.mean(CHANGES) == pytest.approx(PAIRS["diff"])
    assert stats.standard_error(CHANGES) == pytest.approx(PAIRS["paired_se"])
    assert stats.paired_t(CHANGES) == pytest.approx(PAIRS["paired_t_p"], abs=1e-9)
    test = stats.sign_flip(CHANGES)
    # two draws of 20,000 differ by chance: 4 standard errors
    assert test.p_value == pytest.approx(PAIRS["sign_flip_permutation_p"], abs=4 * math.sqrt(2 * 0.1 * 0.9 / 20_000))
    assert not test.exact
    assert test == stats.sign_flip(CHANGES)
    assert list(stats.bootstrap(CHANGES)) == pytest.approx(PAIRS["bootstrap_percentile_95"], abs=0.005)
    assert stats.bootstrap(CHANGES) == stats.bootstrap(CHANGES)


def test_holm() -> None:
    assert stats.holm([0.001, 0.02, 0.03, 0.2]) == pytest.approx(GOLDEN["holm_adjusted"])
    assert stats.holm([0.2, 0.001, 0.03, 0.02]) == pytest.approx([GOLDEN["holm_adjusted"][i] for i in (3, 0, 2, 1)])
    assert stats.holm([]) == []


@pytest.mark.parametrize(
    ("probability", "degrees", "quantile"),
    # printed tables of Student's t
    [
        (0.975, 1, 12.7062),
        (0.975, 5, 2.5706),
        (0.95, 10, 1.8125),
        (0.995, 30, 2.7500),
        (0.975, 1e6, 1.9600),
        (0.025, 5, -2.5706),
    ],
)
def test_t_quantiles(probability: float, degrees: float, quantile: float) -> None:
    assert stats.t_quantile(probability, degrees) == pytest.approx(quantile, abs=1e-4)


def test_normal_quantiles_are_the_standard_librarys() -> None:
    for probability in (1e-9, 0.01, 0.5, 0.975, 1 - 1e-9):
        assert stats.normal_quantile(probability) == pytest.approx(stdlib.NormalDist().inv_cdf(probability), abs=1e-9)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50))
def test_reward_statistics_are_the_standard_librarys(rewards: list[float]) -> None:
    figures = stats.reward_stats(rewards)
    assert figures["mean"] == pytest.approx(stdlib.fmean(rewards), abs=1e-9)
    assert figures["median"] == pytest.approx(stdlib.median(rewards))
    assert figures["std"] == pytest.approx(stdlib.pstdev(rewards), abs=1e-6)
    assert (figures["min"], figures["max"]) == (min(rewards), max(rewards))


@given(st.integers(0, 14), st.integers(0, 14))
def test_the_exact_sign_flip_of_binary_changes_is_mcnemar(gained: int, lost: int) -> None:
    if gained + lost > stats.exact_pattern_limit:
        gained, lost = gained % 8, lost % 8
    test = stats.sign_flip([1.0] * gained + [-1.0] * lost + [0.0] * 3)
    assert test.exact
    assert test.differing_rows == gained + lost
    assert test.p_value == pytest.approx(stats.mcnemar(gained, lost).p_exact)


def test_the_sampled_sign_flip_agrees_with_the_exact_one() -> None:
    changes = [0.1 * value for value in (5, -3, 8, 2, -1, 7, 4, -6, 9, 1, 3, 2, -2, 6)]
    exact = stats.sign_flip(changes)
    sampled = stats.sign_flip([*changes, 1e-9, -1e-9, 1e-9])  # over the limit of patterns by three that change nothing
    assert exact.exact
    assert not sampled.exact
    assert sampled.p_value == pytest.approx(exact.p_value, abs=0.015)


@given(st.integers(1, 30).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_is_the_ratio_of_binomials_and_never_less_than_pass_hat_k(counts: tuple[int, int, int]) -> None:
    n, c, k = counts
    assert stats.pass_at_k(n, c, k) == pytest.approx(1 - math.comb(n - c, k) / math.comb(n, k))
    assert stats.pass_at_k(n, c, k) >= stats.pass_hat_k(n, c, k) - 1e-12


@pytest.mark.parametrize(("n", "c", "k"), [(3, 1, 4), (3, 1, 0), (3, 4, 1), (3, -1, 1)])
def test_impossible_counts_are_errors_not_numbers(n: int, c: int, k: int) -> None:
    for function in (stats.pass_at_k, stats.pass_hat_k):
        with pytest.raises(ValueError, match="attempts"):
            function(n, c, k)


def test_rates_never_leave_the_unit_interval_and_never_collapse() -> None:
    for rows in ([1.0] * 5, [0.0] * 5, [0.5] * 5, [1.0], [1.0, 0.0, 0.5, 0.25], A_MEANS):
        estimate = stats.rate_estimate(rows)
        assert estimate.interval is not None
        assert 0 <= estimate.interval.low <= estimate.mean <= estimate.interval.high <= 1
        assert estimate.interval.high - estimate.interval.low > 0.01
    assert stats.rate_estimate([1.0, 0.0, 0.0]).interval == stats.wilson(1, 3)
    assert stats.t_estimate([0.5]).interval is None


def test_ten_thousand_rows_take_moments_not_minutes() -> None:
    generator = random.Random(1)
    changes = [generator.gauss(0.001, 1) for _ in range(10_000)]
    started = time.process_time()
    stats.sign_flip(changes)
    assert time.process_time() - started < 20
