"""What a step and a validation pass are measured by: names, titles, and how they are computed. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from osmosis_trainer.loop.advantages import Signal
from osmosis_trainer.loop.rollouts import Sample


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of a step.

    Attributes:
        title: As a chart shows it.
        meaning: One sentence; says the unit.
    """

    title: str
    meaning: str


METRICS: Mapping[str, Metric] = {
    "training_reward": Metric("Training Reward", "Mean reward of the step's rollouts that have one."),
    "training_reward_std": Metric("Training Reward Spread", "Standard deviation of those rewards."),
    "validation_reward": Metric("Validation Reward", "Mean reward on rows never trained on."),
    "model_entropy": Metric("Model Entropy", "Mean entropy of the distributions trained tokens came from, nats."),
    "response_length": Metric("Response Length", "Mean tokens the policy drew in a rollout."),
    "response_length_max": Metric("Longest Response", "Most tokens the policy drew in a rollout."),
    "total_length": Metric("Total Length", "Mean tokens of a rollout's longest conversation, prompts included."),
    "truncation_ratio": Metric("Truncation Ratio", "Part of the rollouts an answer of which was cut by length."),
    "samples": Metric("Samples", "Rollouts of the step, refills included."),
    "samples_graded": Metric("Graded", "Rollouts with a reward."),
    "samples_skipped": Metric("Skipped", "Rollouts that said they have no reward."),
    "samples_long_prompt": Metric("Long Prompts", "Rollouts whose prompt is longer than max_prompt_length."),
    "samples_failed_agent": Metric("Agent Failures", "Rollouts whose agent failed."),
    "samples_failed_grader": Metric("Grader Failures", "Rollouts whose grader failed."),
    "samples_failed_infrastructure": Metric("Infrastructure Failures", "Rollouts lost through neither's doing."),
    "samples_stale": Metric("Stale", "Rollouts left out because their weights were too old."),
    "groups": Metric("Groups", "Groups of the step, refills included."),
    "groups_trained": Metric("Groups Trained", "Groups that had something to learn from."),
    "groups_without_signal": Metric("Groups Without Signal", "Groups whose rewards are all equal; they are left out."),
    "groups_too_small": Metric("Groups Too Small", "Groups with fewer than two rewards; they are left out."),
    "groups_refilled": Metric("Groups Refilled", "Groups drawn in place of such."),
    "turns": Metric("Turns", "Mean calls of a rollout."),
    "branches": Metric("Branches", "Mean conversations of a rollout that do not continue each other."),
    "unparsed_calls": Metric("Unparsed Calls", "Tool calls of the model's that could not be read, in the whole step."),
    "unfinished_thoughts": Metric(
        "Unfinished Thoughts", "Answers that ended while the model thought, in the whole step."
    ),
    "lost_calls": Metric("Lost Calls", "Calls that failed or were hung up, in the whole step."),
    "staleness": Metric("Staleness", "Mean age of the weights that drew the trained rollouts, steps."),
    "loss": Metric("Loss", "The loss that was minimised."),
    "tokens_trained": Metric("Trained Tokens", "Tokens the step learnt from."),
    "ratio_mean": Metric("Ratio", "Mean ratio of trainer to sampler probability."),
    "ratio_min": Metric("Smallest Ratio", "Smallest such ratio."),
    "ratio_max": Metric("Greatest Ratio", "Greatest such ratio."),
    "clip_low_fraction": Metric("Clipped Low", "Part of the tokens whose ratio was clipped from below."),
    "clip_high_fraction": Metric("Clipped High", "Part of the tokens whose ratio was clipped from above."),
    "masked_fraction": Metric("Masked", "Part of the tokens left out for their ratio."),
    "logprob_gap_max": Metric("Greatest Log-probability Gap", "Greatest difference of trainer and sampler, nats."),
    "logprob_gap_mean": Metric("Log-probability Gap", "Mean absolute difference of trainer and sampler, nats."),
    "kl_k1": Metric("KL (k1)", "Estimate of KL(sampler, trainer), nats a token."),
    "kl_k3": Metric("KL (k3)", "The same by an estimator that is never negative."),
    "grad_norm": Metric("Gradient Norm", "Length of the gradient before clipping."),
    "lr": Metric("Learning Rate", "Of the step."),
    "epoch": Metric("Epoch", "Passes over the rows that are complete."),
    "examples": Metric("Examples", "Rollouts since the training began."),
    "tokens_per_s": Metric("Tokens per Second", "Tokens drawn, by the seconds of the step's rollouts."),
    "rollout_s": Metric("Rollout Seconds", "Seconds until the step's rollouts were there."),
    "train_s": Metric("Training Seconds", "Seconds of forward, backward and optimiser."),
    "publish_s": Metric("Publishing Seconds", "Seconds until the new weights could be sampled from."),
    "waited_s": Metric("Waiting Seconds", "Seconds in which the step waited for its rollouts."),
    "save_s": Metric("Saving Seconds", "Seconds of the last state or checkpoint."),
    "loop_cpu_s": Metric("Loop CPU", "CPU seconds of the loop itself: order, advantages, datums, metrics, lines."),
    "validation_s": Metric("Validation Seconds", "Seconds of a validation pass, beside training."),
    "step_s": Metric("Step Seconds", "Seconds of the whole step."),
}
"""Every metric, by the name it has in metrics.jsonl. Numbers a grader adds come as `metric/<name>`."""

