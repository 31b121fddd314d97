"""The hand-derived backward pass is the derivative of the forward pass: against finite differences and torch autograd."""

from dataclasses import replace

import pytest
from osmosis_trainer.engine import backward, packing
from osmosis_trainer.engine.arrays import np
from osmosis_trainer.engine.backward import LayerGradient, TrainingDecoder, zero_gradients
from osmosis_trainer.engine.lora import LoraLayout
from osmosis_trainer.engine.packing import TrainingSequence, packs
from osmosis_trainer.engine.protocol import LoraConfig
from osmosis_trainer.engine.sampling import SamplingParams, draw
from osmosis_trainer.engine.weights import LayerWeights, SamplingWeights, fuse

PLAIN = SamplingParams()


def doubled(weights: SamplingWeights) -> SamplingWeights:
    layers = tuple(
        LayerWeights(
            *(np.asarray(getattr(layer, n), np.float64) for n in ("qkv", "q_norm", "k_norm", "out", "gate_up", "down"))
        )
        for layer in weights.layers
    )
    return SamplingWeights(weights.embedding.astype(np.float64), layers, weights.head.astype(np.float64))


def sequences(vocab, trained_from=3):
    """Shared beginnings (one of them ends inside it), equal sequences, a stranger, nothing trained, gaps in the mask."""
    rng = np.random.default_rng(5)
    prompt = rng.integers(0, vocab, 20)
    bodies = [
        np.concatenate([prompt, rng.integers(0, vocab, 9)]),
        np.concatenate([prompt, rng.integers(0, vocab, 4)]),
        prompt.copy(),
        prompt.copy(),
        rng.integers(0, vocab, 13),
        rng.integers(0, vocab, 2),
        rng.integers(0, vocab, 7),
    ]
    result, at = [], 0
    for index, tokens in enumerate(bodies):
        trained = np.array([t for t in range(1, len(tokens)) if (t % 3 or t > 20) and index != 6])
        trained = trained.astype(np.int64)
        result.append(TrainingSequence(tokens, trained, np.arange(at, at + len(trained))))
        at += len(trained)
    return result, at


@pytest.fixture
def setting(tiny, tiny_parameters):
    layout = LoraLayout(tiny, LoraConfig(rank=3, alpha=5.0, seed=1), tiny_parameters)
    flat = layout.initial().astype(np.float64)
    flat += np.random.default_rng(2).normal(0, 0.1, len(flat))  # B is not zero
    return layout, doubled(fuse(tiny_parameters, tiny)), flat, TrainingDecoder(tiny, tiny.max_position_embeddings)


def logprobs(setting, seqs, count, sampling=PLAIN, budget=64, flat=None):
    layout, base, start, decoder = setting
    weights = layout.folded(base, start if flat is None else flat)
    out = np.zeros(count)
    for pack in packs(seqs, budget):
        out[pack.outputs] = decoder.forward(weights, pack, sampling).logprobs
    return out


def gradient(setting, seqs, coefficients, sampling=PLAIN, budget=64):
    layout, base, flat, decoder = setting
    weights = layout.folded(base, flat)
    into = zero_gradients(base)
    for pack in packs(seqs, budget):
        forward = decoder.forward(weights, pack, sampling)
        decoder.backward(weights, forward, coefficients[pack.outputs], sampling, into)
    return layout.gradient(into, flat)


def test_logprobs_of_packed_sequences_are_those_of_the_plain_definition(setting, tiny, tiny_parameters, fresh_logprobs):
    layout, _, flat, _ = setting
    seqs, count = sequences(tiny.vocab_size)
    found = logprobs(setting, seqs, count)
    merged = layout.merged(tiny_parameters, flat)
    for sequence in seqs:
        tokens = sequence.tokens.tolist()
        expected = np.array([0.0, *fresh_logprobs(merged, tiny, tokens[:1], tokens[1:])])[sequence.trained]
        assert np.abs(found[sequence.outputs] - expected).max(initial=0) < 1e-5  # float32 in fuse


