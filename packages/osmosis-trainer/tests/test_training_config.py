"""Options: all that is wrong is said at once, defaults are what the reference says, algorithms are what they are."""

from __future__ import annotations

from dataclasses import fields

import pytest
from osmosis_ai.errors import ValidationError
from osmosis_trainer.loop.config import ALGORITHMS, TrainingConfig, training_options


def test_every_option_is_a_field_with_the_same_default_and_says_what_it_means():
    options = {option.key: option for option in training_options()}
    assert options.keys() == {field.name for field in fields(TrainingConfig)}
    config = TrainingConfig()
    for key, option in options.items():
        assert getattr(config, key) == option.default
        assert option.doc.endswith(".") and len(option.doc) > 10


def test_everything_that_is_wrong_is_said_at_once_with_key_value_and_range():
    with pytest.raises(ValidationError) as caught:
        TrainingConfig(lr=-1.0, n_samples_per_prompt=1, lora_rank=0, staleness=99, algorithm="ppo", writers="wandb,csv")  # ty: ignore[invalid-argument-type]
    text = str(caught.value)
    for line in (
        "training.lr must be a number above 0",
        "training.n_samples_per_prompt must be an integer of 2 or more, got 1",
        "advanced.training.lora_rank must be an integer from 1 to 1024, got 0",
        "advanced.training.staleness must be an integer from 0 to 16, got 99",
        "advanced.training.algorithm must be one of grpo, dr_grpo, dapo, cispo, gspo, importance_sampling, got 'ppo'",
        "advanced.training.writers must be any of wandb, mlflow, tensorboard, trackio, separated by commas, got 'wandb,csv'",
    ):
        assert line in text


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_has_a_loss(algorithm):
    loss = TrainingConfig(algorithm=algorithm).loss
    assert loss.name in ("ppo", "cispo", "gspo", "importance_sampling")


def test_algorithms_differ_as_their_papers_do():
    grpo, dr, dapo = (TrainingConfig(algorithm=name) for name in ("grpo", "dr_grpo", "dapo"))  # ty: ignore[invalid-argument-type]
    assert grpo.loss.bounds == pytest.approx((0.8, 1.28))
    assert (dr.loss.normalisation, dr.loss.constant_length, dr.scales_by_std) == ("constant", 8192, False)
    assert (dapo.scales_by_std, dapo.masks_overlong, dapo.loss.normalisation) == (True, True, "token_mean")
    assert TrainingConfig(algorithm="dapo", std_scaling=False, overlong_masking=False).masks_overlong is False
    assert TrainingConfig(normalisation="rollout_mean").loss.normalisation == "rollout_mean"
    assert TrainingConfig(clip_high=0.5).loss.bounds == pytest.approx((0.8, 1.5))


def test_the_trainer_computes_the_distribution_that_was_sampled_from():
    sampling = TrainingConfig(rollout_temperature=0.7, rollout_top_p=0.9).loss.sampling
    assert (sampling.temperature, sampling.top_p) == (0.7, 0.9)


def test_the_learning_rate_warms_up_and_goes_down_to_its_floor():
    config = TrainingConfig(lr=1.0, lr_schedule="linear", lr_floor=0.1, warmup_steps=2)
    rates = [config.lr_at(step, 12) for step in range(12)]
    assert rates[:2] == pytest.approx([1 / 3, 2 / 3])
    assert rates[2] == 1.0 and rates[-1] == pytest.approx(0.1)
    assert rates[2:] == sorted(rates[2:], reverse=True)
    cosine = TrainingConfig(lr=1.0, lr_schedule="cosine")
    assert cosine.lr_at(0, 3) == 1.0 and cosine.lr_at(1, 3) == pytest.approx(0.5)
    assert TrainingConfig(lr=0.5).lr_at(7, 8) == 0.5


def test_a_tenth_is_held_out_where_validation_is_asked_for():
    assert TrainingConfig().held_out(1000) == 0
    assert TrainingConfig(eval_interval=5).held_out(40) == 4
    assert TrainingConfig(eval_interval=5).held_out(5000) == 64
    assert TrainingConfig(validation_rows=3).held_out(5000) == 3
