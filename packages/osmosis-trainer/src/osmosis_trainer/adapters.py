"""Reads a PEFT adapter folder for the NumPy sampler: its config and matrices, checked against the base model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from osmosis_ai.errors import ValidationError

from osmosis_trainer.engine.arrays import np
from osmosis_trainer.engine.lora import TARGETS, LoraLayout
from osmosis_trainer.engine.protocol import LoraConfig
from osmosis_trainer.engine.weights import ModelShape, Parameters, SamplingWeights, fuse
from osmosis_trainer.models import adapter_config

# What would change the result and is not carried out here; a value other than these is refused.
_PLAIN: dict[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none", None),
    "use_dora": (False, None),
    "use_rslora": (False, None),
    "fan_in_fan_out": (False, None),
    "modules_to_save": (None, []),
    "rank_pattern": (None, {}),
    "alpha_pattern": (None, {}),
}


def adapted_weights(folder: Path, shape: ModelShape, parameters: Parameters) -> SamplingWeights:
    """The base model's weights with an adapter folded in.

    Args:
        folder: `adapter_config.json` and `adapter_model.safetensors`.
        shape: The base model's sizes.
        parameters: The base model's weights.

    Raises:
        ValidationError: The adapter cannot be read, is of a kind that is not carried out here, or of another base.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    config = adapter_config(folder)
    for name, allowed in _PLAIN.items():
        if config.get(name) not in allowed:
            raise ValidationError(
                f"{folder / 'adapter_config.json'}: {name} is {config[name]!r}; plain LoRA is run here."
            )
    targets = config.get("target_modules")
    if not isinstance(targets, list) or not targets or not set(targets) <= set(TARGETS):
        raise ValidationError(
            f"{folder / 'adapter_config.json'}: target_modules is {targets!r}; it may name {', '.join(TARGETS)}."
        )
    try:
        lora = LoraConfig(int(config["r"]), float(config["lora_alpha"]), 0, tuple(t for t in TARGETS if t in targets))
        tensors = load_file(folder / "adapter_model.safetensors")
    except (KeyError, TypeError, ValueError, OSError, SafetensorError) as error:
        raise ValidationError(f"The adapter {folder} cannot be read: {error}.") from error
    layout = LoraLayout(shape, lora, parameters)
    found = {name: tuple(value.shape) for name, value in tensors.items()}
    if found != layout.shapes:
        name = next(iter(sorted(found.items() ^ layout.shapes.items())))[0]
        raise ValidationError(
            f"The adapter {folder} is of another base model: {name} is {found.get(name, 'not there')}, this base has "
            f"{layout.shapes.get(name, 'no such matrix')}."
        )
    flat = np.zeros(layout.size, np.float32)
    for name, view in layout.views(flat).items():
        view[:] = tensors[name]
    return layout.folded(fuse(parameters, shape), flat)
