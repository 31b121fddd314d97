"""AdamW on one flat vector, with the gradient clipped by its norm.

Loshchilov and Hutter 2019 (arXiv 1711.05101); the arithmetic is that of `torch.optim.AdamW` after
`torch.nn.utils.clip_grad_norm_`, a test compares them. Same inputs give the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass

from osmosis_trainer.engine.arrays import np
from osmosis_trainer.engine.protocol import AdamConfig
from osmosis_trainer.engine.weights import Array

# What torch adds to the norm before it divides by it.
_CLIP_EPS = 1e-6


@dataclass(slots=True)
class AdamState:
    """Moments of the gradient, and how many steps were taken.

    Attributes:
        first: Running mean of the gradient [P].
        second: Running mean of its square [P].
        step: Steps so far.
    """

    first: Array
    second: Array
    step: int = 0

    @classmethod
    def zero(cls, size: int) -> AdamState:
        """Before the first step."""
        return cls(np.zeros(size, np.float32), np.zeros(size, np.float32))


def gradient_norm(gradient: Array) -> float:
    """Euclidean norm, summed in float64."""
    return float(np.sqrt(np.square(gradient, dtype=np.float64).sum()))


def adam_step(parameters: Array, gradient: Array, state: AdamState, config: AdamConfig) -> float:
    """Change parameters and state in place.

    Args:
        parameters: [P].
        gradient: [P]; left as it is.
        state: Of earlier steps.
        config: Rates of this step.

    Returns:
        The norm of the gradient before clipping. When that is not finite, nothing has changed.
    """
    norm = gradient_norm(gradient)
    if not np.isfinite(norm):
        return norm
    factor = min(1.0, config.clip / (norm + _CLIP_EPS)) if config.clip > 0 else 1.0
    scaled = gradient * np.float32(factor)
    state.step += 1
    state.first += (scaled - state.first) * np.float32(1 - config.beta1)
    state.second *= np.float32(config.beta2)
    scaled *= scaled
    scaled *= np.float32(1 - config.beta2)
    state.second += scaled
    denominator = np.sqrt(state.second)
    denominator /= np.float32(np.sqrt(1 - config.beta2**state.step))
    denominator += np.float32(config.eps)
    if config.weight_decay:
        parameters *= np.float32(1 - config.lr * config.weight_decay)
    update = state.first / denominator
    update *= np.float32(config.lr / (1 - config.beta1**state.step))
    parameters -= update
    return norm
