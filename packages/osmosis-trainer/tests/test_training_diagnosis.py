"""Why nothing is learnt, in words; and which figures stop a training."""

from __future__ import annotations

import pytest
from osmosis_ai.evaluation.verdict import Failure, Fault, Outcome
from osmosis_trainer.loop.alarms import TrainingAlarm, check_finite, check_gap
from osmosis_trainer.loop.diagnosis import diagnose
from osmosis_trainer.loop.metrics import METRICS, group_metrics, sample_metrics, validation_metrics
from osmosis_trainer.loop.rollout_policy import RolloutNotes
from osmosis_trainer.loop.rollouts import Sample
from osmosis_trainer.tokens.tree import Node, TokenTree


def sample(reward: float | None = None, *, fault: Fault | None = None, cut: bool = False, **more) -> Sample:
    outcome = Outcome.GRADED if reward is not None else Outcome.FAILED if fault else Outcome.SKIPPED
    failure = Failure(fault, "x", "it broke.") if fault else None
    tree = TokenTree((Node(None, (1, 2), (3, 4), (-1.0, -1.0), "v1", cut, 0),))
    notes = RolloutNotes(more.pop("unparsed", 0), 0, more.pop("long_prompt", None))
    return Sample(0, "r", outcome, reward, failure, more.pop("tree", tree), notes, "v1", **more)


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        ([sample()] * 4, "All rollouts ended without a reward although nothing failed"),
        ([sample(fault=Fault.GRADER)] * 2, "All rollouts failed through the grader: it broke. Mend the grader."),
        ([sample(fault=Fault.AGENT), sample(1.0)], "1 of 2 rollouts failed through the agent: it broke"),
        ([sample(0.0, cut=True)] * 2, "raise max_response_length"),
        ([sample(0.0, unparsed=1)] * 2, "tool calls that cannot be read"),
        ([sample(0.0)] * 8, "All 8 rewards are 0, so no rollout is better than another: the task may be too hard"),
        ([sample(1.0)] * 8, "the task may be solved already"),
        ([sample(fault=Fault.AGENT, long_prompt=99, tree=TokenTree(()))] * 2, "longer than max_prompt_length"),
        ([sample(1.0, tree=TokenTree(()))] * 2, "without one answered call to the model"),
        ([], "No rollout was carried out."),
    ],
)
def test_the_reason_is_named_with_its_remedy(samples, words):
    assert any(words in reason for reason in diagnose([samples] if samples else []))


def test_flat_groups_of_different_rewards_are_named():
    reasons = diagnose([[sample(0.0)] * 2, [sample(1.0)] * 2])
    assert any("2 of 2 groups have one reward in all their rollouts" in reason for reason in reasons)


def test_absent_rewards_are_no_zeroes_in_the_mean():
    values = sample_metrics([sample(1.0), sample(0.5), sample(), sample(fault=Fault.INFRASTRUCTURE)])
    assert values["training_reward"] == 0.75
    assert (values["samples"], values["samples_graded"], values["samples_skipped"]) == (4, 2, 1)
    assert values["samples_failed_infrastructure"] == 1
    assert "training_reward" not in sample_metrics([sample()])


def test_lengths_count_what_the_model_drew_and_not_what_tools_and_users_said():
    second = Node(0, (9, 9, 9), (5,), (-1.0,), "v1", False, 1)
    first = Node(None, (1, 2), (3, 4), (-1.0, -1.0), "v1", False, 0)
    values = sample_metrics([sample(1.0, tree=TokenTree((first, second)))])
    assert (values["response_length"], values["total_length"], values["turns"]) == (3, 8, 2)


def test_every_metric_has_a_title_and_a_meaning():
    values = sample_metrics([sample(1.0, metrics={"speed": 2.0})]) | group_metrics([], 0)
    assert {name for name in values if not name.startswith("metric/")} <= METRICS.keys()
    assert values["metric/speed"] == 2.0
    assert all(metric.meaning.endswith(".") for metric in METRICS.values())
    assert validation_metrics([sample(1.0)])["validation_reward"] == 1.0


def test_what_is_not_finite_stops_the_training_by_name():
    check_finite(3, {"loss": 1.0})
    with pytest.raises(TrainingAlarm, match=r"Step 3 is not sound: loss is nan, grad_norm is inf\."):
        check_finite(3, {"loss": float("nan"), "grad_norm": float("inf"), "lr": 1.0})


def test_a_gap_between_trainer_and_sampler_stops_the_training():
    check_gap(1, {"logprob_gap_max": 9e-5}, filtered=False)
    with pytest.raises(TrainingAlarm, match=r"trainer and sampler disagree by 8\.40e"):
        check_gap(1, {"logprob_gap_max": 8.4}, filtered=False)
    with pytest.raises(TrainingAlarm):
        check_gap(1, {"logprob_gap_max": float("nan")}, filtered=False)
    # one token at the border of top_p may move the others a little; the mean tells
    check_gap(1, {"logprob_gap_max": 0.02, "logprob_gap_mean": 1e-5}, filtered=True)
