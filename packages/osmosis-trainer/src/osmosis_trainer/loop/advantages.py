"""From rewards to advantages, a group at a time, and from advantages to datums. Pure.

A group is the rollouts of one row in one step; its mean reward is the baseline (GRPO, arXiv 2402.03300). Absent rewards
are never zero: a member without one has no weight, and a group needs two with one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from osmosis_trainer.datum import Datum
from osmosis_trainer.tokens.tree import TokenTree

# Rewards that differ by less than this are the same reward computed in another order.
_SPREAD = 1e-9
# Added to the standard deviation, as GRPO's implementations do.
_STD_FLOOR = 1e-6


class Signal(StrEnum):
    """What a group teaches."""

    YES = "yes"
    NO_SPREAD = "no_spread"  # all rewards are equal
    TOO_FEW = "too_few"  # fewer than two members have a reward


@dataclass(frozen=True, slots=True)
class Member:
    """One rollout of a group.

    Attributes:
        rollout: Its id.
        reward: None when it has none (skipped, failed).
        tree: Its tokens.
    """

    rollout: str
    reward: float | None
    tree: TokenTree


@dataclass(frozen=True, slots=True)
class GroupAdvantages:
    """What came of a group.

    Attributes:
        signal: Whether it teaches anything.
        values: One for each member; 0 for those without a reward and where there is no signal.
        mean: Of the rewards, None without any.
    """

    signal: Signal
    values: tuple[float, ...]
    mean: float | None


def group_advantages(rewards: Sequence[float | None], *, std_scaling: bool) -> GroupAdvantages:
    """Reward minus the group's mean, divided by its standard deviation where asked for.

    Args:
        rewards: Finite, or None for a member without one.
        std_scaling: Divide by the (biased) standard deviation: makes groups count alike, and so overweighs those that
            are nearly all right or nearly all wrong (Dr.GRPO, arXiv 2503.20783, section 3.1).
    """
    known = [reward for reward in rewards if reward is not None]
    nothing = tuple(0.0 for _ in rewards)
    if len(known) < 2:
        return GroupAdvantages(Signal.TOO_FEW, nothing, known[0] if known else None)
    mean = math.fsum(known) / len(known)
    std = math.sqrt(math.fsum((reward - mean) ** 2 for reward in known) / len(known))
    if max(known) - min(known) <= _SPREAD * max(1.0, abs(mean)):
        return GroupAdvantages(Signal.NO_SPREAD, nothing, mean)
    scale = 1 / (std + _STD_FLOOR) if std_scaling else 1.0
    values = tuple(0.0 if reward is None else (reward - mean) * scale for reward in rewards)
    return GroupAdvantages(Signal.YES, values, mean)


def group_datums(
    members: Sequence[Member], advantages: GroupAdvantages, *, overlong_masking: bool, context: int
) -> list[Datum]:
    """The datums of a group: one for each branch of each member with a reward.

    Args:
        members: In the order of the advantages' values.
        advantages: From `group_advantages`; without a signal there are no datums.
        overlong_masking: Train nothing in rollouts an answer of which was cut by length: their reward says little about
            what they wrote (DAPO, arXiv 2503.14476, section 3.4). They keep their place in the baseline.
        context: Longest sequence the engine takes; a longer branch is left out.
    """
    if advantages.signal is not Signal.YES:
        return []
    datums = []
    for member, value in zip(members, advantages.values, strict=True):
        if member.reward is None or (overlong_masking and member.tree.cut):
            continue
        for branch in member.tree.branches:
            if not any(branch.trained) or len(branch.tokens) > context:
                continue
            datums.append(
                Datum(
                    tokens=branch.tokens,
                    trained=branch.trained,
                    advantages=(value,) * len(branch.tokens),
                    logprobs=branch.logprobs,
                    rollout=member.rollout,
                    versions=branch.versions,
                )
            )
    return datums
