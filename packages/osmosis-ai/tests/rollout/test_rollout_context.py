"""Contexts: environment fallbacks, the ambient context, one sample source, status reports, rewards."""

import asyncio

import pytest
from osmosis_ai.rollout import (
    GraderContext,
    RolloutContext,
    RolloutSample,
    RolloutStatus,
    SampleSource,
    get_rollout_context,
)
from osmosis_ai.rollout.context import API_KEY_ENV, CHAT_COMPLETIONS_URL_ENV, ROLLOUT_ID_ENV, RolloutProgress


class OneMessage(SampleSource):
    async def get_sample(self):
        return RolloutSample(messages=[{"role": "assistant", "content": "hi"}])


def test_empty_fields_come_from_the_environment(monkeypatch):
    monkeypatch.setenv(CHAT_COMPLETIONS_URL_ENV, "http://model/v1")
    monkeypatch.setenv(API_KEY_ENV, "key-of-env")
    monkeypatch.setenv(ROLLOUT_ID_ENV, "id-of-env")
    filled = RolloutContext()
    assert (filled.chat_completions_url, filled.api_key, filled.rollout_id) == (
        "http://model/v1",
        "key-of-env",
        "id-of-env",
    )
    given = RolloutContext(chat_completions_url="http://other", api_key="k", rollout_id="r")
    assert (given.chat_completions_url, given.api_key, given.rollout_id) == ("http://other", "k", "r")
    assert "key-of-env" not in repr(filled)


def test_the_active_context_is_set_and_cleared():
    assert get_rollout_context() is None
    with RolloutContext(rollout_id="outer") as outer:
        assert get_rollout_context() is outer
        with RolloutContext(rollout_id="inner") as inner:
            assert get_rollout_context() is inner
        assert get_rollout_context() is outer
    assert get_rollout_context() is None


async def test_concurrent_rollouts_do_not_see_each_other():
    async def rollout(name):
        with RolloutContext(rollout_id=name):
            await asyncio.sleep(0.01)
            context = get_rollout_context()
            return context.rollout_id if context else None

    assert await asyncio.gather(rollout("a"), rollout("b")) == ["a", "b"]


async def test_a_rollout_has_one_sample_source():
    context = RolloutContext(rollout_id="r")
    assert await context.get_sample() is None
    context.set_sample_source(OneMessage())
    with pytest.raises(ValueError, match="already has a sample source"):
        context.set_sample_source(OneMessage())
    sample = await context.get_sample()
    assert sample is not None and sample.messages[0]["content"] == "hi"
    assert await OneMessage().get_preview(5) is None


async def test_status_reports_reach_the_progress_or_nobody():
    await RolloutContext().set_status(RolloutStatus.RUNNING)
    heard = []
    context = RolloutContext(progress=RolloutProgress(on_status=heard.append))
    await context.set_status(RolloutStatus.RUNNING)
    await context.set_status(RolloutStatus.RUNNING)
    await context.set_status(RolloutStatus.GRADING)
    assert heard == ["running", "grading"]


def test_a_reward_needs_a_sample():
    with pytest.raises(ValueError, match="no sample to reward"):
        GraderContext().set_reward(1.0)
    context = GraderContext(sample=RolloutSample())
    context.set_reward(0.5)
    assert context.sample is not None and context.sample.reward == 0.5
