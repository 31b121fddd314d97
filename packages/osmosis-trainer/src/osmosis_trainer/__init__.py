"""The policy engine of Osmosis: `embedded_policy("osmosis/nano")` answers chat calls in this process.

Importing this package loads nothing heavy; making a policy does.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from osmosis_trainer.policy import EnginePolicy

__all__ = ["EMBEDDED_MODELS", "embedded_policy"]

EMBEDDED_MODELS = ("osmosis/nano",)
"""Models that ship in this package."""


def embedded_policy(model_path: str, *, slots: int = 64, seed: int = 0) -> EnginePolicy:
    """Load a model that ships in this package.

    Args:
        model_path: One of `EMBEDDED_MODELS`.
        slots: How many answers are decoded at once.
        seed: Changes every answer.

    Returns:
        An `osmosis_ai.gateway.policy.Policy`. Its thread starts with the first call and ends with `aclose`.

    Raises:
        ValidationError: There is no such model.
    """
    if model_path not in EMBEDDED_MODELS:
        from osmosis_ai.errors import ValidationError

        raise ValidationError(
            f"model_path {model_path!r} is no embedded model; there is {', '.join(EMBEDDED_MODELS)}. "
            "For another provider's model write its own prefix, for example openai/<model>."
        )
    from osmosis_trainer.policy import EnginePolicy

    return EnginePolicy(model_path, Path(__file__).parent / model_path.removeprefix("osmosis/"), slots=slots, seed=seed)
