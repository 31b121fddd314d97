"""Model folders on disk to arrays ready to sample with: the shape, the named parameters, the fused weights.

Leaves the arithmetic to `engine.model`. A folder is Hugging Face's: `config.json` and `model.safetensors`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from osmosis_ai.errors import ValidationError

from osmosis_trainer.engine.arrays import np

type Array = np.ndarray[Any, np.dtype[Any]]
type Parameters = dict[str, Array]

ARCHITECTURE = "Qwen3ForCausalLM"


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of a Qwen3 decoder, under their Hugging Face names."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    max_position_embeddings: int
    rope_theta: float
    rms_norm_eps: float


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One decoder layer, transposed for `x @ w`, with what can be folded in folded in.

    Attributes:
        qkv: [d, (heads + 2 kv_heads) * head_dim]; the input norm's scale is multiplied in.
        q_norm: [head_dim]; the softmax scale head_dim**-0.5 is multiplied in.
        k_norm: [head_dim].
        out: [heads * head_dim, d].
        gate_up: [d, 2 * intermediate]; the post-attention norm's scale is multiplied in.
        down: [intermediate, d].
    """

    qkv: Array
    q_norm: Array
    k_norm: Array
    out: Array
    gate_up: Array
    down: Array


@dataclass(frozen=True, slots=True)
class SamplingWeights:
    """Everything one published version of a model samples with; never changed once made.

    Attributes:
        embedding: [vocab, d].
        layers: The decoder, first layer first.
        head: [d, vocab]; the final norm's scale is multiplied in.
    """

    embedding: Array
    layers: tuple[LayerWeights, ...]
    head: Array


class ForeignModelError(ValidationError):
    """A model that the NumPy engine does not run, whole as it may be; the torch engine does."""


def read_shape(folder: Path) -> ModelShape:
    """Read `config.json`.

    Raises:
        ForeignModelError: It describes a model that the NumPy engine does not run.
        ValidationError: It is missing, no JSON, or incomplete.
    """
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValidationError(f"{path} cannot be read as a model config: {error}.") from error
    architectures = config.get("architectures")
    if architectures != [ARCHITECTURE]:
        raise ForeignModelError(
            f"{path}: architectures is {architectures!r}; the NumPy engine runs [{ARCHITECTURE!r}] only; the torch engine "
            "runs others."
        )
    rope = config.get("rope_parameters") or {}
    unsupported = {
        "attention_bias": config.get("attention_bias", False) is not False,
        "hidden_act": config.get("hidden_act", "silu") != "silu",
        "tie_word_embeddings": config.get("tie_word_embeddings") is not True,
        "rope_scaling": bool(config.get("rope_scaling")) or rope.get("rope_type", "default") != "default",
        "use_sliding_window": bool(config.get("use_sliding_window", False)),
    }
    wrong = [name for name, is_wrong in unsupported.items() if is_wrong]
    if wrong:
        raise ForeignModelError(
            f"{path}: {', '.join(wrong)} {'has a value' if len(wrong) == 1 else 'have values'} the NumPy engine lacks; "
            "it runs Qwen3 with tied embeddings, SiLU, plain RoPE and no attention bias; the torch engine runs others."
        )
    theta = rope.get("rope_theta", config.get("rope_theta"))
    try:
        return ModelShape(
            rope_theta=float(theta),
            rms_norm_eps=float(config["rms_norm_eps"]),
            **{
                name: int(config[name])
                for name in ModelShape.__dataclass_fields__
                if name not in ("rope_theta", "rms_norm_eps")
            },
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValidationError(f"{path}: a size is missing or no number: {error}.") from error


def read_parameters(folder: Path, shape: ModelShape) -> Parameters:
    """Read `model.safetensors` as float32 arrays under their Hugging Face names, shapes checked.

    Raises:
        ValidationError: The file is missing, broken, or does not fit `config.json`.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    path = folder / "model.safetensors"
    try:
        stored = load_file(path)
    except (OSError, SafetensorError) as error:
        raise ValidationError(f"{path} cannot be read: {error}.") from error
    expected = parameter_shapes(shape)
    missing = sorted(expected.keys() - stored.keys())
    misshapen = sorted(name for name, size in expected.items() if name in stored and stored[name].shape != size)
    if missing or misshapen:
        raise ValidationError(
            f"{path} does not fit config.json: missing {missing or 'nothing'}, misshapen {misshapen or 'nothing'}."
        )
    return {name: np.ascontiguousarray(stored[name], dtype=np.float32) for name in expected}


def parameter_shapes(shape: ModelShape) -> dict[str, tuple[int, ...]]:
    """Give each parameter's Hugging Face name and shape (linear weights are [out, in])."""
    d, hd, ff = shape.hidden_size, shape.head_dim, shape.intermediate_size
    q, kv = shape.num_attention_heads * hd, shape.num_key_value_heads * hd
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (shape.vocab_size, d), "model.norm.weight": (d,)}
    layer_shapes: dict[str, tuple[int, ...]] = {
        "input_layernorm": (d,),
        "post_attention_layernorm": (d,),
        "self_attn.q_norm": (hd,),
        "self_attn.k_norm": (hd,),
        "self_attn.q_proj": (q, d),
        "self_attn.k_proj": (kv, d),
        "self_attn.v_proj": (kv, d),
        "self_attn.o_proj": (d, q),
        "mlp.gate_proj": (ff, d),
        "mlp.up_proj": (ff, d),
        "mlp.down_proj": (d, ff),
    }
    for layer in range(shape.num_hidden_layers):
        shapes |= {f"model.layers.{layer}.{name}.weight": size for name, size in layer_shapes.items()}
    return shapes


def fuse(parameters: Parameters, shape: ModelShape) -> SamplingWeights:
    """Fold norms and the softmax scale into the matrices and lay them out for `x @ w`."""
    layers = []
    for index in range(shape.num_hidden_layers):
        at = f"model.layers.{index}."

        def of(name: str, at: str = at) -> Array:
            return parameters[f"{at}{name}.weight"]

        qkv = np.concatenate([of("self_attn.q_proj"), of("self_attn.k_proj"), of("self_attn.v_proj")])
        gate_up = np.concatenate([of("mlp.gate_proj"), of("mlp.up_proj")])
        layers.append(
            LayerWeights(
                qkv=_columns(qkv * of("input_layernorm")),
                q_norm=(of("self_attn.q_norm") * np.float32(shape.head_dim**-0.5)),
                k_norm=of("self_attn.k_norm").copy(),
                out=_columns(of("self_attn.o_proj")),
                gate_up=_columns(gate_up * of("post_attention_layernorm")),
                down=_columns(of("mlp.down_proj")),
            )
        )
    embedding = parameters["model.embed_tokens.weight"]
    return SamplingWeights(embedding.copy(), tuple(layers), _columns(embedding * parameters["model.norm.weight"]))


def _columns(weight: Array) -> Array:
    return np.ascontiguousarray(weight.T, dtype=np.float32)
