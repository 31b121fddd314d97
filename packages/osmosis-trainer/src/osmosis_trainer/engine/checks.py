"""What every engine refuses: names, datums and saved states that do not fit its model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from osmosis_ai.errors import ValidationError

from osmosis_trainer.datum import Datum
from osmosis_trainer.engine.arrays import np
from osmosis_trainer.engine.protocol import Capabilities, LoraConfig
from osmosis_trainer.engine.weights import Array


def check_adapter_name(name: str, base: str) -> None:
    """Refuse names that cannot be part of a file name, or are the base's.

    Raises:
        ValidationError: The name is one of those.
    """
    if not name or name == base or not all(c.isalnum() or c in "-_." for c in name) or name.startswith("."):
        raise ValidationError(f"{name!r} cannot name an adapter; use letters, digits, '-', '_' and '.'.")


def lora_config(engine: Capabilities, rank: int, alpha: float, seed: int, targets: Sequence[str] | None) -> LoraConfig:
    """An adapter's config, its targets all there.

    Raises:
        ValidationError: A value is out of range, or the model has no such linear.
    """
    chosen = engine.targets if targets is None else tuple(targets)
    if unknown := [name for name in chosen if name not in engine.targets]:
        raise ValidationError(f"targets has {', '.join(unknown)}; {engine.base} has {', '.join(engine.targets)}.")
    return LoraConfig(rank, alpha, seed, tuple(name for name in engine.targets if name in chosen))


def check_state(path: Path, facts: dict[str, Any], engine: str, fingerprint: str) -> LoraConfig:
    """Check that a saved state belongs to this engine and base; give its adapter's config.

    Raises:
        ValidationError: It does not.
    """
    if facts.get("engine") != engine:
        raise ValidationError(f"{path} was saved by the engine {facts.get('engine')!r}; this is {engine!r}.")
    if facts.get("base") != fingerprint:
        raise ValidationError(f"{path} is the state of an adapter of another base model; load it with that one.")
    lora = facts["lora"]
    if not isinstance(lora, dict):
        raise ValidationError(f"{path} does not say what adapter it holds.")
    return LoraConfig(lora["rank"], lora["alpha"], lora["seed"], tuple(lora["targets"]))


def checked_tokens(datum: Datum, index: int, vocab_size: int, context: int) -> Array:
    """A datum's tokens as an array.

    Raises:
        ValidationError: They do not fit the model.
    """
    tokens = np.asarray(datum.tokens, np.int64)
    if len(tokens) > context:
        raise ValidationError(
            f"datum {index} (rollout {datum.rollout!r}) has {len(tokens)} tokens; the model reads at most {context}."
        )
    if tokens.min() < 0 or tokens.max() >= vocab_size:
        raise ValidationError(
            f"datum {index} (rollout {datum.rollout!r}) has a token id outside 0 to {vocab_size - 1}: it was sampled "
            "from another model."
        )
    return tokens
