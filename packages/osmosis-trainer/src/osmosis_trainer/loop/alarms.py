"""What stops a training at once: figures that prove it wrong. Leaves the engine's own refusals to the engine."""

from __future__ import annotations

import math
from collections.abc import Mapping

from osmosis_ai.errors import OsmosisError

GAP_LIMIT = 1e-3
"""Greatest on-policy log-probability gap of an engine whose sampler and trainer are one float32 model, nats."""


class TrainingAlarm(OsmosisError):
    """A figure of a step proves that sampler, trainer or weights are wrong; the last sound state is kept."""

    code = "TRAINING_ALARM"


def check_finite(step: int, values: Mapping[str, float]) -> None:
    """Refuse values that are not finite.

    Raises:
        TrainingAlarm: Some are; they are named.
    """
    bad = [f"{name} is {value}" for name, value in values.items() if not math.isfinite(value)]
    if bad:
        raise TrainingAlarm(
            f"Step {step} is not sound: {', '.join(bad)}. Lower lr, or look at the rewards in rollouts.jsonl; the state "
            "before this step is kept, --resume goes on from it."
        )


def check_gap(step: int, found: Mapping[str, float], *, filtered: bool) -> None:
    """Refuse an on-policy gap that the same weights in the same arithmetic cannot have.

    Args:
        step: Whose figures they are.
        found: From the engine's pass over datums that the same weights drew.
        filtered: Whether top_p drops tokens: then one token at its border may move the others' probabilities, and the
            mean decides.

    Raises:
        TrainingAlarm: The trainer does not see the distribution the tokens were drawn from.
    """
    name = "logprob_gap_mean" if filtered else "logprob_gap_max"
    gap = found.get(name, 0.0)
    if not gap <= GAP_LIMIT:
        raise TrainingAlarm(
            f"Step {step}: trainer and sampler disagree by {gap:.2e} nats on tokens that these very weights drew "
            f"({name}; at most {GAP_LIMIT:g} is rounding). Tokens, template or engine are wrong, so the training would "
            "learn from noise. Please report this with the run's logs.txt."
        )
