"""The Qwen3 architecture in plain torch, for training nano from nothing; parameters carry their Hugging Face names."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Shape:
    """Sizes of the model (names as in a Hugging Face Qwen3 config)."""

    vocab_size: int = 768
    hidden_size: int = 96
    num_hidden_layers: int = 3
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 32
    intermediate_size: int = 192
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-6


def init_parameters(shape: Shape, seed: int) -> dict[str, Tensor]:
    """Draw initial weights: normal 0.02, projections back into the residual stream scaled by depth."""
    g = torch.Generator().manual_seed(seed)
    d, hd, ff = shape.hidden_size, shape.head_dim, shape.intermediate_size
    q, kv = shape.num_attention_heads * hd, shape.num_key_value_heads * hd
    depth = 1 / math.sqrt(2 * shape.num_hidden_layers)

    def normal(rows: int, columns: int, scale: float = 1.0) -> Tensor:
        return torch.randn(rows, columns, generator=g) * 0.02 * scale

    p = {"model.embed_tokens.weight": normal(shape.vocab_size, d), "model.norm.weight": torch.ones(d)}
    for layer in range(shape.num_hidden_layers):
        at = f"model.layers.{layer}."
        p[at + "input_layernorm.weight"] = torch.ones(d)
        p[at + "post_attention_layernorm.weight"] = torch.ones(d)
        p[at + "self_attn.q_norm.weight"] = torch.ones(hd)
        p[at + "self_attn.k_norm.weight"] = torch.ones(hd)
        p[at + "self_attn.q_proj.weight"] = normal(q, d)
        p[at + "self_attn.k_proj.weight"] = normal(kv, d)
        p[at + "self_attn.v_proj.weight"] = normal(kv, d)
        p[at + "self_attn.o_proj.weight"] = normal(d, q, depth)
        p[at + "mlp.gate_proj.weight"] = normal(ff, d)
        p[at + "mlp.up_proj.weight"] = normal(ff, d)
        p[at + "mlp.down_proj.weight"] = normal(d, ff, depth)
    return {name: value.requires_grad_() for name, value in p.items()}


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Scale to unit root mean square, then by `weight`."""
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


def hidden_states(p: dict[str, Tensor], shape: Shape, ids: Tensor) -> Tensor:
    """Run the decoder over right-padded ids [B, T]; returns [B, T, d]. The causal mask makes right padding harmless."""
    batch, length = ids.shape
    heads, kv_heads, hd, eps = shape.num_attention_heads, shape.num_key_value_heads, shape.head_dim, shape.rms_norm_eps
    inverse = 1.0 / shape.rope_theta ** (torch.arange(0, hd, 2) / hd)
    angles = torch.arange(length)[:, None] * inverse
    cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)

    def rotate(x: Tensor) -> Tensor:  # [B, heads, T, hd]
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat((-b, a), -1) * sin

    x = p["model.embed_tokens.weight"][ids]
    for layer in range(shape.num_hidden_layers):
        at = f"model.layers.{layer}."
        w = {name.removeprefix(at): value for name, value in p.items() if name.startswith(at)}
        h = rms_norm(x, w["input_layernorm.weight"], eps)
        q = (h @ w["self_attn.q_proj.weight"].T).view(batch, length, heads, hd)
        k = (h @ w["self_attn.k_proj.weight"].T).view(batch, length, kv_heads, hd)
        v = (h @ w["self_attn.v_proj.weight"].T).view(batch, length, kv_heads, hd)
        q = rotate(rms_norm(q, w["self_attn.q_norm.weight"], eps).transpose(1, 2))
        k = rotate(rms_norm(k, w["self_attn.k_norm.weight"], eps).transpose(1, 2))
        group = heads // kv_heads
        attended = F.scaled_dot_product_attention(
            q, k.repeat_interleave(group, 1), v.transpose(1, 2).repeat_interleave(group, 1), is_causal=True
        )
        x = x + attended.transpose(1, 2).reshape(batch, length, heads * hd) @ w["self_attn.o_proj.weight"].T
        h = rms_norm(x, w["post_attention_layernorm.weight"], eps)
        gated = F.silu(h @ w["mlp.gate_proj.weight"].T) * (h @ w["mlp.up_proj.weight"].T)
        x = x + gated @ w["mlp.down_proj.weight"].T
    return rms_norm(x, p["model.norm.weight"], eps)
