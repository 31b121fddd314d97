"""Rewards to advantages: absent is never zero, a group needs two, no spread teaches nothing."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from osmosis_trainer.loop.advantages import Member, Signal, group_advantages, group_datums
from osmosis_trainer.tokens.tree import Node, TokenTree


def member(name: str, reward: float | None, *, cut: bool = False, branches: int = 1) -> Member:
    nodes = tuple(Node(None, (1, 2 + i), (7, 8), (-0.5, -0.25), "v1", cut, i) for i in range(branches))
    return Member(name, reward, TokenTree(nodes))


def test_the_groups_mean_is_the_baseline():
    found = group_advantages([1.0, 0.0, 0.0, 1.0], std_scaling=False)
    assert found.signal is Signal.YES and found.mean == 0.5
    assert found.values == (0.5, -0.5, -0.5, 0.5)


def test_scaling_divides_by_the_groups_standard_deviation():
    found = group_advantages([1.0, 0.0, 0.0, 0.0], std_scaling=True)
    assert found.values == pytest.approx([0.75 / math.sqrt(3 / 16), *[-0.25 / math.sqrt(3 / 16)] * 3], rel=1e-4)


def test_a_member_without_a_reward_is_no_zero_in_the_mean_and_has_no_weight():
    found = group_advantages([1.0, None, 0.0, None], std_scaling=False)
    assert found.values == (0.5, 0.0, -0.5, 0.0)
    datums = group_datums(
        [member("a", 1.0), member("b", None), member("c", 0.0), member("d", None)],
        found,
        overlong_masking=False,
        context=100,
    )
    assert [d.rollout for d in datums] == ["a", "c"]


@pytest.mark.parametrize("rewards", [[], [None], [1.0], [None, 0.5, None]])
def test_a_group_needs_two_rewards(rewards):
    found = group_advantages(rewards, std_scaling=True)
    assert found.signal is Signal.TOO_FEW and not any(found.values)


@pytest.mark.parametrize("rewards", [[0.0, 0.0], [1.0, 1.0, None], [0.1 + 0.2, 0.3]])
def test_equal_rewards_teach_nothing_whatever_the_scaling(rewards):
    for scaling in (False, True):
        found = group_advantages(rewards, std_scaling=scaling)
        assert found.signal is Signal.NO_SPREAD and not any(found.values)


@given(
    st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6)), min_size=2, max_size=16),
    st.booleans(),
)
def test_advantages_are_finite_and_sum_to_nothing(rewards, scaling):
    found = group_advantages(rewards, std_scaling=scaling)
    assert all(math.isfinite(value) for value in found.values)
    scale = max((abs(v) for v in found.values), default=0.0)
    assert abs(math.fsum(found.values)) <= 1e-6 * max(scale, 1e-6) * len(rewards)
    assert all(value == 0 for value, reward in zip(found.values, rewards, strict=True) if reward is None)


def test_all_branches_of_a_rollout_carry_its_advantage_and_its_name():
    members = [member("a", 1.0, branches=2), member("b", 0.0)]
    found = group_advantages([1.0, 0.0], std_scaling=False)
    datums = group_datums(members, found, overlong_masking=False, context=100)
    assert [(d.rollout, d.advantages[0]) for d in datums] == [("a", 0.5), ("a", 0.5), ("b", -0.5)]
    assert all(d.logprobs[2:] == (-0.5, -0.25) and d.trained[:2] == (False, False) for d in datums)


def test_overlong_masking_leaves_cut_rollouts_out_but_keeps_them_in_the_baseline():
    members = [member("a", 1.0), member("b", 0.0, cut=True), member("c", 0.0)]
    found = group_advantages([m.reward for m in members], std_scaling=False)
    assert found.mean == pytest.approx(1 / 3)
    masked = group_datums(members, found, overlong_masking=True, context=100)
    assert [d.rollout for d in masked] == ["a", "c"]
    assert len(group_datums(members, found, overlong_masking=False, context=100)) == 3


def test_a_branch_longer_than_the_engine_reads_is_left_out():
    members = [member("a", 1.0), member("b", 0.0)]
    found = group_advantages([1.0, 0.0], std_scaling=False)
    assert group_datums(members, found, overlong_masking=False, context=3) == []