@pytest.mark.parametrize(
    "sampling",
    [
        pytest.param(PLAIN, id="plain"),
        pytest.param(SamplingParams(temperature=0.7), id="temperature"),
        pytest.param(SamplingParams(temperature=1.3, top_p=0.8), id="temperature and top_p"),
        pytest.param(SamplingParams(top_k=7, min_p=0.01), id="top_k and min_p"),
    ],
)
def test_the_gradient_agrees_with_finite_differences(setting, tiny, sampling):
    seqs, count = sequences(tiny.vocab_size)
    flat = setting[2]
    rng = np.random.default_rng(11)
    coefficients = rng.normal(size=count)
    analytic = gradient(setting, seqs, coefficients, sampling)
    for _ in range(12):
        direction = rng.normal(size=len(flat))
        direction /= np.linalg.norm(direction)
        h = 1e-5
        difference = logprobs(setting, seqs, count, sampling, flat=flat + h * direction) - logprobs(
            setting, seqs, count, sampling, flat=flat - h * direction
        )
        assert analytic @ direction == pytest.approx(coefficients @ difference / (2 * h), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param({"num_hidden_layers": 1}, id="one layer, first and last"),
        pytest.param({"num_key_value_heads": 4}, id="a key head for each query head"),
        pytest.param({"num_key_value_heads": 1, "num_hidden_layers": 3}, id="one key head for all"),
        pytest.param({"head_dim": 2, "hidden_size": 5, "intermediate_size": 3}, id="odd sizes"),
    ],
)
def test_the_gradient_agrees_with_finite_differences_for_other_shapes(tiny, make_parameters, sizes):
    shape = replace(tiny, **sizes)
    parameters = make_parameters(shape, 3)
    layout = LoraLayout(shape, LoraConfig(rank=2), parameters)
    flat = layout.initial() + np.random.default_rng(1).normal(0, 0.1, layout.size)
    setting = layout, doubled(fuse(parameters, shape)), flat, TrainingDecoder(shape, 64)
    seqs, count = sequences(shape.vocab_size)
    rng = np.random.default_rng(2)
    coefficients = rng.normal(size=count)
    analytic = gradient(setting, seqs, coefficients)
    for _ in range(6):
        step = rng.normal(size=layout.size)
        step *= 1e-5 / np.linalg.norm(step)
        change = logprobs(setting, seqs, count, flat=flat + step) - logprobs(setting, seqs, count, flat=flat - step)
        assert 2 * analytic @ step == pytest.approx(coefficients @ change, rel=1e-5, abs=1e-11)


def test_every_parameter_of_an_adapter_has_its_own_derivative(setting, tiny):
    """One coordinate in each matrix: a wrong matrix cannot hide behind the others."""
    seqs, count = sequences(tiny.vocab_size)
    layout, _, flat, _ = setting
    coefficients = np.random.default_rng(3).normal(size=count)
    analytic = gradient(setting, seqs, coefficients)
    at = 0
    for name, (rows, columns) in layout.shapes.items():
        index = at + (rows * columns) // 2
        step = np.zeros(len(flat))
        step[index] = 1e-5
        difference = logprobs(setting, seqs, count, flat=flat + step) - logprobs(setting, seqs, count, flat=flat - step)
        expected = coefficients @ difference / 2e-5
        assert analytic[index] == pytest.approx(expected, rel=1e-4, abs=1e-6), name
        at += rows * columns


def test_neither_packing_nor_recomputing_changes_the_gradient(setting, tiny, monkeypatch):
    seqs, count = sequences(tiny.vocab_size)
    coefficients = np.random.default_rng(4).normal(size=count)
    expected = gradient(setting, seqs, coefficients)
    alone = gradient(setting, seqs, coefficients, budget=1)
    assert np.abs(alone - expected).max() < 1e-9
    monkeypatch.setattr(packing, "_BLOCK", 5)
    monkeypatch.setattr(backward, "_KEEP_SCORES", 0)
    monkeypatch.setattr(backward, "_KEEP_PROBABILITIES", 0)
    monkeypatch.setattr(backward, "_HEAD_CHUNK", 4 * tiny.vocab_size)
    monkeypatch.setattr(backward, "_SAFE_SCORE", 0.0)
    assert np.abs(gradient(setting, seqs, coefficients) - expected).max() < 1e-9


def test_shared_beginnings_are_computed_once(tiny):
    seqs, count = sequences(tiny.vocab_size)
    (pack,) = packs(seqs, 1000)
    inputs = {tuple(s.tokens[: s.trained[-1]].tolist()) for s in seqs if len(s.trained)}
    assert len(pack.tokens) < sum(len(t) for t in inputs)
    assert sorted(pack.outputs.tolist()) == list(range(count))


@pytest.mark.parametrize("params", [PLAIN, SamplingParams(0.8, top_p=0.7), SamplingParams(1.4, top_k=5, min_p=0.02)])
def test_trainer_logprobs_are_those_of_the_processed_distribution_the_sampler_drew_from(
    setting, tiny, tiny_parameters, fresh_logits, params
):
    layout, _, flat, _ = setting
    merged = layout.merged(tiny_parameters, flat)
    rng = np.random.default_rng(8)
    seqs, recorded = [], []
    for i in range(20):
        prompt = rng.integers(0, tiny.vocab_size, 6)
        logits = fresh_logits(merged, tiny, prompt.tolist())[-1:]
        token, logprob = draw(logits.copy(), [params], np.array([i], np.uint64), np.array([0]))
        seqs.append(TrainingSequence(np.append(prompt, token[0]), np.array([6]), np.array([i])))
        recorded.append(logprob[0])
    assert np.abs(logprobs(setting, seqs, 20, params) - recorded).max() < 1e-5


def test_a_drawn_token_that_the_filters_would_drop_now_still_has_a_logprob(setting, tiny):
    seqs, count = sequences(tiny.vocab_size)
    found = logprobs(setting, seqs, count, SamplingParams(top_k=1))
    assert np.isfinite(found).all()
    assert (found < 0).any()


