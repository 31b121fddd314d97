"""The Qwen3 forward pass over cached keys and values: prefill of ragged rows, decoding of one token a row.

Leaves what the slots hold to `engine.slots` and which token is drawn to `engine.sampling`. RMSNorm, rotary embedding
(rotate-half), grouped-query attention with normed queries and keys, SwiGLU: as in the Qwen3 technical report and its
Hugging Face implementation, checked against the latter by a parity test.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence

from osmosis_trainer.engine.arrays import np
from osmosis_trainer.engine.weights import Array, LayerWeights, ModelShape, SamplingWeights

# Decode reads the cache in place when at least this share of the leading slots is alive; else it gathers the live rows.
_IN_PLACE_SHARE = 0.6


class KeyValueCache:
    """Keys and values of every slot: two arrays [layers, slots, kv_heads, context, head_dim].

    The memory is mapped directly, so that the system commits small pages as they are written and room that no sequence
    reaches costs nothing. (NumPy would ask for huge pages, and commit all of it.)
    """

    def __init__(self, shape: ModelShape, slots: int, context: int) -> None:
        size = (shape.num_hidden_layers, slots, shape.num_key_value_heads, context, shape.head_dim)
        self.keys = _mapped_zeros(size)
        self.values = _mapped_zeros(size)

    def copy(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` positions of one slot to another."""
        self.keys[:, target, :, :length] = self.keys[:, source, :, :length]
        self.values[:, target, :, :length] = self.values[:, source, :, :length]


