"""Statistics of evaluations, in one pure module: standard library only, since SciPy costs seconds to import.

Rewards come as numbers, attempts of one row are kept together: they are not independent, so errors are taken over
rows. Every function is checked against SciPy and statsmodels (tests/evaluation/golden_statistics.json).

Sources: Miller, "Adding Error Bars to Evals" (arXiv 2411.00640): errors over rows, clusters, pairs. Chen et al. 2021
(arXiv 2107.03374): pass@k. Yao et al. 2024 (arXiv 2406.12045): pass^k. Wilson 1927; Clopper and Pearson 1934.
McNemar 1947, mid-p as Fagerland et al. 2013. Holm 1979. Phipson and Smyth 2010: p values of sampled permutations.
Efron 1979: percentile bootstrap. NIST DLMF 8.17: the incomplete beta function.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

exact_pattern_limit = 16
permutation_draws = 20_000
bootstrap_draws = 10_000
seed = 20_240_711
_bootstrap_work = 5_000_000


class Interval(NamedTuple):
    """A two-sided confidence interval."""

    low: float
    high: float


class Estimate(NamedTuple):
    """A mean with its standard error over rows and its interval; error and interval are None for a single row."""

    mean: float
    standard_error: float | None
    interval: Interval | None
    rows: int


class PairedTest(NamedTuple):
    """A paired comparison: mean of the differences, two-sided p value, how many rows differ, and how p was found."""

    difference: float
    p_value: float
    differing_rows: int
    exact: bool


class McNemar(NamedTuple):
    """Flips between two runs: `gained` and `lost` rows, two-sided exact p and mid-p."""

    gained: int
    lost: int
    p_exact: float
    p_mid: float


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean of at least one value."""
    return math.fsum(values) / len(values)


def variance(values: Sequence[float], ddof: int = 1) -> float:
    """The variance with divisor n - `ddof`; 0 for fewer than `ddof` + 1 values."""
    if len(values) <= ddof:
        return 0.0
    centre = mean(values)
    return math.fsum((value - centre) ** 2 for value in values) / (len(values) - ddof)


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the middle two."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def reward_stats(rewards: Sequence[float]) -> dict[str, float]:
    """Mean, median, population standard deviation, least and largest of at least one reward."""
    return {
        "mean": mean(rewards),
        "median": median(rewards),
        "std": math.sqrt(variance(rewards, ddof=0)),
        "min": min(rewards),
        "max": max(rewards),
    }


def pass_at_k(n: int, c: int, k: int) -> float:
    """The chance that at least one of k attempts passes, estimated without bias from c passes in n attempts.

    1 - C(n-c, k) / C(n, k), as the product that does not overflow (Chen et al. 2021).

    Raises:
        ValueError: k is not within 1 to n, or c not within 0 to n.
    """
    _check_counts(n, c, k)
    if n - c < k:
        return 1.0
    return 1.0 - math.prod((n - c - i) / (n - i) for i in range(k))


def pass_hat_k(n: int, c: int, k: int) -> float:
    """The chance that all of k attempts pass: C(c, k) / C(n, k) (Yao et al. 2024).

    Raises:
        ValueError: k is not within 1 to n, or c not within 0 to n.
    """
    _check_counts(n, c, k)
    return math.comb(c, k) / math.comb(n, k)


def standard_error(row_means: Sequence[float]) -> float | None:
    """The standard error of the mean over rows, or None for fewer than two."""
    count = len(row_means)
    return math.sqrt(variance(row_means) / count) if count >= 2 else None


def cluster_standard_error(values: Sequence[float], clusters: Sequence[Hashable]) -> float | None:
    """The standard error of the mean when values of one cluster (row, passage, ...) depend on each other.

    sqrt(C/(C-1) * sum over clusters of (sum of residuals)^2) / N (Miller, eq. 4, with the small-sample factor). None
    for fewer than two clusters.
    """
    centre = mean(values)
    sums: dict[Hashable, float] = defaultdict(float)
    for value, cluster in zip(values, clusters, strict=True):
        sums[cluster] += value - centre
    count = len(sums)
    if count < 2:
        return None
    return math.sqrt(count / (count - 1) * math.fsum(part * part for part in sums.values())) / len(values)


