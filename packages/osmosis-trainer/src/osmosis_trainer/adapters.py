"""Reads a PEFT adapter folder: its config and matrices, checked against the base model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from osmosis_ai.errors import ValidationError

from osmosis_trainer.engine.arrays import np
from osmosis_trainer.engine.lora import TARGETS, LoraLayout
from osmosis_trainer.engine.protocol import LoraConfig
from osmosis_trainer.engine.weights import Array, ModelShape, Parameters, SamplingWeights, fuse
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


def read_adapter(folder: Path, known: Sequence[str]) -> tuple[LoraConfig, dict[str, Array]]:
    """An adapter's config and its matrices under their names in the file.

    Args:
        folder: `adapter_config.json` and `adapter_model.safetensors`.
        known: The linears that an adapter of the base model may change, in order.

    Raises:
        ValidationError: The adapter cannot be read, is damaged, or is of a kind that is not carried out here.
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
    if not isinstance(targets, list) or not targets or not set(targets) <= set(known):
        raise ValidationError(
            f"{folder / 'adapter_config.json'}: target_modules is {targets!r}; it may name {', '.join(known)}."
        )
    try:
        lora = LoraConfig(int(config["r"]), float(config["lora_alpha"]), 0, tuple(t for t in known if t in targets))
        tensors = load_file(folder / "adapter_model.safetensors")
    except (KeyError, TypeError, ValueError, OSError, SafetensorError) as error:
        raise ValidationError(f"The adapter {folder} cannot be read: {error}.") from error
    for name, value in tensors.items():
        if not np.isfinite(value).all():
            raise ValidationError(
                f"The adapter {folder} is damaged: {name} holds numbers that are not finite. Take another checkpoint."
            )
    return lora, tensors


def check_shapes(folder: Path, tensors: Mapping[str, Array], expected: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse an adapter whose matrices are not those of the base model.

    Raises:
        ValidationError: Names the first that differs.
    """
    found = {name: tuple(value.shape) for name, value in tensors.items()}
    if found != expected:
        name = min(found.items() ^ expected.items())[0]
        raise ValidationError(
            f"The adapter {folder} is of another base model: {name} is {found.get(name, 'not there')}, this base has "
            f"{expected.get(name, 'no such matrix')}."
        )


def adapted_weights(folder: Path, shape: ModelShape, parameters: Parameters) -> SamplingWeights:
    """The base model's weights with an adapter folded in, for the NumPy sampler.

    Args:
        folder: `adapter_config.json` and `adapter_model.safetensors`.
        shape: The base model's sizes.
        parameters: The base model's weights.

    Raises:
        ValidationError: The adapter cannot be read, is of a kind that is not carried out here, or of another base.
    """
    lora, tensors = read_adapter(folder, TARGETS)
    layout = LoraLayout(shape, lora, parameters)
    check_shapes(folder, tensors, layout.shapes)
    flat = np.zeros(layout.size, np.float32)
    for name, view in layout.views(flat).items():
        view[:] = tensors[name]
    return layout.folded(fuse(parameters, shape), flat)
