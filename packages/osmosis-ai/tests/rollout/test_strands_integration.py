"""Strands agents in a rollout: real agent, real HTTP, a scripted model behind it."""

import asyncio

import pytest
from osmosis_ai.rollout.context import RolloutContext
from osmosis_ai.rollout.integrations.agents.strands import (
    OsmosisRolloutModel,
    OsmosisStrandsAgent,
    StrandsAgentSampleSource,
)
from pydantic import BaseModel
from strands import Agent, tool
from strands.models.openai import OpenAIModel
from stub_provider import Behaviour, StubProvider

PROMPT = [{"role": "user", "content": "What is 12 * 9?"}]


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


@pytest.fixture
def stub():
    with StubProvider() as provider:
        yield provider


def context_for(stub, rollout_id="r1"):
    return RolloutContext(chat_completions_url=stub.base_url, api_key=f"key-{rollout_id}", rollout_id=rollout_id)


def make_agent(*, messages=PROMPT, model=None, **kwargs):
    return OsmosisStrandsAgent(
        model=model or OsmosisRolloutModel(model="multiply"), messages=messages, callback_handler=None, **kwargs
    )


async def test_a_tool_conversation_becomes_the_sample(stub):
    with context_for(stub) as context:
        await make_agent(tools=[multiply], system_prompt="Use the tool.").invoke_async()
        sample = await context.get_sample()
    first, second = (request.body for request in stub.completions)
    assert first["stream"] is True
    assert first["stream_options"] == {"include_usage": True}
    assert [message["role"] for message in first["messages"]] == ["system", "user"]
    assert first["tools"][0]["function"]["name"] == "multiply"
    assert second["messages"][-1] == {
        "role": "tool",
        "tool_call_id": second["messages"][-1]["tool_call_id"],
        "content": "108",
    }
    assert [message["role"] for message in sample.messages] == ["user", "assistant", "user", "assistant"]
    assert "#### 108" in sample.messages[-1]["content"][0]["text"]
    trajectory = sample.trajectory_messages
    assert [message["role"] for message in trajectory] == ["system", "user", "assistant", "tool", "assistant"]
    assert trajectory[0]["content"] == "Use the tool."
    assert trajectory[2]["tool_calls"][0]["function"] == {"name": "multiply", "arguments": '{"a": 12, "b": 9}'}


async def test_requests_carry_the_rollouts_key(stub):
    with context_for(stub, "r7"):
        await make_agent().invoke_async()
    assert stub.requests[0].headers["authorization"] == "Bearer key-r7"


async def test_parameters_reach_the_request_and_unknown_ones_its_body(stub):
    model = OsmosisRolloutModel(
        temperature=0.25,
        top_k=20,
        params={"max_tokens": 64, "min_p": 0.1},
        extra_body={"seed_tag": "x"},
        drop_params=True,
    )
    with context_for(stub):
        await make_agent(model=model).invoke_async()
    body = stub.completions[0].body
    sent = {name: body.get(name) for name in ("temperature", "top_k", "max_tokens", "min_p", "seed_tag", "model")}
    assert sent == {
        "temperature": 0.25, "top_k": 20, "max_tokens": 64, "min_p": 0.1, "seed_tag": "x", "model": "osmosis-rollout"
    }  # fmt: skip
    assert "drop_params" not in body
    assert "tools" not in body  # none were given: an empty list is refused by providers


async def test_whole_answers_can_be_asked_for_instead_of_streams(stub):
    with context_for(stub) as context:
        await make_agent(model=OsmosisRolloutModel(stream=False, model="multiply"), tools=[multiply]).invoke_async()
        sample = await context.get_sample()
    if "stream" in OpenAIModel.OpenAIConfig.__annotations__:  # older Strands always streams
        assert not stub.completions[0].body.get("stream")
    assert "#### 108" in sample.messages[-1]["content"][0]["text"]


@pytest.mark.parametrize("name", ["api_key", "base_url", "api_base"])
def test_the_address_and_key_are_the_rollouts_own(stub, name):
    with context_for(stub), pytest.raises(TypeError, match=name):
        make_agent(model=OsmosisRolloutModel(**{name: "x"}))


def test_the_placeholder_needs_a_rollout():
    with pytest.raises(RuntimeError, match=r"inside AgentWorkflow\.run"):
        make_agent()


async def test_the_placeholder_cannot_be_used_with_a_plain_agent(stub):
    with pytest.raises(NotImplementedError, match="OsmosisStrandsAgent"):
        OsmosisRolloutModel().stream([])
    with context_for(stub), pytest.raises(NotImplementedError, match="OsmosisStrandsAgent"):
        await Agent(model=OsmosisRolloutModel(), callback_handler=None).invoke_async("hello")