def t_estimate(
    row_means: Sequence[float], confidence: float = 0.95, clusters: Sequence[Hashable] | None = None
) -> Estimate:
    """The mean over rows with a Student t interval; degrees of freedom are rows (or clusters) less one."""
    centre = mean(row_means)
    error = standard_error(row_means) if clusters is None else cluster_standard_error(row_means, clusters)
    units = len(row_means) if clusters is None else len(set(clusters))
    interval = None
    if error is not None:
        reach = t_quantile(0.5 + confidence / 2, units - 1) * error
        interval = Interval(centre - reach, centre + reach)
    return Estimate(centre, error, interval, len(row_means))


def rate_estimate(row_means: Sequence[float], confidence: float = 0.95) -> Estimate:
    """A rate in [0, 1] over rows with the Wilson interval at the effective number of rows.

    n_eff = p(1-p)/SE^2 is the number of independent trials with the same error. Where that says nothing (one row, all
    rows alike, or one attempt a row, so that every row is 0 or 1) it is the number of rows.
    """
    centre = mean(row_means)
    error = standard_error(row_means)
    count = float(len(row_means))
    if error and any(0 < value < 1 for value in row_means):
        count = centre * (1 - centre) / error**2
    return Estimate(centre, error, wilson(centre * count, count, confidence), len(row_means))


def wilson(passes: float, trials: float, confidence: float = 0.95) -> Interval:
    """The Wilson score interval of a rate; `trials` need not be whole (Wilson 1927).

    Raises:
        ValueError: No trials, or passes outside 0 to trials.
    """
    if not trials > 0 or not 0 <= passes <= trials:
        raise ValueError(f"{passes} passes in {trials} trials")
    z = normal_quantile(0.5 + confidence / 2)
    rate = passes / trials
    scale = 1 + z * z / trials
    centre = (rate + z * z / (2 * trials)) / scale
    reach = z / scale * math.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials))
    return Interval(
        0.0 if passes == 0 else max(0.0, centre - reach), 1.0 if passes == trials else min(1.0, centre + reach)
    )


def clopper_pearson(passes: int, trials: int, confidence: float = 0.95) -> Interval:
    """The exact (conservative) interval of a rate, from beta quantiles (Clopper and Pearson 1934).

    Raises:
        ValueError: No trials, or passes outside 0 to trials.
    """
    if trials < 1 or not 0 <= passes <= trials:
        raise ValueError(f"{passes} passes in {trials} trials")
    tail = (1 - confidence) / 2
    low, high = 0.0, 1.0
    if passes > 0:
        low = _invert(lambda x: incomplete_beta(passes, trials - passes + 1, x), tail, 0.0, 1.0)
    if passes < trials:
        high = _invert(lambda x: incomplete_beta(passes + 1, trials - passes, x), 1 - tail, 0.0, 1.0)
    return Interval(low, high)