_PASSED_ON = (
    "loss", "ratio_mean", "ratio_min", "ratio_max", "clip_low_fraction", "clip_high_fraction", "masked_fraction",
    "logprob_gap_max", "logprob_gap_mean", "kl_k1", "kl_k3",
)  # fmt: skip


def sample_metrics(samples: Sequence[Sample]) -> dict[str, float]:
    """What rollouts alone say; `training_reward` is absent where no rollout has one."""
    rewards = [sample.reward for sample in samples if sample.reward is not None]
    answered = [sample for sample in samples if sample.tree.nodes]
    kinds = Counter(sample.kind for sample in samples)
    values: dict[str, float] = {
        "samples": float(len(samples)),
        "samples_graded": float(kinds["graded"]),
        "samples_skipped": float(kinds["skipped"]),
        "samples_long_prompt": float(kinds["long_prompt"]),
        "samples_failed_agent": float(kinds["agent"] + kinds["user"]),
        "samples_failed_grader": float(kinds["grader"]),
        "samples_failed_infrastructure": float(kinds["infrastructure"]),
        "unparsed_calls": float(sum(sample.notes.unparsed_calls for sample in samples)),
        "unfinished_thoughts": float(sum(sample.notes.unfinished_thoughts for sample in samples)),
        "lost_calls": float(sum(sample.tree.lost_calls for sample in samples)),
    }
    if rewards:
        values["training_reward"] = _mean(rewards)
        values["training_reward_std"] = math.sqrt(_mean([(r - values["training_reward"]) ** 2 for r in rewards]))
    if answered:
        lengths = [sample.tree.sampled_tokens for sample in answered]
        values |= {
            "response_length": _mean(lengths),
            "response_length_max": float(max(lengths)),
            "total_length": _mean([sample.tree.length for sample in answered]),
            "truncation_ratio": _mean([float(sample.tree.cut) for sample in answered]),
            "turns": _mean([len(sample.tree.nodes) for sample in answered]),
            "branches": _mean([len(sample.tree.branches) for sample in answered]),
        }
    names = sorted({name for sample in samples for name in sample.metrics})
    for name in names:
        values[f"metric/{name}"] = _mean([s.metrics[name] for s in samples if name in s.metrics])
    return values


def group_metrics(signals: Sequence[Signal], refilled: int) -> dict[str, float]:
    """What became of the groups."""
    counts = Counter(signals)
    return {
        "groups": float(len(signals)),
        "groups_trained": float(counts[Signal.YES]),
        "groups_without_signal": float(counts[Signal.NO_SPREAD]),
        "groups_too_small": float(counts[Signal.TOO_FEW]),
        "groups_refilled": float(refilled),
    }


def update_metrics(found: Mapping[str, float]) -> dict[str, float]:
    """What an engine's pass found, under our names."""
    values = {name: found[name] for name in _PASSED_ON if name in found}
    values["tokens_trained"] = found.get("tokens", 0.0)
    if "entropy" in found:
        values["model_entropy"] = found["entropy"]
    return values


def validation_metrics(samples: Sequence[Sample]) -> dict[str, float]:
    """What a validation pass says."""
    values = sample_metrics(samples)
    values.pop("training_reward_std", None)
    if "training_reward" in values:
        values["validation_reward"] = values.pop("training_reward")
    return values


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
