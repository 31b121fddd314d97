"""Recorded calls become a tree; its branches train every sampled token exactly once, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from osmosis_ai.gateway.policy import TokenSpan
from osmosis_ai.gateway.record import CallRecord, SessionRecord
from osmosis_trainer.tokens.tree import token_tree


def call(index: int, prompt: list[int], ids: list[int], *, finish: str = "stop", version: str = "v1") -> CallRecord:
    logprobs = tuple(-float(i) - 1 for i in range(len(ids)))
    span = TokenSpan(tuple(prompt), tuple(ids), logprobs, version)
    return CallRecord(index, "", 0.0, response={"message": {}, "finish_reason": finish, "model": "m"}, tokens=span)


def tree(*calls: CallRecord):
    return token_tree(SessionRecord("r", calls))


def test_later_turns_continue_the_first_as_one_sequence_with_what_is_between_masked():
    one = tree(
        call(0, [1, 2], [10, 11]), call(1, [1, 2, 10, 11, 3, 4], [12]), call(2, [1, 2, 10, 11, 3, 4, 12, 5], [13])
    )
    (branch,) = one.branches
    assert branch.tokens == (1, 2, 10, 11, 3, 4, 12, 5, 13)
    assert branch.trained == (False, False, True, True, False, False, True, False, True)
    assert branch.logprobs == (0, 0, -1, -2, 0, 0, -1, 0, -1)
    assert one.sampled_tokens == 4 and one.length == 9


def test_a_prompt_that_does_not_continue_begins_a_branch():
    one = tree(call(0, [1, 2], [10]), call(1, [1, 7], [11]))
    assert [b.tokens for b in one.branches] == [(1, 2, 10), (1, 7, 11)]
    assert all(sum(b.trained) == 1 for b in one.branches)


def test_a_node_that_branches_share_is_trained_once_and_is_context_in_the_others():
    one = tree(call(0, [1], [10, 11]), call(1, [1, 10, 11, 2], [12]), call(2, [1, 10, 11, 3], [13]))
    first, second = one.branches
    assert first.trained == (False, True, True, False, True)
    assert second.trained == (False, False, False, False, True)
    assert second.tokens == (1, 10, 11, 3, 13)
    assert second.logprobs[:4] == (0, 0, 0, 0)


def test_equal_prompts_asked_twice_are_two_nodes_of_one_parent():
    one = tree(call(0, [1], [10]), call(1, [1], [11]))
    assert [b.tokens for b in one.branches] == [(1, 10), (1, 11)]


def test_a_call_continues_the_longest_conversation_it_begins_with():
    one = tree(call(0, [1], [10]), call(1, [1, 10, 2], [11]), call(2, [1, 10, 2, 11, 3], [12]))
    assert [node.parent for node in one.nodes] == [None, 0, 1]


def test_an_answer_cut_by_length_is_trained_but_never_continued():
    one = tree(call(0, [1], [10, 11], finish="length"), call(1, [1, 10, 11, 2], [12]))
    assert [b.tokens for b in one.branches] == [(1, 10, 11), (1, 10, 11, 2, 12)]
    assert one.branches[1].trained == (False, False, False, False, True)
    assert one.cut and one.branches[0].cut and not one.branches[1].cut


def test_calls_without_tokens_are_counted_and_left_out():
    one = tree(call(0, [1], [10]), CallRecord(1, "", 0.0, cancelled=True), CallRecord(2, "", 0.0))
    assert len(one.nodes) == 1 and one.lost_calls == 2


def test_versions_are_those_of_the_trained_tokens():
    one = tree(call(0, [1], [10], version="v1"), call(1, [1, 10, 2], [11], version="v2"), call(2, [1, 10, 3], [12]))
    assert one.branches[0].versions == ("v1", "v2")
    assert one.branches[1].versions == ("v1",)


def test_a_rollout_without_calls_has_no_branches():
    assert tree().branches == () and tree().length == 0


@st.composite
def conversations(draw: st.DrawFn) -> list[CallRecord]:
    """Calls that continue, repeat and branch at random, over three token ids so that prefixes collide often."""
    token = st.integers(0, 2)
    calls: list[CallRecord] = []
    whole: list[list[int]] = [[]]
    for index in range(draw(st.integers(0, 7))):
        start = draw(st.sampled_from(whole))
        prompt = [*start, *draw(st.lists(token, min_size=1, max_size=3))]
        ids = draw(st.lists(token, min_size=1, max_size=3))
        calls.append(call(index, prompt, ids, finish=draw(st.sampled_from(["stop", "stop", "length"]))))
        whole.append(prompt + ids)
    return calls


@given(conversations())
@pytest.mark.filterwarnings("ignore")
def test_every_sampled_token_is_trained_exactly_once_in_the_context_it_was_drawn_in(calls):
    one = tree(*calls)
    trained = sorted(
        (branch.tokens[:at], token, logprob)
        for branch in one.branches
        for at, (token, is_trained, logprob) in enumerate(
            zip(branch.tokens, branch.trained, branch.logprobs, strict=True)
        )
        if is_trained
    )
    drawn = sorted(
        ((*span.prompt_ids, *span.ids[:at]), span.ids[at], span.logprobs[at])
        for c in calls
        if (span := c.tokens) is not None
        for at in range(len(span.ids))
    )
    assert trained == drawn
