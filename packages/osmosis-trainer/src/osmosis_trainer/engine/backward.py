"""The Qwen3 decoder with its hand-derived backward pass, over packs of sequences.

Runs on the same fused matrices that sampling runs on (`engine.weights`): norms and the softmax scale are folded in, a
LoRA adapter too, so trainer and sampler compute the same function. Gradients are those of the fused matrices; what
they mean for an adapter is `engine.lora`'s. The arithmetic's type is the weights': float32, float64 in a test.
"""

from __future__ import annotations

from dataclasses import dataclass

from osmosis_trainer.engine.arrays import np
from osmosis_trainer.engine.packing import Block, Pack, Rows
from osmosis_trainer.engine.sampling import SamplingParams
from osmosis_trainer.engine.weights import Array, LayerWeights, ModelShape, SamplingWeights

# Scores within this bound need no maximum taken off before exp: neither they nor a sum of them leaves float32's range.
_SAFE_SCORE = 60.0
# What the head may hold of probabilities, and attention of one layer's, before they are recomputed instead (elements).
_KEEP_PROBABILITIES = 4 << 20
_KEEP_SCORES = 4 << 20
_HEAD_CHUNK = 1 << 20


@dataclass(slots=True)
class LayerGradient:
    """Derivatives of a loss by one layer's fused matrices; shapes as in `LayerWeights`."""

    qkv: Array
    out: Array
    gate_up: Array
    down: Array


def zero_gradients(weights: SamplingWeights) -> list[LayerGradient]:
    """Where `TrainingDecoder.backward` adds up."""
    return [
        LayerGradient(*(np.zeros_like(getattr(layer, name)) for name in ("qkv", "out", "gate_up", "down")))
        for layer in weights.layers
    ]


@dataclass(slots=True)
class _Attention:
    """What attention's backward pass needs: rotated queries, keys, values by head, results, and scores if kept."""

    queries: Array  # [M, heads, hd], scaled
    keys: Array  # [kv_heads, N, hd]
    values: Array  # [kv_heads, N, hd]
    mixed: Array  # [M, heads * hd]
    scores: list[tuple[Array, Array]] | None  # per block: exp(scores), and their sums


@dataclass(slots=True)
class _Layer:
    """Activations of one layer; N rows go in, M rows (those asked for) come out."""

    rows: Rows
    normed: Array  # [N, d]
    scale: Array  # [N, 1]
    query: Array  # [M, heads, hd], normed, not rotated
    query_scale: Array
    key: Array  # [N, kv_heads, hd], normed, not rotated
    key_scale: Array
    attention: _Attention
    blocks: list[Block]
    mid_normed: Array  # [M, d]
    mid_scale: Array
    gate_up: Array  # [M, 2 ff]
    sigmoid: Array  # [M, ff]
    activated: Array  # [M, ff]


@dataclass(slots=True)
class Activations:
    """A forward pass, kept for its backward pass.

    Attributes:
        logprobs: Of each trained token [K], in the pack's order.
        entropy: Of the distribution each trained token was predicted with [K].
    """

    pack: Pack
    rope: Array  # [2, N, 1, 2, half]
    layers: list[_Layer]
    normed: Array  # [M, d]
    scale: Array
    probabilities: Array | None  # [M, V]
    logprobs: Array
    entropy: Array


