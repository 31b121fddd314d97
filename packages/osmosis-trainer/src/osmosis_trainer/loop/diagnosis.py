"""Why a training does not learn, in words, from what its rollouts were. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from osmosis_ai.evaluation.verdict import Outcome

from osmosis_trainer.loop.rollouts import Sample


def diagnose(groups: Sequence[Sequence[Sample]]) -> list[str]:
    """Say why groups without signal have none, the most telling reason first; empty where a group has one.

    Args:
        groups: The samples of each group, of one step or of several.
    """
    samples = [sample for group in groups for sample in group]
    if not samples:
        return ["No rollout was carried out."]
    reasons: list[str] = []
    total = len(samples)
    kinds = Counter(sample.kind for sample in samples)
    rewards = [sample.reward for sample in samples if sample.reward is not None]

    def part(count: int) -> str:
        return "All" if count == total else f"{count} of {total}"

    if kinds["skipped"]:
        reasons.append(
            f"{part(kinds['skipped'])} rollouts ended without a reward although nothing failed: the grader set none, or "
            "the agent removed its sample. Without a reward a rollout teaches nothing; call ctx.set_reward on every "
            "path through the grader."
        )
    if kinds["long_prompt"]:
        reasons.append(
            f"{part(kinds['long_prompt'])} rollouts have a prompt longer than max_prompt_length; raise it in [training], "
            "or shorten the rows."
        )
    for kind, who, remedy in (
        ("grader", "the grader", "Mend the grader"),
        ("agent", "the agent", "Mend the agent, or set agent_error_reward if such an end deserves a reward of its own"),
        ("infrastructure", "neither agent nor grader", "Look at logs.txt"),
        ("user", "the row", "Give each row a ground_truth or metadata"),
    ):
        if kinds[kind]:
            reasons.append(
                f"{part(kinds[kind])} rollouts failed through {who}: {_most_frequent(samples, kind)}. {remedy}."
            )
    cut = sum(sample.tree.cut for sample in samples)
    if cut * 2 > total:
        reasons.append(
            f"{part(cut)} rollouts had an answer cut off because it was as long as it may be; raise max_response_length "
            "in [training], or ask for shorter answers."
        )
    unparsed = sum(sample.notes.unparsed_calls > 0 for sample in samples)
    if unparsed * 2 > total:
        reasons.append(
            f"{part(unparsed)} rollouts had tool calls that cannot be read as calls, so their tools never ran: the base "
            "model does not know this tool format well enough."
        )
    silent = sum(not sample.tree.nodes for sample in samples if sample.outcome is Outcome.GRADED)
    if silent:
        reasons.append(
            f"{part(silent)} rollouts were graded without one answered call to the model: does the agent use the "
            "rollout's chat completions URL?"
        )
    if len(rewards) > 1 and max(rewards) == min(rewards):
        value = rewards[0]
        why = (
            "the task may be too hard for the base model to ever succeed by chance, or the grader too strict"
            if value <= 0
            else "the task may be solved already, or the grader too lenient"
        )
        reasons.append(f"All {len(rewards)} rewards are {value:g}, so no rollout is better than another: {why}.")
    elif rewards:
        flat = sum(_flat(group) for group in groups)
        if flat:
            reasons.append(
                f"{flat} of {len(groups)} groups have one reward in all their rollouts, so nothing to compare: raise "
                "n_samples_per_prompt or rollout_temperature, or choose rows the model sometimes solves."
            )
    return reasons


def _flat(group: Sequence[Sample]) -> bool:
    rewards = [sample.reward for sample in group if sample.reward is not None]
    return len(rewards) > 1 and max(rewards) == min(rewards)


def _most_frequent(samples: Sequence[Sample], kind: str) -> str:
    messages = Counter(s.failure.message.strip().rstrip(".") for s in samples if s.kind == kind and s.failure)
    return messages.most_common(1)[0][0][:300] if messages else "no reason given"