def test_float32_stays_close_to_float64(tiny, tiny_parameters, setting):
    layout, _, flat, decoder = setting
    seqs, count = sequences(tiny.vocab_size)
    coefficients = np.random.default_rng(4).normal(size=count)
    expected = gradient(setting, seqs, coefficients)
    single = (layout, fuse(tiny_parameters, tiny), flat.astype(np.float32), decoder)
    found = gradient(single, seqs, coefficients)
    assert found.dtype == np.float32
    assert np.abs(found - expected).max() < 2e-5 * np.abs(expected).max()


def test_an_untouched_target_shares_its_weights_with_the_base(tiny, tiny_parameters):
    base = fuse(tiny_parameters, tiny)
    layout = LoraLayout(tiny, LoraConfig(rank=2, targets=("o_proj",)), tiny_parameters)
    weights = layout.folded(base, layout.initial())
    assert weights.layers[0].qkv is base.layers[0].qkv
    assert weights.layers[0].out is not base.layers[0].out
    assert [name.split(".")[-3] for name in layout.shapes] == ["o_proj"] * 4


def test_accumulated_gradients_add_up(setting, tiny):
    layout, base, flat, decoder = setting
    seqs, count = sequences(tiny.vocab_size)
    weights = layout.folded(base, flat)
    into: list[LayerGradient] = zero_gradients(base)
    for _ in range(2):
        for pack in packs(seqs, 64):
            decoder.backward(weights, decoder.forward(weights, pack, PLAIN), np.ones(len(pack.targets)), PLAIN, into)
    once = gradient(setting, seqs, np.ones(count))
    assert np.abs(layout.gradient(into, flat) - 2 * once).max() < 1e-9


@pytest.mark.parity
def test_the_gradient_is_torch_autograds(setting, tiny, tiny_parameters):
    torch = pytest.importorskip("torch")
    layout, _, flat, _ = setting
    seqs, count = sequences(tiny.vocab_size)
    coefficients = np.random.default_rng(6).normal(size=count)
    parameters = {name: torch.tensor(value, dtype=torch.float64) for name, value in tiny_parameters.items()}
    vector = torch.tensor(flat, requires_grad=True)
    views, at = {}, 0
    for name, (rows, columns) in layout.shapes.items():
        views[name] = vector[at : at + rows * columns].view(rows, columns)
        at += rows * columns
    for name in [n for n in views if n.endswith("lora_A.weight")]:
        target = name.removeprefix("base_model.model.").replace(".lora_A", "")
        delta = views[name.replace("lora_A", "lora_B")] @ views[name] * layout.config.scale
        parameters[target] = parameters[target] + delta
    loss = torch.zeros((), dtype=torch.float64)
    for sequence in seqs:
        table = torch.log_softmax(torch_logits(torch, parameters, tiny, torch.tensor(sequence.tokens)), -1)
        for position, output in zip(sequence.trained.tolist(), sequence.outputs.tolist(), strict=True):
            loss = loss + coefficients[output] * table[position - 1, sequence.tokens[position]]
    loss.backward()
    expected = vector.grad.numpy()
    found = gradient(setting, seqs, coefficients)
    assert np.abs(found - expected).max() < 1e-5 * np.abs(expected).max()


def torch_logits(torch, p, shape, ids):
    hd, heads, kv_heads = shape.head_dim, shape.num_attention_heads, shape.num_key_value_heads
    angles = torch.arange(len(ids))[:, None] * shape.rope_theta ** (
        -torch.arange(hd // 2, dtype=torch.float64) / (hd / 2)
    )
    cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)

    def norm(x, w):
        return x / (x.square().mean(-1, keepdim=True) + shape.rms_norm_eps).sqrt() * w

    def rotate(x):
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat((-b, a), -1) * sin

    x = p["model.embed_tokens.weight"][ids]
    for layer in range(shape.num_hidden_layers):
        w = {
            k.split(".", 3)[3].removesuffix(".weight"): v
            for k, v in p.items()
            if k.startswith(f"model.layers.{layer}.")
        }
        h = norm(x, w["input_layernorm"])
        q, k, v = (
            (h @ w[f"self_attn.{n}_proj"].T).view(len(ids), count, hd).transpose(0, 1)
            for n, count in (("q", heads), ("k", kv_heads), ("v", kv_heads))
        )
        q, k = rotate(norm(q, w["self_attn.q_norm"])), rotate(norm(k, w["self_attn.k_norm"]))
        attended = torch.nn.functional.scaled_dot_product_attention(
            q, k.repeat_interleave(heads // kv_heads, 0), v.repeat_interleave(heads // kv_heads, 0), is_causal=True
        )
        x = x + attended.transpose(0, 1).reshape(len(ids), -1) @ w["self_attn.o_proj"].T
        h = norm(x, w["post_attention_layernorm"])
        x = x + (torch.nn.functional.silu(h @ w["mlp.gate_proj"].T) * (h @ w["mlp.up_proj"].T)) @ w["mlp.down_proj"].T
    return norm(x, p["model.norm.weight"]) @ p["model.embed_tokens.weight"].T
