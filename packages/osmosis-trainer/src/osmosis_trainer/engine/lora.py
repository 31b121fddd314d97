"""LoRA adapters: their parameters, names and start, how they fold into fused weights and what gradients mean for them.

W' = W + (alpha / rank) B A (Hu et al. 2021, arXiv 2106.09685). Names, layout and initialisation are PEFT's, so that an
export needs no translation. Parameters of an adapter are one flat vector with named views: the optimiser, the state on
disk and the gradient share its order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from osmosis_trainer.engine.arrays import np
from osmosis_trainer.engine.backward import LayerGradient
from osmosis_trainer.engine.protocol import LoraConfig
from osmosis_trainer.engine.sampling import noise_key, uniforms
from osmosis_trainer.engine.weights import Array, ModelShape, Parameters, SamplingWeights

TARGETS: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""The linears an adapter may change, under their Hugging Face names."""

PEFT_PREFIX = "base_model.model."
"""What PEFT puts before a module's own name."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a target lives in the fused weights of a layer."""

    module: str
    field: str
    first: int
    last: int
    norm: str | None  # the norm whose scale is folded into the matrix


def initial_matrix(seed: int, name: str, rank: int, columns: int) -> Array:
    """Draw A [rank, columns]: uniform within 1 / sqrt(columns), which is Kaiming-uniform with a = sqrt(5), as in PEFT.

    Depends on its arguments alone: no platform, library version or order of creation changes it.
    """
    key = np.full(rank * columns, noise_key("lora", seed, name), np.uint64)
    drawn = uniforms(key, np.arange(rank * columns)).reshape(rank, columns)
    return ((2 * drawn - 1) / np.sqrt(columns)).astype(np.float32)


class LoraLayout:
    """The parameters of one adapter of a Qwen3 model: names, shapes, order, and what they do to the fused weights."""

    def __init__(self, shape: ModelShape, config: LoraConfig, parameters: Parameters) -> None:
        self.shape, self.config = shape, config
        self._norms = {
            name: parameters[name] for name in parameters if name.endswith("layernorm.weight")
        }  # folded into what they precede
        hd, ff = shape.head_dim, shape.intermediate_size
        q, kv = shape.num_attention_heads * hd, shape.num_key_value_heads * hd
        self._places = {
            place.module.split(".")[1]: place
            for place in (
                _Place("self_attn.q_proj", "qkv", 0, q, "input_layernorm"),
                _Place("self_attn.k_proj", "qkv", q, q + kv, "input_layernorm"),
                _Place("self_attn.v_proj", "qkv", q + kv, q + 2 * kv, "input_layernorm"),
                _Place("self_attn.o_proj", "out", 0, shape.hidden_size, None),
                _Place("mlp.gate_proj", "gate_up", 0, ff, "post_attention_layernorm"),
                _Place("mlp.up_proj", "gate_up", ff, 2 * ff, "post_attention_layernorm"),
                _Place("mlp.down_proj", "down", 0, shape.hidden_size, None),
            )
        }
        self.shapes: dict[str, tuple[int, int]] = {}
        for layer, place in self._targets():
            out, into = parameters[f"model.layers.{layer}.{place.module}.weight"].shape
            self.shapes[self._name(layer, place, "A")] = (config.rank, into)
            self.shapes[self._name(layer, place, "B")] = (out, config.rank)
        self.size = sum(a * b for a, b in self.shapes.values())

    def initial(self) -> Array:
        """A new adapter's flat vector [size]."""
        flat = np.zeros(self.size, np.float32)
        for name, view in self.views(flat).items():
            if name.endswith("lora_A.weight"):
                view[:] = initial_matrix(self.config.seed, name, *view.shape)
        return flat

    def views(self, flat: Array) -> dict[str, Array]:
        """The named matrices of a flat vector, under PEFT's names; they share its memory."""
        views, at = {}, 0
        for name, (rows, columns) in self.shapes.items():
            views[name] = flat[at : at + rows * columns].reshape(rows, columns)
            at += rows * columns
        return views

    def folded(self, base: SamplingWeights, flat: Array) -> SamplingWeights:
        """The base's fused weights with an adapter folded in; what the adapter leaves alone is shared with the base."""
        views, layers = self.views(flat), list(base.layers)
        copies: dict[tuple[int, str], Array] = {}
        for layer, place in self._targets():
            a, b = views[self._name(layer, place, "A")], views[self._name(layer, place, "B")]
            matrix = copies.setdefault((layer, place.field), getattr(base.layers[layer], place.field).copy())
            matrix[:, place.first : place.last] += self._scaled(layer, place, a.T) @ b.T
        for layer in range(len(layers)):
            changed: dict[str, Any] = {field: value for (at, field), value in copies.items() if at == layer}
            layers[layer] = replace(layers[layer], **changed)
        return replace(base, layers=tuple(layers))

    def gradient(self, fused: Sequence[LayerGradient], flat: Array) -> Array:
        """The chain rule: from gradients of the fused matrices to that of the flat vector [size]."""
        views, result = self.views(flat), np.empty_like(flat)
        into = self.views(result)
        for layer, place in self._targets():
            name_a, name_b = self._name(layer, place, "A"), self._name(layer, place, "B")
            matrix = getattr(fused[layer], place.field)[:, place.first : place.last]
            by_product = self._scaled(layer, place, matrix)  # derivative by (B A)^T
            into[name_a][:] = (by_product @ views[name_b]).T
            into[name_b][:] = by_product.T @ views[name_a].T
        return result

    def merged(self, parameters: Parameters, flat: Array) -> Parameters:
        """The model's parameters under their Hugging Face names with the adapter added."""
        views, merged = self.views(flat), dict(parameters)
        for layer, place in self._targets():
            a, b = views[self._name(layer, place, "A")], views[self._name(layer, place, "B")]
            name = f"model.layers.{layer}.{place.module}.weight"
            merged[name] = parameters[name] + (b @ a) * np.float32(self.config.scale)
        return merged

    def _targets(self) -> Iterator[tuple[int, _Place]]:
        for layer in range(self.shape.num_hidden_layers):
            for target in TARGETS:
                if target in self.config.targets:
                    yield layer, self._places[target]

    def _scaled(self, layer: int, place: _Place, matrix: Array) -> Array:
        """A matrix [in, ...] times alpha / rank, and times the norm's scale that is folded into the fused matrix."""
        if place.norm is None:
            return matrix * matrix.dtype.type(self.config.scale)
        norm = self._norms[f"model.layers.{layer}.{place.norm}.weight"]
        return matrix * (norm.astype(matrix.dtype) * matrix.dtype.type(self.config.scale))[:, None]

    @staticmethod
    def _name(layer: int, place: _Place, which: str) -> str:
        return f"{PEFT_PREFIX}model.layers.{layer}.{place.module}.lora_{which}.weight"


def peft_config(config: LoraConfig, base: str) -> dict[str, Any]:
    """What `adapter_config.json` says, for `peft` to load the adapter.

    Args:
        config: The adapter's.
        base: The base model's folder or name.
    """
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": config.rank,
        "lora_alpha": config.alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": list(config.targets),
        "fan_in_fan_out": False,
        "init_lora_weights": True,
        "inference_mode": True,
    }