class Decoder:
    """The arithmetic of one model shape; holds the rotary tables, no weights and no state.

    Args:
        shape: Sizes of the model.
        context: Longest sequence a slot holds, at most the model's own limit.
    """

    def __init__(self, shape: ModelShape, context: int) -> None:
        self.shape = shape
        half = shape.head_dim // 2
        inverse = shape.rope_theta ** -(np.arange(half) / half)
        angles = np.arange(context)[:, None] * inverse
        # [context, 1, head_dim]; the sine's first half is negated, so that rotate-half is a swap of halves
        self._cos = np.concatenate([np.cos(angles), np.cos(angles)], -1).astype(np.float32)[:, None]
        self._sin = np.concatenate([-np.sin(angles), np.sin(angles)], -1).astype(np.float32)[:, None]
        self._eps = np.float32(shape.rms_norm_eps)

    def prefill(
        self,
        weights: SamplingWeights,
        cache: KeyValueCache,
        rows: Sequence[int],
        starts: Sequence[int],
        chunks: Sequence[Array],
    ) -> Array:
        """Append a chunk of tokens to each row's slot.

        Args:
            weights: The version to run.
            cache: Receives the keys and values.
            rows: The slots.
            starts: How many positions each slot already holds.
            chunks: Token ids for each row, of any lengths.

        Returns:
            Logits [rows, vocab] after the last token of each chunk.
        """
        shape = self.shape
        bounds = np.concatenate([[0], np.cumsum([len(chunk) for chunk in chunks])])
        positions = np.concatenate([np.arange(s, s + len(c)) for s, c in zip(starts, chunks, strict=True)])
        cos, sin = self._cos[positions], self._sin[positions]
        x = weights.embedding[np.concatenate(chunks)]
        heads, kv_heads, hd = shape.num_attention_heads, shape.num_key_value_heads, shape.head_dim
        group = heads // kv_heads
        attended = np.empty((len(x), heads * hd), np.float32)
        for index, layer in enumerate(weights.layers):
            q, k, v = self._queries_keys_values(layer, x, cos, sin)
            for i, slot in enumerate(rows):
                lo, hi, start = bounds[i], bounds[i + 1], starts[i]
                n, end = hi - lo, start + (hi - lo)
                keys, values = cache.keys[index, slot, :, :end], cache.values[index, slot, :, :end]
                keys[:, start:] = k[lo:hi].transpose(1, 0, 2)
                values[:, start:] = v[lo:hi].transpose(1, 0, 2)
                # [n, kv, group, hd] -> [kv, group * n, hd]: the heads that share keys share one product
                queries = (
                    q[lo:hi].reshape(n, kv_heads, group, hd).transpose(1, 2, 0, 3).reshape(kv_heads, group * n, hd)
                )
                scores = (queries @ keys.swapaxes(-1, -2)).reshape(kv_heads, group, n, end)
                if n > 1:
                    scores[..., start:] += _causal_bias(n)
                mixed = _softmax_in_place(scores).reshape(kv_heads, group * n, end) @ values
                attended[lo:hi] = mixed.reshape(kv_heads, group, n, hd).transpose(2, 0, 1, 3).reshape(n, heads * hd)
            x = self._mix(layer, x, attended)
        return self._normed(x[bounds[1:] - 1]) @ weights.head

    def decode(
        self, weights: SamplingWeights, cache: KeyValueCache, rows: Array, positions: Array, tokens: Array
    ) -> Array:
        """Append one token to each row's slot.

        Args:
            weights: The version to run.
            cache: Receives the keys and values.
            rows: Slots [R], strictly ascending.
            positions: Where each token goes [R]: how many positions its slot already holds.
            tokens: Token ids [R].

        Returns:
            Logits [R, vocab].

        Raises:
            ValueError: Rows do not ascend: read in place, each would get another's keys, and rewards merely look poor.
        """
        if (rows[1:] <= rows[:-1]).any():
            raise ValueError(f"slots must ascend, got {rows.tolist()}")
        shape, count = self.shape, len(rows)
        kv_heads, hd = shape.num_key_value_heads, shape.head_dim
        group = shape.num_attention_heads // kv_heads
        end, leading = int(positions.max()) + 1, int(rows[-1]) + 1
        in_place = count >= _IN_PLACE_SHARE * leading
        width = leading if in_place else count
        lanes = rows if in_place else np.arange(count)  # the row of the attention batch that each live slot takes
        bias = np.where(np.arange(end) <= positions[:, None], np.float32(0), np.float32(-np.inf))[:, None, None]
        if width != count:  # idle slots between live ones are computed and thrown away
            bias = _spread(bias, lanes, width)
        cos, sin = self._cos[positions], self._sin[positions]
        x = weights.embedding[tokens]
        for index, layer in enumerate(weights.layers):
            q, k, v = self._queries_keys_values(layer, x, cos, sin)
            keys, values = cache.keys[index], cache.values[index]
            keys[rows, :, positions] = k
            values[rows, :, positions] = v
            keys, values = (
                (keys[:width, :, :end], values[:width, :, :end])
                if in_place
                else (keys[rows, :, :end], values[rows, :, :end])
            )
            queries = q.reshape(count, kv_heads, group, hd)
            if width != count:
                queries = _spread(queries, lanes, width)
            scores = queries @ keys.swapaxes(-1, -2)
            scores += bias
            attended = (_softmax_in_place(scores) @ values).reshape(width, -1)
            x = self._mix(layer, x, attended if width == count else attended[lanes])
        return self._normed(x) @ weights.head

    def _queries_keys_values(self, layer: LayerWeights, x: Array, cos: Array, sin: Array) -> tuple[Array, Array, Array]:
        """Project tokens [N, d] to rotated queries [N, heads, hd] and keys, and values, [N, kv_heads, hd]."""
        shape = self.shape
        heads, kv_heads = shape.num_attention_heads, shape.num_key_value_heads
        qkv = (self._normed(x) @ layer.qkv).reshape(len(x), heads + 2 * kv_heads, shape.head_dim)
        q, k, v = qkv[:, :heads], qkv[:, heads : heads + kv_heads], qkv[:, heads + kv_heads :]
        return (
            self._rotated(self._normed(q) * layer.q_norm, cos, sin),
            self._rotated(self._normed(k) * layer.k_norm, cos, sin),
            v,
        )

    def _mix(self, layer: LayerWeights, x: Array, attended: Array) -> Array:
        """Add attention's output, then the gated feed-forward, to the residual stream [N, d]."""
        x = x + attended @ layer.out
        gate_up = self._normed(x) @ layer.gate_up
        gate, up = gate_up[:, : self.shape.intermediate_size], gate_up[:, self.shape.intermediate_size :]
        # silu(g) = g / (1 + exp(-g)); exp overflows to inf for g < -88, which gives the right 0
        with np.errstate(over="ignore"):
            denominator = np.exp(-gate)
        denominator += 1
        return x + (gate * up / denominator) @ layer.down

    def _normed(self, x: Array) -> Array:
        """Scale the last axis to unit root mean square; the learned scale is folded into what follows."""
        mean = np.einsum("...i,...i->...", x, x) / np.float32(x.shape[-1])
        return x * (1 / np.sqrt(mean + self._eps))[..., None]

    @staticmethod
    def _rotated(x: Array, cos: Array, sin: Array) -> Array:
        half = x.shape[-1] // 2
        swapped = np.concatenate([x[..., half:], x[..., :half]], -1)
        swapped *= sin
        x *= cos
        x += swapped
        return x


def _mapped_zeros(size: tuple[int, ...]) -> Array:
    return np.frombuffer(mmap.mmap(-1, 4 * math.prod(size)), np.float32).reshape(size)


def _softmax_in_place(scores: Array) -> Array:
    scores -= scores.max(-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(-1, keepdims=True)
    return scores


def _causal_bias(n: int) -> Array:
    return np.triu(np.full((n, n), -np.inf, np.float32), 1)


def _spread(rows: Array, lanes: Array, width: int) -> Array:
    """Place rows at `lanes` of an array with `width` rows; the others are zero."""
    out = np.zeros((width, *rows.shape[1:]), np.float32)
    out[lanes] = rows
    return out
