"""Losses: values by hand, gradients by finite differences, normalisation, clipping, metrics."""

from dataclasses import replace

import pytest
from osmosis_ai.errors import ValidationError
from osmosis_trainer.datum import Datum
from osmosis_trainer.engine.arrays import np
from osmosis_trainer.engine.sampling import SamplingParams
from osmosis_trainer.losses import LOSSES, LossConfig, TokenBatch, loss_metrics, per_token, surrogate, token_batch


def batch_of(sampler, advantages, datum=None):
    sampler = np.array(sampler, float)
    return TokenBatch(
        sampler,
        np.array(advantages, float),
        np.ones(len(sampler)),
        np.zeros(len(sampler), int) if datum is None else np.array(datum),
    )


def random_batch(seed=0, n=40):
    rng = np.random.default_rng(seed)
    batch = TokenBatch(rng.normal(-2, 1, n), rng.normal(size=n), rng.random(n), np.sort(rng.integers(0, 5, n)))
    return batch, batch.sampler + rng.normal(0, 0.3, n)


def datum(trained, advantage=1.0, rollout="", weights=None):
    n = len(trained)
    return Datum(range(n), trained, [advantage] * n, [-1.0] * n, weights, rollout)


def test_importance_sampling_weighs_advantages_by_the_ratio():
    value, gradient = surrogate(
        np.log([0.5, 0.2]), batch_of(np.log([0.25, 0.4]), [2.0, -1.0]), LossConfig("importance_sampling")
    )
    assert value == pytest.approx(-(2 * 2.0 + 0.5 * -1.0))
    assert gradient == pytest.approx([-4.0, 0.5])


def test_ppo_stops_at_the_bound_on_the_side_that_would_gain():
    config = LossConfig("ppo", clip_low=0.2, clip_high=0.28)
    ratios = np.array([2.0, 2.0, 0.5, 0.5, 1.1])
    value, gradient = surrogate(np.log(ratios), batch_of(np.zeros(5), [1, -1, 1, -1, 1]), config)
    assert value == pytest.approx(-(1.28 - 2.0 + 0.5 - 0.8 + 1.1))
    assert gradient == pytest.approx([0, 2.0, -0.5, 0, -1.1])


def test_cispo_keeps_the_gradient_of_clipped_tokens():
    config = LossConfig("cispo", clip_low=1.0, clip_high=1.0)
    _, gradient = surrogate(np.log([10.0, 0.1]), batch_of(np.zeros(2), [1.0, -1.0]), config)
    assert gradient == pytest.approx([-2.0, 0.1])


def test_gspo_clips_whole_sequences_by_their_mean_log_ratio():
    config = LossConfig("gspo", clip_low=0.1, clip_high=0.1)
    # the first sequence's ratios are far apart but even out; the second one's mean is beyond the bound
    trainer = np.array([0.5, -0.5, 0.4, 0.4])
    value, gradient = surrogate(trainer, batch_of(np.zeros(4), [1, 1, 1, 1], [0, 0, 1, 1]), config)
    assert value == pytest.approx(-(1 + 1 + 1.1 + 1.1))
    assert gradient == pytest.approx([-1, -1, 0, 0])


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("masked", [False, True])
def test_gradients_agree_with_finite_differences(name, masked):
    batch, trainer = random_batch()
    config = LossConfig(
        name, clip_low=0.1, clip_high=0.15, keep_low=0.7 if masked else None, keep_high=1.5 if masked else None
    )
    _, gradient = surrogate(trainer, batch, config)
    for index in range(len(batch)):
        step = np.zeros(len(batch))
        step[index] = 1e-6
        difference = surrogate(trainer + step, batch, config)[0] - surrogate(trainer - step, batch, config)[0]
        expected = difference / 2e-6
        if name == "cispo":  # the weight is detached: what moves is the log-likelihood alone
            ratio = np.clip(np.exp(trainer[index] - batch.sampler[index]), 0.9, 1.15)
            plain = np.exp(trainer[index] - batch.sampler[index])
            kept = not masked or 0.7 <= plain <= 1.5
            expected = -batch.weights[index] * ratio * batch.advantages[index] * kept
        assert gradient[index] == pytest.approx(expected, abs=1e-6)


def test_on_policy_losses_all_have_the_policy_gradient():
    batch, _ = random_batch()
    batch = replace(batch, datum=np.arange(len(batch)))  # one token a sequence, so that gspo agrees too
    for name in LOSSES:
        _, gradient = surrogate(batch.sampler, batch, LossConfig(name))
        assert gradient == pytest.approx(-batch.weights * batch.advantages)