def test_the_placeholder_of_the_other_framework_is_named(stub):
    other = pytest.importorskip("osmosis_ai.rollout.integrations.agents.openai_agents")
    with context_for(stub):
        with pytest.raises(TypeError, match=r"import OsmosisRolloutModel from .*agents\.strands"):
            OsmosisStrandsAgent(model=other.OsmosisRolloutModel())
        with pytest.raises(TypeError, match=r"import OsmosisRolloutModel from .*agents\.openai_agents"):
            other.OsmosisAgent(name="a", model=OsmosisRolloutModel())


def test_a_rollout_has_one_sample(stub):
    with context_for(stub):
        make_agent()
        with pytest.raises(ValueError, match="one sample"):
            make_agent()


def test_other_models_are_left_alone(stub):
    own = OpenAIModel(client_args={"api_key": "x"}, model_id="mine")
    with context_for(stub) as context:
        agent = OsmosisStrandsAgent(model=own, callback_handler=None)
    assert agent.model is own
    assert context.sample_source is None


def test_model_and_messages_may_come_by_position(stub):
    with context_for(stub) as context:
        agent = OsmosisStrandsAgent(OsmosisRolloutModel(), PROMPT, callback_handler=None)
        assert isinstance(context.sample_source, StrandsAgentSampleSource)
    assert agent.messages[0]["content"] == [{"text": "What is 12 * 9?"}]
    with pytest.raises(TypeError, match="twice"):
        OsmosisStrandsAgent(OsmosisRolloutModel(), model=OsmosisRolloutModel())


async def test_an_error_of_the_endpoint_is_retried_neither_by_the_client_nor_by_strands(stub):
    for status in (500, 429):
        stub.script(Behaviour("status", status=status))
        with context_for(stub), pytest.raises(Exception, match=str(status)):
            await make_agent().invoke_async()
    assert len(stub.requests) == 2


async def test_an_agent_called_synchronously_in_a_thread_works(stub):
    with context_for(stub) as context:
        agent = make_agent(messages=None, tools=[multiply])
        result = await asyncio.to_thread(agent, "What is 7 * 6?")
        await asyncio.to_thread(agent, "What is 8 * 6?")  # another thread, another event loop
        sample = await context.get_sample()
    assert "#### 42" in str(result)
    assert "#### 48" in sample.messages[-1]["content"][0]["text"]


async def test_structured_output_works(stub):
    class Answer(BaseModel):
        """The answer."""

        value: int

    stub.script(Behaviour("tool-call", text='Answer {"value": 108}'))
    with context_for(stub):
        result = await make_agent().invoke_async(structured_output_model=Answer)
    assert result.structured_output == Answer(value=108)


async def test_rollouts_side_by_side_do_not_mix(stub):
    async def rollout(index):
        with context_for(stub, f"r{index}") as context:
            prompt = [{"role": "user", "content": f"What is {index} * 3?"}]
            await make_agent(messages=prompt, tools=[multiply]).invoke_async()
            return (await context.get_sample()).messages[-1]["content"][0]["text"]

    answers = await asyncio.gather(*(rollout(index) for index in range(10, 26)))
    assert [answer.split("#### ")[1] for answer in answers] == [str(index * 3) for index in range(10, 26)]
    keys = {request.headers["authorization"] for request in stub.requests}
    assert len(keys) == 16


async def test_reasoning_is_in_the_trajectory_and_not_sent_back(stub):
    with context_for(stub) as context:
        await make_agent(model=OsmosisRolloutModel(model="reasoning"), tools=[multiply]).invoke_async()
        sample = await context.get_sample()
    assert len(stub.completions) == 2
    assert "reasoning" not in str(stub.completions[1].body["messages"])
    assert any(message.get("reasoning_content") for message in sample.trajectory_messages)


async def test_a_preview_is_a_short_safe_copy(stub):
    with context_for(stub) as context:
        agent = make_agent(tools=[multiply])
        await agent.invoke_async()
        agent.messages[0]["content"].append({"image": {"format": "png", "source": {"bytes": b"png"}}})
        agent.messages[1]["content"].insert(0, {"reasoningContent": {"reasoningText": {"text": "hm"}}})
        source = context.sample_source
        assert await source.get_preview(0) is None
        short, whole = await source.get_preview(2), await source.get_preview(100)
    assert short.extra_fields == {"_preview_truncated": True, "_preview_turn": 2}
    assert len(short.messages) == 2
    assert whole.extra_fields == {"_preview_truncated": False, "_preview_turn": 2}
    assert whole.messages[0]["content"] == [{"text": "What is 12 * 9?"}, {"text": "[image]"}]
    assert "reasoningContent" not in str(whole.messages)
    whole.messages[0]["content"].clear()
    assert len(agent.messages[0]["content"]) == 2


async def test_a_block_that_chat_has_no_word_for_costs_only_the_trajectory(stub, caplog):
    with context_for(stub) as context:
        agent = make_agent()
        agent.messages.append({"role": "user", "content": [{"hologram": {}}]})
        sample = await context.get_sample()
    assert len(sample.messages) == 2
    assert sample.trajectory_messages is None
    assert "no trajectory" in caplog.text