class TrainingDecoder:
    """The arithmetic of one model shape: log-probabilities of trained tokens, and gradients of the fused matrices.

    Args:
        shape: Sizes of the model.
        context: Longest sequence.
    """

    def __init__(self, shape: ModelShape, context: int) -> None:
        self.shape = shape
        half = shape.head_dim // 2
        angles = np.arange(context)[:, None] * shape.rope_theta ** -(np.arange(half) / half)
        # [2, context, 1, 2, half]: cosine and sine, halves side by side; the sine carries rotate-half's sign
        self._rope = np.stack(
            [
                np.stack([np.cos(angles), np.cos(angles)], 1)[:, None],
                np.stack([-np.sin(angles), np.sin(angles)], 1)[:, None],
            ]
        )

    def activation_bytes(self) -> int:
        """About how much a forward pass keeps for each token, in float32."""
        s = self.shape
        heads = (2 * s.num_attention_heads + 3 * s.num_key_value_heads) * s.head_dim + s.num_attention_heads * 128
        return 4 * s.num_hidden_layers * (3 * s.hidden_size + heads + 4 * s.intermediate_size)

    def forward(self, weights: SamplingWeights, pack: Pack, sampling: SamplingParams) -> Activations:
        """Run the decoder and read off the trained tokens' log-probabilities under the processed distribution."""
        x = weights.embedding[pack.tokens]
        rope = self._rope[:, pack.positions].astype(x.dtype)
        layers = []
        for index, layer in enumerate(weights.layers):
            last = index == len(weights.layers) - 1
            rows: Rows = pack.predicting if last else slice(None)
            x, saved = self._layer(layer, x, rope, rows, pack.predicting_blocks if last else pack.blocks)
            layers.append(saved)
        normed, scale = self._norm(x)
        logprobs, entropy, probabilities = self._head(weights, normed, pack, sampling)
        return Activations(pack, rope, layers, normed, scale, probabilities, logprobs, entropy)

    def backward(
        self,
        weights: SamplingWeights,
        forward: Activations,
        coefficients: Array,
        sampling: SamplingParams,
        into: list[LayerGradient],
    ) -> None:
        """Add the gradients of a loss to `into`.

        Args:
            weights: What the forward pass ran with.
            forward: Its result; used up.
            coefficients: Derivative of the loss by each trained token's log-probability [K].
            sampling: As in the forward pass.
            into: From `zero_gradients`.
        """
        coefficients = coefficients.astype(weights.embedding.dtype)
        dx = self._head_backward(weights, forward, coefficients, sampling)
        for layer, gradient in zip(reversed(weights.layers), reversed(into), strict=True):
            dx = self._layer_backward(layer, forward.layers.pop(), forward.rope, dx, gradient)

    # -- the head ---------------------------------------------------------------------------------------------------

    def _head(
        self, weights: SamplingWeights, normed: Array, pack: Pack, sampling: SamplingParams
    ) -> tuple[Array, Array, Array | None]:
        vocab = weights.head.shape[1]
        keep = len(normed) * vocab <= _KEEP_PROBABILITIES
        probabilities = np.empty((len(normed), vocab), normed.dtype) if keep else None
        logprobs, entropy = np.empty((2, len(pack.targets)), normed.dtype)
        for lo, hi, a, b in self._head_chunks(len(normed), vocab, pack):
            logits, exped, total = _distribution(normed[lo:hi] @ weights.head, pack, (lo, a, b), sampling)
            predictor, log_total = pack.predictor[a:b] - lo, np.log(total)
            logprobs[a:b] = logits[predictor, pack.targets[a:b]] - log_total[predictor, 0]
            # exp(-inf) is 0, but 0 * -inf is no number: filtered tokens count as 0
            expected = np.einsum("mv,mv->m", exped, logits if not sampling.filters else np.maximum(logits, -1e30))
            entropy[a:b] = (log_total[:, 0] - expected / total[:, 0])[predictor]
            if probabilities is not None:
                np.divide(exped, total, out=probabilities[lo:hi])
        return logprobs, entropy, probabilities

    def _head_backward(
        self, weights: SamplingWeights, forward: Activations, coefficients: Array, sampling: SamplingParams
    ) -> Array:
        pack, normed, vocab = forward.pack, forward.normed, weights.head.shape[1]
        d_normed = np.empty_like(normed)
        for lo, hi, a, b in self._head_chunks(len(normed), vocab, pack):
            if forward.probabilities is not None:
                d_logits = forward.probabilities[lo:hi]
            else:
                _, exped, total = _distribution(normed[lo:hi] @ weights.head, pack, (lo, a, b), sampling)
                d_logits = np.divide(exped, total, out=exped)
            # d logprob / d logits = one-hot - probabilities; several tokens may be predicted by one row
            predictor = pack.predictor[a:b] - lo
            d_logits *= -np.bincount(predictor, coefficients[a:b], hi - lo).astype(normed.dtype)[:, None]
            np.add.at(d_logits, (predictor, pack.targets[a:b]), coefficients[a:b])
            d_normed[lo:hi] = d_logits @ weights.head.T
        if sampling.temperature != 1:
            d_normed /= sampling.temperature
        forward.probabilities = None
        return _norm_backward(d_normed, normed, forward.scale)

    @staticmethod
    def _head_chunks(rows: int, vocab: int, pack: Pack) -> list[tuple[int, int, int, int]]:
        """Rows lo to hi, and the trained tokens a to b that they predict."""
        step = max(1, _HEAD_CHUNK // vocab)
        edges = [*range(0, rows, step), rows]
        tokens = np.searchsorted(pack.predictor, edges)
        return [
            (lo, hi, int(a), int(b))
            for lo, hi, a, b in zip(edges, edges[1:], tokens, tokens[1:], strict=False)
            if hi > lo
        ]

    # -- one layer --------------------------------------------------------------------------------------------------

    def _layer(self, w: LayerWeights, x: Array, rope: Array, rows: Rows, blocks: list[Block]) -> tuple[Array, _Layer]:
        shape, hd = self.shape, self.shape.head_dim
        query_width = shape.num_attention_heads * hd
        normed, scale = self._norm(x)
        q = (normed[rows] @ w.qkv[:, :query_width]).reshape(-1, shape.num_attention_heads, hd)
        kv = (normed @ w.qkv[:, query_width:]).reshape(len(x), 2, shape.num_key_value_heads, hd)
        query, query_scale = self._norm(q)
        key, key_scale = self._norm(kv[:, 0])
        attention = _attend(
            _rotate(query, *_tables(rope[:, rows], w.q_norm)),
            _by_head(_rotate(key, *_tables(rope, w.k_norm))),
            _by_head(kv[:, 1]),
            blocks,
        )
        x = x[rows] + attention.mixed @ w.out
        mid_normed, mid_scale = self._norm(x)
        gate_up = mid_normed @ w.gate_up
        gate, up = gate_up[:, : shape.intermediate_size], gate_up[:, shape.intermediate_size :]
        with np.errstate(over="ignore"):  # exp overflows to inf, which gives the right 0
            sigmoid = np.exp(-gate)
        sigmoid += 1
        np.reciprocal(sigmoid, out=sigmoid)
        activated = gate * sigmoid
        activated *= up
        x += activated @ w.down
        saved = _Layer(
            rows, normed, scale, query, query_scale, key, key_scale, attention, blocks,
            mid_normed, mid_scale, gate_up, sigmoid, activated,
        )  # fmt: skip
        return x, saved

    def _layer_backward(self, w: LayerWeights, s: _Layer, rope: Array, dx: Array, gradient: LayerGradient) -> Array:
        """From the derivative by a layer's output [M, d] to that by its input [N, d]."""
        shape = self.shape
        ff, query_width = shape.intermediate_size, shape.num_attention_heads * shape.head_dim
        # the gated feed-forward: activated = gate * sigmoid(gate) * up
        gradient.down += s.activated.T @ dx
        d_activated = dx @ w.down.T
        gate, up = s.gate_up[:, :ff], s.gate_up[:, ff:]
        silu = gate * s.sigmoid
        d_gate_up = np.empty_like(s.gate_up)
        np.multiply(d_activated, silu, out=d_gate_up[:, ff:])
        # d silu / d gate = sigmoid + silu * (1 - sigmoid)
        silu *= 1 - s.sigmoid
        silu += s.sigmoid
        silu *= up
        np.multiply(d_activated, silu, out=d_gate_up[:, :ff])
        gradient.gate_up += s.mid_normed.T @ d_gate_up
        dx = dx + _norm_backward(d_gate_up @ w.gate_up.T, s.mid_normed, s.mid_scale)
        # attention
        gradient.out += s.attention.mixed.T @ dx
        d_query, d_key, d_value = _attend_backward(s.attention, dx @ w.out.T, s.blocks)
        d_query = _rotate_backward(d_query, *_tables(rope[:, s.rows], w.q_norm))
        d_query = _norm_backward(d_query, s.query, s.query_scale).reshape(len(dx), -1)
        d_key = _rotate_backward(d_key.transpose(1, 0, 2), *_tables(rope, w.k_norm))
        d_key_value = np.empty((len(s.normed), 2, *d_key.shape[1:]), dx.dtype)
        d_key_value[:, 0] = _norm_backward(d_key, s.key, s.key_scale)
        d_key_value[:, 1] = d_value.transpose(1, 0, 2)
        d_key_value = d_key_value.reshape(len(s.normed), -1)
        gradient.qkv[:, :query_width] += s.normed[s.rows].T @ d_query
        gradient.qkv[:, query_width:] += s.normed.T @ d_key_value
        d_normed = d_key_value @ w.qkv[:, query_width:].T
        d_normed[s.rows] += d_query @ w.qkv[:, :query_width].T
        d_input = _norm_backward(d_normed, s.normed, s.scale)
        d_input[s.rows] += dx
        return d_input

    def _norm(self, x: Array) -> tuple[Array, Array]:
        """Scale the last axis to unit root mean square; the result and the factors [..., 1]."""
        mean = np.einsum("...i,...i->...", x, x) / x.shape[-1]
        scale = (1 / np.sqrt(mean + self.shape.rms_norm_eps)).astype(x.dtype)[..., None]
        return x * scale, scale


def _norm_backward(d_normed: Array, normed: Array, scale: Array) -> Array:
    """Derivative by x of normed = scale(x) * x: scale * (d - normed * mean(d * normed))."""
    mean = np.einsum("...i,...i->...", d_normed, normed)[..., None] / normed.shape[-1]
    result = normed * mean
    np.subtract(d_normed, result, out=result)
    result *= scale
    return result


def _tables(rope: Array, norm: Array) -> tuple[Array, Array]:
    """Cosine and sine [N, 1, 2, half] with a learned scale folded in, for halves that trade places."""
    halves = norm.reshape(2, -1)
    return rope[0] * halves, rope[1] * halves[::-1]


def _rotate(x: Array, cos: Array, sin: Array) -> Array:
    halves = x.reshape(*x.shape[:-1], 2, -1)
    result = halves * cos
    result += halves[..., ::-1, :] * sin
    return result.reshape(x.shape)


def _rotate_backward(d: Array, cos: Array, sin: Array) -> Array:
    halves = d.reshape(*d.shape[:-1], 2, -1)
    result = halves * cos
    result += (halves * sin)[..., ::-1, :]
    return result.reshape(d.shape)


def _by_head(x: Array) -> Array:
    return np.ascontiguousarray(x.transpose(1, 0, 2))


def _grouped(x: Array, kv_heads: int) -> Array:
    """[n, heads, hd] to [kv_heads, group * n, hd]: the heads that share keys share one product."""
    n, heads, hd = x.shape
    return x.reshape(n, kv_heads, heads // kv_heads, hd).transpose(1, 2, 0, 3).reshape(kv_heads, -1, hd)


def _ungrouped(x: Array, n: int) -> Array:
    kv_heads, _, hd = x.shape
    return x.reshape(kv_heads, -1, n, hd).transpose(2, 0, 1, 3).reshape(n, -1, hd)


def _attend(queries: Array, keys: Array, values: Array, blocks: list[Block]) -> _Attention:
    """Causal softmax attention, block by block."""
    elements = queries.shape[1] * sum(block.future.shape[0] * _count(block.keys) for block in blocks)
    kept: list[tuple[Array, Array]] | None = [] if elements <= _KEEP_SCORES else None
    mixed = np.empty_like(queries)
    for block in blocks:
        q, v = _grouped(queries[block.queries], len(keys)), values[:, block.keys]
        exped, total = _scores(q, keys[:, block.keys], block.future)
        result = exped @ v
        result /= total
        mixed[block.queries] = _ungrouped(result, len(block.future))
        if kept is not None:
            kept.append((exped, total))
    return _Attention(queries, keys, values, mixed.reshape(len(mixed), -1), kept)


def _attend_backward(s: _Attention, d_mixed: Array, blocks: list[Block]) -> tuple[Array, Array, Array]:
    """Derivatives by rotated queries [M, heads, hd], keys and values [kv_heads, N, hd].

    With p = e / z and o = p v: d scores = p * (d_o v^T - sum(d_o * o)) (the row sum as in FlashAttention, arXiv
    2205.14135, appendix B.4); 1 / z is put on d_o, the smaller side.
    """
    d_mixed = d_mixed.reshape(s.queries.shape)
    mixed = s.mixed.reshape(s.queries.shape)
    d_queries = np.empty_like(s.queries)
    d_keys, d_values = np.zeros_like(s.keys), np.zeros_like(s.values)
    for index, block in enumerate(blocks):
        q, k, v = _grouped(s.queries[block.queries], len(s.keys)), s.keys[:, block.keys], s.values[:, block.keys]
        exped, total = s.scores[index] if s.scores is not None else _scores(q, k, block.future)
        d = _grouped(d_mixed[block.queries], len(s.keys))
        d /= total
        row = np.einsum("kqi,kqi->kq", d, _grouped(mixed[block.queries], len(s.keys)))[..., None]
        d_values[:, block.keys] += exped.swapaxes(-1, -2) @ d
        d_scores = d @ v.swapaxes(-1, -2)
        d_scores -= row
        d_scores *= exped
        d_queries[block.queries] = _ungrouped(d_scores @ k, len(block.future))
        d_keys[:, block.keys] += d_scores.swapaxes(-1, -2) @ q
    return d_queries, d_keys, d_values


def _scores(q: Array, k: Array, future: Array) -> tuple[Array, Array]:
    """exp(scores) [kv_heads, group * n, keys] and their sums [..., 1]; hidden keys are 0."""
    scores = q @ k.swapaxes(-1, -2)
    by_query = scores.reshape(len(q), -1, *future.shape[:1], k.shape[1])
    by_query[..., -future.shape[1] :] += future
    longest = np.sqrt(np.einsum("kqi,kqi->kq", q, q).max() * np.einsum("kti,kti->kt", k, k).max())
    if not longest < _SAFE_SCORE:  # Cauchy-Schwarz: no score is larger than this
        scores -= scores.max(-1, keepdims=True)
    np.exp(scores, out=scores)
    return scores, scores.sum(-1, keepdims=True)


def _count(rows: Rows) -> int:
    return rows.stop - rows.start if isinstance(rows, slice) else len(rows)


def _distribution(
    logits: Array, pack: Pack, chunk: tuple[int, int, int], sampling: SamplingParams
) -> tuple[Array, Array, Array]:
    """Process logits as the sampler does: shifted logits, exp of them, sums [..., 1]; dropped tokens are -inf.

    Rows are those from `chunk[0]` on, and `chunk[1:]` the range of trained tokens that they predict: a drawn token is
    never dropped, however its probability has moved since.
    """
    if sampling.temperature != 1:
        logits /= sampling.temperature
    logits -= logits.max(-1, keepdims=True)
    exped = np.exp(logits)
    if sampling.filters:
        first, a, b = chunk
        kept = _kept(exped, sampling)
        kept[pack.predictor[a:b] - first, pack.targets[a:b]] = True
        logits[~kept] = -np.inf
        exped[~kept] = 0
    return logits, exped, exped.sum(-1, keepdims=True)


def _kept(exped: Array, sampling: SamplingParams) -> Array:
    """Mark, row by row, what `sampling.draw` keeps: min-p, then top-k, then top-p among what is left."""
    kept = exped >= sampling.min_p
    if sampling.top_k and sampling.top_k < exped.shape[-1]:
        kept &= exped >= np.partition(exped, -sampling.top_k, -1)[:, -sampling.top_k, None]
    if sampling.top_p < 1:
        ordered = np.sort(np.where(kept, exped, 0), -1)[:, ::-1]
        cumulative = np.cumsum(ordered, -1, dtype=np.float64)
        last = (cumulative < sampling.top_p * cumulative[:, -1:]).sum(-1)
        kept &= exped >= np.take_along_axis(ordered, last[:, None], -1)
    return kept