def test_tokens_far_off_policy_learn_nothing_when_masked():
    config = LossConfig("importance_sampling", keep_low=0.5, keep_high=2.0)
    _, gradient = surrogate(np.log([0.4, 1.0, 2.5]), batch_of(np.zeros(3), [1, 1, 1]), config)
    assert gradient == pytest.approx([0, -1, 0])
    metrics = loss_metrics(np.log([0.4, 1.0, 2.5]), np.ones(3), batch_of(np.zeros(3), [1, 1, 1]), config)
    assert metrics["masked_fraction"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("normalisation", "expected"),
    [
        pytest.param("sum", [1] * 7, id="sum: the caller has folded it in"),
        pytest.param("token_mean", [1 / 7] * 7, id="token mean: long rollouts weigh more"),
        pytest.param("rollout_mean", [1 / 12] * 4 + [1 / 6] * 2 + [1 / 3], id="rollout mean"),
        pytest.param("constant", [1 / 30] * 7, id="constant: length does not matter"),
    ],
)
def test_normalisation_is_folded_into_the_weights(normalisation, expected):
    datums = [
        datum([False, True, True], rollout="a"),  # two rows of one rollout share its mean
        datum([False, True, False, True], rollout="a"),
        datum([False, True, True], rollout="b"),
        datum([False, True], rollout="c"),
        datum([False, False], rollout="d"),  # nothing trained: counts nowhere
    ]
    batch = token_batch(datums, LossConfig(normalisation=normalisation, constant_length=10))
    assert batch.weights == pytest.approx(expected)


def test_a_callers_weights_multiply_the_normalised_ones():
    batch = token_batch([datum([False, True, True], weights=[9, 2, 3])], LossConfig())
    assert batch.weights == pytest.approx([1.0, 1.5])


def test_nameless_datums_are_rollouts_of_their_own():
    batch = token_batch([datum([False, True, True]), datum([False, True])], LossConfig(normalisation="rollout_mean"))
    assert batch.weights == pytest.approx([0.25, 0.25, 0.5])


def test_metrics_say_how_far_trainer_and_sampler_are_apart():
    batch = batch_of(np.log([0.5, 0.5, 0.5]), [1.0, 1.0, -1.0])
    trainer = np.log([0.5, 0.75, 0.25])
    metrics = loss_metrics(trainer, np.array([1.0, 2.0, 3.0]), batch, LossConfig("ppo"))
    assert metrics["tokens"] == 3
    assert metrics["entropy"] == pytest.approx(2.0)
    assert metrics["ratio_max"] == pytest.approx(1.5)
    assert metrics["ratio_min"] == pytest.approx(0.5)
    assert metrics["clip_high_fraction"] == pytest.approx(1 / 3)
    assert metrics["clip_low_fraction"] == pytest.approx(1 / 3)
    assert metrics["logprob_gap_max"] == pytest.approx(np.log(2))
    assert metrics["kl_k3"] >= 0
    assert metrics["loss"] == pytest.approx(surrogate(trainer, batch, LossConfig("ppo"))[0])


def test_values_that_are_not_finite_name_their_datum():
    bad = Datum([1, 2, 3], [False, True, True], [1.0, 1.0, float("nan")], [-1.0] * 3, rollout="r7")
    with pytest.raises(ValidationError, match=r"datum 1 \(rollout 'r7'\) has advantages"):
        token_batch([datum([False, True]), bad], LossConfig())
    masked = Datum([1, 2, 3], [False, True, False], [1.0, 1.0, float("nan")], [0.0, -1.0, float("-inf")])
    assert len(token_batch([masked], LossConfig())) == 1


def test_results_go_back_to_where_their_tokens_stand():
    datums = [datum([False, True, False, True]), datum([False, False]), datum([False, True])]
    assert per_token(datums, np.array([-1.0, -2.0, -3.0])) == ((0, -1, 0, -2), (0, 0), (0, -3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "dpo"}, "importance_sampling, ppo, cispo, gspo"),
        ({"clip_low": 1.5}, "clip_low is 1.5"),
        ({"clip_high": -0.1}, "clip_high is -0.1"),
        ({"normalisation": "mean"}, "token_mean"),
        ({"constant_length": 0}, "at least 1"),
        ({"sampling": SamplingParams(temperature=0)}, "greedy"),
    ],
)
def test_wrong_options_are_refused_by_name(options, message):
    with pytest.raises(ValidationError, match=message):
        LossConfig(**options)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"trained": [False, True]}, "3 tokens but 2 trained"),
        ({"trained": [True, True, True]}, "token 0"),
        ({"weights": [1.0]}, "1 weights"),
        ({"tokens": [1], "trained": [False], "advantages": [0.0], "logprobs": [0.0]}, "at least two"),
    ],
)
def test_a_datum_that_cannot_be_is_refused(fields, message):
    whole = {"tokens": [1, 2, 3], "trained": [False, True, True], "advantages": [0.0] * 3, "logprobs": [0.0] * 3}
    with pytest.raises(ValueError, match=message):
        Datum(**(whole | fields))
