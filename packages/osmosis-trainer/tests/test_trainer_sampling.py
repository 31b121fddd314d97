"""Draws follow the processed distribution, report its log-probabilities, and depend on their key alone."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from osmosis_trainer.engine.arrays import np
from osmosis_trainer.engine.sampling import SamplingParams, draw, noise_key, uniforms


def processed(logits, p: SamplingParams):
    """The distribution by its textbook definition, one token after the other."""
    scaled = [x / p.temperature for x in logits]
    top = max(scaled)
    weights = [math.exp(x - top) for x in scaled]
    order = sorted(range(len(weights)), key=lambda i: -weights[i])
    kept = [i for i in order if weights[i] >= p.min_p]
    if p.top_k:
        kept = kept[: p.top_k]
    if p.top_p < 1:
        total, reached, nucleus = sum(weights[i] for i in kept), 0.0, []
        for i in kept:
            nucleus.append(i)
            reached += weights[i] / total
            if reached > p.top_p:
                break
        kept = nucleus
    total = sum(weights[i] for i in kept)
    return {i: weights[i] / total for i in kept}


def draw_many(logits, params, count, seed=0):
    keys = np.array([noise_key(seed, i) for i in range(count)], np.uint64)
    table = np.tile(np.array(logits, np.float32), (count, 1))
    return draw(table, [params] * count, keys, np.zeros(count, np.int64))


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(),
        SamplingParams(temperature=0.5),
        SamplingParams(temperature=2.0, top_k=3),
        SamplingParams(top_p=0.8),
        SamplingParams(min_p=0.2),
        SamplingParams(temperature=1.3, top_k=5, top_p=0.9, min_p=0.05),
    ],
    ids=str,
)
def test_frequencies_and_logprobs_are_those_of_the_processed_distribution(params):
    logits = [2.0, 1.5, 0.3, -0.2, -1.0, 1.1, -4.0]
    expected = processed(logits, params)
    tokens, logprobs = draw_many(logits, params, 20_000)
    assert set(tokens.tolist()) <= set(expected)
    for token, probability in expected.items():
        frequency = (tokens == token).mean()
        assert abs(frequency - probability) < 4 * math.sqrt(probability / 20_000)
        assert logprobs[tokens == token] == pytest.approx(math.log(probability), abs=1e-5)


def test_greedy_takes_the_likeliest_token_of_a_one_point_distribution():
    tokens, logprobs = draw_many([0.1, 3.0, 2.9], SamplingParams(temperature=0.0), 5)
    assert tokens.tolist() == [1] * 5 and logprobs.tolist() == [0.0] * 5


def test_rows_with_different_parameters_share_a_batch():
    logits = np.array([[0.0, 1.0, 5.0]] * 3, np.float32)
    params = [SamplingParams(temperature=0.0), SamplingParams(top_k=1), SamplingParams(temperature=50.0)]
    tokens, logprobs = draw(logits, params, np.array([1, 2, 3], np.uint64), np.zeros(3, np.int64))
    assert tokens[:2].tolist() == [2, 2]
    assert logprobs[1] == pytest.approx(0.0, abs=1e-6)
    assert logprobs[2] < -0.5


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.floats(-30, 30), min_size=2, max_size=40),
    st.floats(0.05, 5),
    st.integers(0, 10),
    st.floats(0.0, 1.0),
    st.floats(0.0, 1.0),
    st.integers(0, 2**64 - 1),
)
def test_any_draw_is_a_possible_token_with_a_finite_logprob(logits, temperature, top_k, top_p, min_p, key):
    params = SamplingParams(temperature, top_k, top_p, min_p)
    tokens, logprobs = draw(np.array([logits], np.float32), [params], np.array([key], np.uint64), np.array([0]))
    assert 0 <= tokens[0] < len(logits)
    assert np.isfinite(logprobs[0]) and logprobs[0] <= 1e-5


def test_a_draw_does_not_depend_on_its_neighbours_in_the_batch():
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2, (8, 100)).astype(np.float32)
    keys = np.array([noise_key("call", i) for i in range(8)], np.uint64)
    positions = np.arange(8)
    together, _ = draw(logits.copy(), [SamplingParams()] * 8, keys, positions)
    order = rng.permutation(8)
    shuffled, _ = draw(logits[order].copy(), [SamplingParams()] * 8, keys[order], positions[order])
    alone = [
        int(draw(logits[i : i + 1].copy(), [SamplingParams()], keys[i : i + 1], positions[i : i + 1])[0][0])
        for i in range(8)
    ]
    assert together.tolist() == alone
    assert shuffled.tolist() == together[order].tolist()


def test_noise_is_uniform_over_keys_and_over_positions():
    over_keys = uniforms(np.array([noise_key(i) for i in range(4000)], np.uint64), np.zeros(4000, np.int64))
    over_positions = uniforms(np.full(4000, noise_key("one call"), np.uint64), np.arange(4000))
    for sample in (over_keys, over_positions):
        assert 0 < sample.min() and sample.max() < 1
        counts, _ = np.histogram(sample, bins=20, range=(0, 1))
        assert ((counts - 200) ** 2 / 200).sum() < 50  # chi-square, 19 degrees of freedom: p about 1e-4
    assert abs(np.corrcoef(over_positions[:-1], over_positions[1:])[0, 1]) < 0.06
