"""Models for the trainer's tests: a tiny random one, nano as shipped, and an independent forward pass to compare with."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import osmosis_trainer
import pytest
from osmosis_trainer.engine.arrays import np
from osmosis_trainer.engine.weights import Array, ModelShape, Parameters, parameter_shapes

NANO = Path(osmosis_trainer.__file__).parent / "nano"

TINY = ModelShape(
    vocab_size=50,
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    intermediate_size=40,
    max_position_embeddings=96,
    rope_theta=10000.0,
    rms_norm_eps=1e-6,
)


def random_parameters(shape: ModelShape, seed: int) -> Parameters:
    """Weights large enough that the model has opinions: a wrong cache row shows in the logits at once."""
    rng = np.random.default_rng(seed)
    return {
        name: (rng.normal(1, 0.3, size) if len(size) == 1 else rng.normal(0, 0.35, size)).astype(np.float32)
        for name, size in parameter_shapes(shape).items()
    }


def reference_logits(p: Parameters, shape: ModelShape, ids: list[int]) -> Array:
    """Logits [T, V] by the plain definition of Qwen3 in float64: no cache, no fusing, one head at a time."""
    w = {name: value.astype(np.float64) for name, value in p.items()}
    hd, group = shape.head_dim, shape.num_attention_heads // shape.num_key_value_heads

    def norm(x, weight):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + shape.rms_norm_eps) * weight

    angle = np.arange(len(ids))[:, None] / shape.rope_theta ** (np.arange(0, hd, 2) / hd)

    def rope(x):
        a, b = x[:, : hd // 2], x[:, hd // 2 :]
        return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], -1)

    x = w["model.embed_tokens.weight"][ids]
    hidden_future = np.triu(np.ones((len(ids), len(ids)), bool), 1)
    for layer in range(shape.num_hidden_layers):
        lw = {name.split(".", 3)[3]: value for name, value in w.items() if name.startswith(f"model.layers.{layer}.")}
        h = norm(x, lw["input_layernorm.weight"])
        q, k, v = (h @ lw[f"self_attn.{n}_proj.weight"].T for n in "qkv")
        heads = []
        for head in range(shape.num_attention_heads):
            kv = head // group
            qh = rope(norm(q[:, head * hd : (head + 1) * hd], lw["self_attn.q_norm.weight"]))
            kh = rope(norm(k[:, kv * hd : (kv + 1) * hd], lw["self_attn.k_norm.weight"]))
            scores = np.where(hidden_future, -np.inf, qh @ kh.T / np.sqrt(hd))
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            heads.append(scores / scores.sum(-1, keepdims=True) @ v[:, kv * hd : (kv + 1) * hd])
        x = x + np.concatenate(heads, -1) @ lw["self_attn.o_proj.weight"].T
        h = norm(x, lw["post_attention_layernorm.weight"])
        gate = h @ lw["mlp.gate_proj.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ lw["mlp.up_proj.weight"].T)) @ lw["mlp.down_proj.weight"].T
    return norm(x, w["model.norm.weight"]) @ w["model.embed_tokens.weight"].T


def log_softmax(logits: Array) -> Array:
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


@pytest.fixture(scope="session")
def tiny() -> ModelShape:
    return TINY


@pytest.fixture(scope="session")
def tiny_parameters() -> Parameters:
    return random_parameters(TINY, seed=0)


@pytest.fixture(scope="session")
def make_parameters() -> Callable[[ModelShape, int], Parameters]:
    return random_parameters


@pytest.fixture(scope="session")
def fresh_logits() -> Callable[[Parameters, ModelShape, list[int]], Array]:
    return reference_logits


@pytest.fixture(scope="session")
def fresh_logprobs() -> Callable[[Parameters, ModelShape, list[int], list[int]], list[float]]:
    """Log-probability of each answer token after a prompt, at temperature 1, by the reference."""

    def logprobs(p: Parameters, shape: ModelShape, prompt: list[int], answer: list[int]) -> list[float]:
        table = log_softmax(reference_logits(p, shape, [*prompt, *answer]))
        return [float(table[len(prompt) - 1 + i, token]) for i, token in enumerate(answer)]

    return logprobs


@pytest.fixture(scope="session")
def nano_folder() -> Path:
    return NANO


@pytest.fixture
def broken_nano(tmp_path: Path) -> Callable[[dict], Path]:
    """A copy of nano whose config differs."""

    def make(changes: dict) -> Path:
        folder = tmp_path / "model"
        shutil.copytree(NANO, folder)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | changes))
        return folder

    return make


@pytest.fixture(scope="session")
def shape_config() -> Callable[[ModelShape], dict]:
    return lambda shape: asdict(shape)


@pytest.fixture(scope="session")
def make_tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """A Hugging Face folder of the tiny shape with random weights, for any engine."""
    from safetensors.numpy import save_file

    def make(seed: int) -> Path:
        folder = tmp_path_factory.mktemp("tiny")
        config = asdict(TINY) | {
            "architectures": ["Qwen3ForCausalLM"],
            "model_type": "qwen3",
            "hidden_act": "silu",
            "attention_bias": False,
            "tie_word_embeddings": True,
            "use_sliding_window": False,
            "rope_parameters": {"rope_type": "default", "rope_theta": TINY.rope_theta},
            "bos_token_id": None,
            "eos_token_id": 0,
            "pad_token_id": 0,
            "dtype": "float32",
        }
        (folder / "config.json").write_text(json.dumps(config))
        save_file(random_parameters(TINY, seed), folder / "model.safetensors", {"format": "pt"})
        return folder

    return make


@pytest.fixture(scope="session")
def tiny_folder(make_tiny_folder: Callable[[int], Path]) -> Path:
    return make_tiny_folder(0)
