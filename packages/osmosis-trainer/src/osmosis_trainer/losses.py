"""Policy-gradient losses: from log-probabilities and advantages to a value and its gradient, as pure functions.

Leaves the model to the engines: the gradient with respect to each trained token's log-probability is all they need.
Ratios are taken against the *recorded sampler's* log-probabilities, the distribution the tokens really came from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from osmosis_ai.errors import ValidationError

from osmosis_trainer.datum import Datum
from osmosis_trainer.engine.arrays import np
from osmosis_trainer.engine.sampling import SamplingParams

type Array = np.ndarray[Any, np.dtype[Any]]
type LossName = Literal["importance_sampling", "ppo", "cispo", "gspo"]
type Normalisation = Literal["sum", "token_mean", "rollout_mean", "constant"]

# How far below and above 1 a ratio may go, where the caller does not say.
_CLIPS: dict[LossName, tuple[float, float]] = {
    "importance_sampling": (np.inf, np.inf),
    "ppo": (0.2, 0.28),  # DAPO's clip-higher, arXiv 2503.14476
    "cispo": (1.0, 4.0),  # weights in [0, 5] as ScaleRL, arXiv 2510.13786
    "gspo": (3e-4, 4e-4),  # arXiv 2507.18071, section 5.1
}

LOSSES: tuple[LossName, ...] = tuple(_CLIPS)
"""Every loss there is."""


@dataclass(frozen=True, slots=True)
class LossConfig:
    """Which loss, and how its tokens are weighed.

    Attributes:
        name: `importance_sampling`: ratio times advantage. `ppo`: the clipped surrogate of Schulman et al. 2017
            (arXiv 1707.06347, eq. 7), a token at a time, as GRPO uses it. `cispo`: a clipped, detached ratio weighs
            the log-likelihood, so clipped tokens keep a gradient (MiniMax-M1, arXiv 2506.13585, eq. 4); with
            `clip_low` 1 and `clip_high` 1 it is truncated importance sampling with cap 2. `gspo`: one ratio a
            sequence, the geometric mean over its trained tokens (arXiv 2507.18071, eq. 5 and 7).
        clip_low: The ratio's lower bound is 1 - clip_low; None takes the loss's usual value.
        clip_high: The ratio's upper bound is 1 + clip_high; None takes the loss's usual value.
        keep_low: Tokens whose ratio (gspo: their sequence's) lies below it learn nothing (IcePop masking, usually 0.5);
            None keeps all.
        keep_high: Tokens whose ratio lies above it learn nothing (usually 2); None keeps all.
        normalisation: What the weighted sum over tokens is divided by. `sum`: nothing, the caller has folded it into
            the weights. `token_mean`: trained tokens of the call (DAPO). `rollout_mean`: first the tokens of each
            rollout, then the number of rollouts (GRPO, arXiv 2402.03300). `constant`: rollouts times
            `constant_length` (Dr.GRPO, arXiv 2503.20783: no bias towards long wrong answers).
        constant_length: For `constant`, usually the longest answer allowed.
        sampling: How the tokens were drawn; the trainer's log-probabilities are those of the same processed
            distribution: the same temperature, and the same filters applied to its own logits with the kept set held
            fixed under the gradient. The drawn token always counts as kept.
    """

    name: LossName = "ppo"
    clip_low: float | None = None
    clip_high: float | None = None
    keep_low: float | None = None
    keep_high: float | None = None
    normalisation: Normalisation = "token_mean"
    constant_length: int = 1
    sampling: SamplingParams = field(default_factory=SamplingParams)

    def __post_init__(self) -> None:
        wrong = []
        if self.name not in LOSSES:
            wrong.append(f"loss is {self.name!r}; there is {', '.join(LOSSES)}")
        if self.normalisation not in ("sum", "token_mean", "rollout_mean", "constant"):
            wrong.append(f"normalisation is {self.normalisation!r}; there is sum, token_mean, rollout_mean, constant")
        if self.clip_low is not None and not 0 <= self.clip_low <= 1:
            wrong.append(f"clip_low is {self.clip_low}; it lies between 0 and 1")
        if self.clip_high is not None and not self.clip_high >= 0:
            wrong.append(f"clip_high is {self.clip_high}; it is at least 0")
        if self.constant_length < 1:
            wrong.append(f"constant_length is {self.constant_length}; it is at least 1")
        if not self.sampling.temperature > 0:
            wrong.append("greedy answers (temperature 0) have no distribution to learn from; sample above 0")
        if wrong:
            raise ValidationError("; ".join(wrong) + ".")

    @property
    def bounds(self) -> tuple[float, float]:
        """The lowest and highest ratio that is not clipped."""
        low, high = _CLIPS[self.name]
        return 1 - (low if self.clip_low is None else self.clip_low), 1 + (
            high if self.clip_high is None else self.clip_high
        )


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """The trained tokens of some datums, flat: N tokens in the order of the datums.

    Attributes:
        sampler: Recorded log-probabilities [N].
        advantages: [N].
        weights: Normalised weights [N]: the loss is their weighted sum.
        datum: Which datum each token is of [N], ascending.
    """

    sampler: Array
    advantages: Array
    weights: Array
    datum: Array

    def __len__(self) -> int:
        return len(self.sampler)

    def part(self, chosen: Array) -> TokenBatch:
        """The tokens at some indices; of whole datums, where the loss is a sequence's."""
        return TokenBatch(self.sampler[chosen], self.advantages[chosen], self.weights[chosen], self.datum[chosen])


def token_batch(datums: Sequence[Datum], config: LossConfig) -> TokenBatch:
    """Flatten the trained tokens of a call and fold the normalisation into their weights.

    Raises:
        ValidationError: A trained token has a value that is not finite.
    """
    masks = [np.asarray(d.trained, bool) for d in datums]
    counts = np.array([int(m.sum()) for m in masks])

    def flat(name: str) -> Array:
        parts = [
            np.asarray(values, np.float64)[mask] if (values := getattr(d, name)) is not None else np.ones(int(n))
            for d, mask, n in zip(datums, masks, counts, strict=True)
        ]
        joined = np.concatenate(parts) if parts else np.zeros(0)
        if not np.isfinite(joined).all():
            index = int(np.searchsorted(np.cumsum(counts), np.flatnonzero(~np.isfinite(joined))[0], side="right"))
            raise ValidationError(
                f"datum {index} (rollout {datums[index].rollout!r}) has {name} that are not finite at trained tokens."
            )
        return joined

    datum = np.repeat(np.arange(len(datums)), counts)
    weights = flat("weights") * _normaliser([d.rollout for d in datums], counts, config)[datum]
    return TokenBatch(flat("logprobs"), flat("advantages"), weights, datum)


def _normaliser(rollouts: Sequence[str], counts: Array, config: LossConfig) -> Array:
    """The factor for tokens of each datum [datums]; datums without a name are rollouts of their own."""
    total = int(counts.sum())
    if config.normalisation == "sum" or total == 0:
        return np.ones(len(counts))
    if config.normalisation == "token_mean":
        return np.full(len(counts), 1 / total)
    names = [name or f"\0{i}" for i, name in enumerate(rollouts)]
    _, index = np.unique(names, return_inverse=True)
    tokens = np.bincount(index, counts)
    trained_rollouts = int((tokens > 0).sum())
    if config.normalisation == "constant":
        return np.full(len(counts), 1 / (trained_rollouts * config.constant_length))
    return 1 / (np.maximum(tokens, 1)[index] * trained_rollouts)


def per_token(datums: Sequence[Datum], logprobs: Array) -> tuple[tuple[float, ...], ...]:
    """Put the flat results of trained tokens back where the tokens stand."""
    result, at = [], 0
    for datum in datums:
        mask = np.asarray(datum.trained, bool)
        row, count = np.zeros(len(mask)), int(mask.sum())
        row[mask] = logprobs[at : at + count]
        at += count
        result.append(tuple(row.tolist()))
    return tuple(result)


def surrogate(trainer: Array, batch: TokenBatch, config: LossConfig) -> tuple[float, Array]:
    """The loss to minimise and its gradient.

    Args:
        trainer: Log-probabilities under the weights being trained [N].
        batch: The same tokens' data.
        config: Which loss.

    Returns:
        The loss, and its derivative by each trainer log-probability [N] (float64). Where the loss detaches a factor
        (cispo, masking) the derivative does too.
    """
    trainer = trainer.astype(np.float64)
    advantages, low, high = batch.advantages, *config.bounds
    ratio, _ = _ratios(trainer, batch, config)
    weights = batch.weights * _kept(ratio, config)
    if config.name == "cispo":
        factor = np.clip(ratio, low, high)
        return float(-(weights * factor * advantages * trainer).sum()), -weights * factor * advantages
    value = -weights * np.minimum(ratio * advantages, np.clip(ratio, low, high) * advantages)
    through = -weights * ratio * advantages  # d ratio / d logprob is the ratio itself
    through[_clipped(ratio, advantages, low, high)] = 0
    if config.name == "gspo":
        # the sequence's log-ratio is the mean of its tokens': each token gets that share of what all of them got
        counts = np.bincount(batch.datum)
        through = (np.bincount(batch.datum, through) / np.maximum(counts, 1))[batch.datum]
    return float(value.sum()), through


def loss_metrics(trainer: Array, entropy: Array, batch: TokenBatch, config: LossConfig) -> dict[str, float]:
    """What to watch, over the trained tokens of one call.

    Args:
        trainer: Log-probabilities under the weights being trained [N].
        entropy: Of the distribution each token was predicted with [N], nats.
        batch: The same tokens' data.
        config: Which loss.

    Returns:
        `tokens`, `loss`, `entropy`; `ratio_mean`, `ratio_min`, `ratio_max`; `clip_low_fraction` and
        `clip_high_fraction` of tokens the clip acts on, `masked_fraction` that IcePop drops; `logprob_gap_max` and
        `logprob_gap_mean`, the absolute difference between trainer and sampler; `kl_k1` and `kl_k3`, estimates of
        KL(sampler || trainer) (Schulman 2020, "Approximating KL divergence"; k3 is never negative).
    """
    if len(batch) == 0:
        return {"tokens": 0.0, "loss": 0.0}
    trainer = trainer.astype(np.float64)
    low, high = config.bounds
    ratio, token_log_ratio = _ratios(trainer, batch, config)
    gap = np.abs(token_log_ratio)
    clipped = (ratio < low) | (ratio > high) if config.name == "cispo" else _clipped(ratio, batch.advantages, low, high)
    token_ratio = np.exp(token_log_ratio)
    return {
        "tokens": float(len(batch)),
        "loss": surrogate(trainer, batch, config)[0],
        "entropy": float(entropy.mean()),
        "ratio_mean": float(token_ratio.mean()),
        "ratio_min": float(token_ratio.min()),
        "ratio_max": float(token_ratio.max()),
        "clip_low_fraction": float((clipped & (ratio < low)).mean()),
        "clip_high_fraction": float((clipped & (ratio > high)).mean()),
        "masked_fraction": float((~_kept(ratio, config)).mean()),
        "logprob_gap_max": float(gap.max()),
        "logprob_gap_mean": float(gap.mean()),
        "kl_k1": float(-token_log_ratio.mean()),
        "kl_k3": float((token_ratio - 1 - token_log_ratio).mean()),
    }


def _ratios(trainer: Array, batch: TokenBatch, config: LossConfig) -> tuple[Array, Array]:
    """The ratio the loss uses [N], a token's or its sequence's, and each token's log-ratio [N]."""
    log_ratio = trainer - batch.sampler
    if config.name != "gspo":
        return np.exp(log_ratio), log_ratio
    mean = np.bincount(batch.datum, log_ratio) / np.maximum(np.bincount(batch.datum), 1)
    return np.exp(mean)[batch.datum], log_ratio


def _clipped(ratio: Array, advantages: Array, low: float, high: float) -> Array:
    """Where the clipped branch is the smaller one, so that no gradient flows."""
    return ((advantages > 0) & (ratio > high)) | ((advantages < 0) & (ratio < low))


def _kept(ratio: Array, config: LossConfig) -> Array:
    kept = np.ones(len(ratio), bool)
    if config.keep_low is not None:
        kept &= ratio >= config.keep_low
    if config.keep_high is not None:
        kept &= ratio <= config.keep_high
    return kept
