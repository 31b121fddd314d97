"""Which token is drawn: temperature, top-k, top-p, min-p, greedy; noise that depends on its key alone.

A draw inverts the cumulative distribution at one uniform number, a hash of (key, position). So a token depends on what
the call is and where the token stands, never on which other calls shared its batch or came first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from osmosis_trainer.engine.arrays import np
from osmosis_trainer.engine.weights import Array

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to draw tokens. The defaults sample the model's own distribution.

    Attributes:
        temperature: Divides the logits; 0 takes the likeliest token.
        top_k: Keep the k likeliest tokens; 0 keeps all.
        top_p: Keep the smallest set of likeliest tokens whose probability reaches p; 1 keeps all.
        min_p: Keep tokens at least this likely relative to the likeliest; 0 keeps all.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    @property
    def filters(self) -> bool:
        """Whether any token is ever dropped."""
        return self.temperature > 0 and (self.top_k > 0 or self.top_p < 1 or self.min_p > 0)


def noise_key(*parts: object) -> int:
    """Hash whatever names a call (seed, session, prompt, ...) to 64 bits."""
    digest = hashlib.blake2b("\0".join(map(str, parts)).encode("utf-8", "surrogatepass"), digest_size=8)
    return int.from_bytes(digest.digest(), "little")


def uniforms(keys: Array, positions: Array) -> Array:
    """Hash (key, position) to uniform numbers inside (0, 1), by SplitMix64's finaliser (Steele, Lea, Flood 2014).

    Args:
        keys: uint64 [R].
        positions: Index of the token within its answer [R].
    """
    with np.errstate(over="ignore"):
        z = keys + (positions.astype(np.uint64) + np.uint64(1)) * _GOLDEN
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    # 32 bits leave the largest value far enough below 1 that no rounding of a cumulative sum can be passed
    return ((z >> np.uint64(32)).astype(np.float64) + 0.5) * 2.0**-32


def draw(logits: Array, params: Sequence[SamplingParams], keys: Array, positions: Array) -> tuple[Array, Array]:
    """Draw one token a row.

    Args:
        logits: [R, V]; overwritten.
        params: One for each row.
        keys: uint64 [R], from `noise_key`.
        positions: Index of the token within its answer [R].

    Returns:
        Token ids [R], and their log-probabilities [R] under the distribution they were drawn from (temperature and
        filters applied; 0 for greedy rows, whose distribution is one point).
    """
    temperatures = np.array([p.temperature for p in params], np.float32)
    greedy = temperatures == 0
    best = logits.argmax(-1)
    rows = np.arange(len(logits))
    if greedy.all():
        return best, np.zeros(len(logits), np.float32)
    logits -= logits[rows, best][:, None]
    if (temperatures != 1).any():
        logits /= np.where(greedy, np.float32(1), temperatures)[:, None]
    probabilities = np.exp(logits)  # unnormalised: the likeliest token has 1
    for row, p in enumerate(params):
        if p.filters:
            probabilities[row, ~_kept(probabilities[row], p)] = 0
    cumulative = np.cumsum(probabilities, -1, dtype=np.float64)
    total = cumulative[:, -1]
    tokens = (cumulative <= (uniforms(keys, positions) * total)[:, None]).sum(-1)
    logprobs = (logits[rows, tokens] - np.log(total)).astype(np.float32)
    return np.where(greedy, best, tokens), np.where(greedy, np.float32(0), logprobs)


def _kept(probabilities: Array, p: SamplingParams) -> Array:
    """Mark the tokens that the filters keep; ties at a threshold are kept, so at least one token is."""
    kept = probabilities >= p.min_p  # the likeliest has 1
    if p.top_k and p.top_k < len(probabilities):
        kept &= probabilities >= np.partition(probabilities, -p.top_k)[-p.top_k]
    if p.top_p < 1:
        ordered = np.sort(np.where(kept, probabilities, 0))[::-1]
        cumulative = np.cumsum(ordered, dtype=np.float64)
        kept &= probabilities >= ordered[np.searchsorted(cumulative, p.top_p * cumulative[-1])]
    return kept
