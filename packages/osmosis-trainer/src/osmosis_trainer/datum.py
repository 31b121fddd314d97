"""One training row: what was sampled, what was learnt about it. Pure data; the loop makes it, an engine reads it.

Leaves the loss to `losses` and who shares a baseline to the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Datum:
    """A token sequence with what is to be learnt from it.

    Every per-token field has one entry a token; entry t is about token t as it was predicted from tokens[:t]. Token 0
    is predicted by nothing, so it can never be trained.

    Attributes:
        tokens: Token ids, at least two.
        trained: Whether the policy drew this token and is to learn from it; the others are context only.
        advantages: How much better than expected the token's rollout did; read where `trained`. Zero trains nothing
            but still counts in the normaliser and in the log-probability gap.
        logprobs: Log-probability under the distribution the sampler drew from; read where `trained`.
        weights: Factor on the token's loss, None for 1 everywhere: normalisation folded in by the caller.
        rollout: Which rollout the sequence is part of: rows of one rollout share its mean under `rollout_mean`.
        versions: The published versions that drew the trained tokens, oldest first.

    Raises:
        ValueError: A field has another length than `tokens`, nothing is there to predict, or token 0 is trained.
    """

    tokens: Sequence[int]
    trained: Sequence[bool]
    advantages: Sequence[float]
    logprobs: Sequence[float]
    weights: Sequence[float] | None = None
    rollout: str = ""
    versions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        length = len(self.tokens)
        for name in ("trained", "advantages", "logprobs", "weights"):
            field = getattr(self, name)
            if field is not None and len(field) != length:
                raise ValueError(f"a datum has {length} tokens but {len(field)} {name}")
        if length < 2:
            raise ValueError(f"a datum needs at least two tokens, it has {length}")
        if self.trained[0]:
            raise ValueError("token 0 of a datum is predicted by nothing and cannot be trained")