def sign_flip(differences: Sequence[float], *, draws: int = permutation_draws, seed: int = seed) -> PairedTest:
    """The paired permutation test of "the differences are symmetric about 0", two-sided, on their mean.

    Up to 2^16 sign patterns are all counted; beyond that `draws` patterns come from a fixed seed and p is
    (hits + 1) / (draws + 1) (Phipson and Smyth 2010). For one binary attempt a row it equals the exact McNemar test.
    """
    moved = [value for value in differences if value != 0]
    centre = mean(differences) if differences else 0.0
    if not moved:
        return PairedTest(centre, 1.0, 0, exact=True)
    total = math.fsum(map(abs, moved))
    reach = abs(math.fsum(moved)) - 1e-12 * total  # sums that are equal but for rounding count as equal
    if len(moved) <= exact_pattern_limit:
        sums = _signed_sums(moved)
        hits = sum(abs(value) >= reach for value in sums)
        return PairedTest(centre, hits / len(sums), len(moved), exact=True)
    # A drawn byte picks the signed sum of eight differences at once.
    tables = [_signed_sums(moved[start : start + 8]) for start in range(0, len(moved), 8)]
    tables[-1] = tables[-1] * (256 // len(tables[-1]))
    generator = random.Random(seed)  # noqa: S311 - a reproducible test, no secret
    look_up = list.__getitem__
    hits = sum(abs(sum(map(look_up, tables, generator.randbytes(len(tables))))) >= reach for _ in range(draws))
    return PairedTest(centre, (hits + 1) / (draws + 1), len(moved), exact=False)


def paired_t(differences: Sequence[float]) -> float | None:
    """The two-sided p value of Student's paired t test, or None for fewer than two differences or no spread."""
    error = standard_error(differences)
    if not error:
        return None
    return t_tail(abs(mean(differences)) / error, len(differences) - 1) * 2


def mcnemar(gained: int, lost: int) -> McNemar:
    """The exact McNemar test of flips in both directions, and its less conservative mid-p (Fagerland et al. 2013)."""
    flips, fewer = gained + lost, min(gained, lost)
    if flips == 0:
        return McNemar(gained, lost, 1.0, 1.0)
    patterns = 1 << flips
    tail = 2 * sum(math.comb(flips, i) for i in range(fewer + 1))
    return McNemar(
        gained,
        lost,
        1.0 if tail >= patterns else tail / patterns,
        min(1.0, (tail - math.comb(flips, fewer)) / patterns),
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p values, in the order given (Holm 1979)."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted = [0.0] * len(p_values)
    least = 0.0
    for rank, index in enumerate(order):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = least
    return adjusted


def bootstrap(
    rows: Sequence[float],
    statistic: Callable[[Sequence[float]], float] = mean,
    *,
    confidence: float = 0.95,
    draws: int = bootstrap_draws,
    seed: int = seed,
) -> Interval:
    """The percentile bootstrap interval of a statistic, resampling whole rows (Efron 1979).

    Draws are cut down (never below 1,000) so that about 5 million values are looked at. For a paired comparison give
    the differences of the rows.
    """
    draws = max(1_000, min(draws, _bootstrap_work // max(1, len(rows))))
    generator = random.Random(seed)  # noqa: S311 - a reproducible interval, no secret
    values = sorted(statistic(generator.choices(rows, k=len(rows))) for _ in range(draws))
    tail = (1 - confidence) / 2
    return Interval(_quantile(values, tail), _quantile(values, 1 - tail))


def normal_quantile(probability: float) -> float:
    """The standard normal quantile, by inverting erfc where it is small and exact."""
    if probability > 0.5:
        return -normal_quantile(1 - probability)
    return _invert(lambda x: math.erfc(-x / math.sqrt(2)) / 2, probability, -40.0, 0.0)


def t_tail(t: float, degrees: float) -> float:
    """P(T > t) of Student's distribution for t >= 0: half of I_x(v/2, 1/2) at x = v/(v + t^2) (DLMF 8.17)."""
    return incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t)) / 2


def t_quantile(probability: float, degrees: float) -> float:
    """The quantile of Student's t distribution, by inverting its tail."""
    if probability < 0.5:
        return -t_quantile(1 - probability, degrees)
    tail = 1 - probability
    high = 1.0
    while t_tail(high, degrees) > tail:
        high *= 2
    return _invert(lambda t: -t_tail(t, degrees), -tail, 0.0, high)


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b), by its continued fraction (DLMF 8.17.22)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast below the mean; I_x(a, b) = 1 - I_1-x(b, a)
        return 1 - incomplete_beta(b, a, 1 - x)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    # Lentz's method: c and d are the ratios of successive numerators and denominators.
    tiny = 1e-300
    d = 1 / _apart(1 - (a + b) * x / (a + 1), tiny)
    c, fraction = 1.0, d
    for m in range(1, 10_000):
        for step in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _apart(1 + step * d, tiny)
            c = _apart(1 + step / c, tiny)
            fraction *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return math.exp(log_front) * fraction / a


def _apart(value: float, tiny: float) -> float:
    return value if abs(value) > tiny else tiny


def _invert(rising: Callable[[float], float], target: float, low: float, high: float) -> float:
    """Where a rising function reaches `target`, by bisection to the last bit."""
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if rising(middle) < target:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _signed_sums(values: Sequence[float]) -> list[float]:
    """The sums of all 2^n choices of signs."""
    sums = [0.0]
    for value in values:
        sums = [part + value for part in sums] + [part - value for part in sums]
    return sums


def _quantile(ordered: Sequence[float], probability: float) -> float:
    """Linear interpolation between order statistics (Hyndman and Fan type 7)."""
    position = probability * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def _check_counts(n: int, c: int, k: int) -> None:
    if not 1 <= k <= n or not 0 <= c <= n:
        raise ValueError(f"k = {k} of n = {n} attempts with c = {c} passes")
