"""Agents of the OpenAI Agents SDK in a rollout: real runner, real HTTP, a scripted model behind it."""

import asyncio

import pytest
from agents import Agent, ModelSettings, Runner, function_tool
from osmosis_ai.rollout.context import RolloutContext
from osmosis_ai.rollout.integrations.agents.openai_agents import (
    OsmosisAgent,
    OsmosisLitellmModel,
    OsmosisMemorySession,
    OsmosisRolloutModel,
    SessionSampleSource,
)
from pydantic import BaseModel
from stub_provider import Behaviour, StubProvider

PROMPT = [{"role": "user", "content": "What is 12 * 9?"}]


@function_tool
def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


@pytest.fixture
def stub():
    with StubProvider() as provider:
        yield provider


def context_for(stub, rollout_id="r1"):
    return RolloutContext(chat_completions_url=stub.base_url, api_key=f"key-{rollout_id}", rollout_id=rollout_id)


def make_agent(*, model=None, tools=(multiply,), **kwargs):
    return OsmosisAgent(
        name="multiply", model=model or OsmosisRolloutModel(model="multiply"), tools=list(tools), **kwargs
    )


async def test_a_tool_conversation_becomes_the_sample(stub):
    with context_for(stub) as context:
        agent = make_agent(instructions="Use the tool.")
        result = await Runner.run(agent, PROMPT, session=OsmosisMemorySession())
        sample = await context.get_sample()
    assert "#### 108" in result.final_output
    usage = result.context_wrapper.usage
    assert usage.requests == 2
    assert usage.total_tokens > 0
    assert all(request.body["stream"] is True for request in stub.completions)
    assert stub.completions[0].body["stream_options"] == {"include_usage": True}
    assert stub.completions[0].headers["authorization"] == "Bearer key-r1"
    kinds = [item.get("type", item.get("role")) for item in sample.messages]
    assert kinds == ["user", "function_call", "function_call_output", "message"]
    trajectory = sample.trajectory_messages
    assert [message["role"] for message in trajectory] == ["user", "assistant", "tool", "assistant"]
    assert trajectory[1]["tool_calls"][0]["function"] == {"name": "multiply", "arguments": '{"a": 12, "b": 9}'}
    assert trajectory[2]["content"] == "108"


async def test_streamed_runs_work_too(stub):
    with context_for(stub) as context:
        result = Runner.run_streamed(make_agent(), "What is 12 * 9?", session=OsmosisMemorySession())
        events = [event async for event in result.stream_events()]
        sample = await context.get_sample()
    assert any(event.type == "raw_response_event" for event in events)
    assert "#### 108" in result.final_output
    assert len(sample.messages) == 4


async def test_parameters_reach_the_request_and_unknown_ones_its_body(stub):
    model = OsmosisRolloutModel(
        temperature=0.25, max_tokens=64, seed=7, top_k=20, extra_body={"min_p": 0.1, "tag": "x"}
    )
    settings = ModelSettings(temperature=0.5, extra_args={"top_a": 1, "stop": ["END"]}, extra_body={"tag": "y"})
    with context_for(stub):
        await Runner.run(make_agent(model=model, model_settings=settings), PROMPT, session=OsmosisMemorySession())
    body = stub.completions[0].body
    names = ("temperature", "max_tokens", "seed", "top_k", "min_p", "tag", "top_a", "stop", "model")
    assert {name: body.get(name) for name in names} == {
        "temperature": 0.5, "max_tokens": 64, "seed": 7, "top_k": 20, "min_p": 0.1, "tag": "y", "top_a": 1,
        "stop": ["END"], "model": "osmosis-rollout",
    }  # fmt: skip


async def test_an_agent_without_tools_sends_none(stub):
    with context_for(stub):
        await Runner.run(make_agent(tools=(), model=OsmosisRolloutModel()), PROMPT, session=OsmosisMemorySession())
    assert "tools" not in stub.completions[0].body


@pytest.mark.parametrize("name", ["api_key", "base_url", "api_base"])
def test_the_address_and_key_are_the_rollouts_own(name):
    with RolloutContext(chat_completions_url="http://127.0.0.1:9"), pytest.raises(TypeError, match=name):
        make_agent(model=OsmosisRolloutModel(**{name: "x"}))


def test_the_model_needs_a_rollout():
    with pytest.raises(RuntimeError, match=r"inside AgentWorkflow\.run"):
        make_agent()
    with pytest.raises(RuntimeError, match=r"inside AgentWorkflow\.run"):
        OsmosisLitellmModel()


async def test_the_placeholder_cannot_be_used_with_a_plain_agent(stub):
    with context_for(stub), pytest.raises(NotImplementedError, match="OsmosisAgent"):
        await Runner.run(Agent(name="plain", model=OsmosisRolloutModel()), "hello")
    with pytest.raises(NotImplementedError, match="OsmosisAgent"):
        OsmosisRolloutModel().stream_response()


def test_other_models_are_left_alone():
    assert OsmosisAgent(name="a", model="gpt-5").model == "gpt-5"
    assert OsmosisAgent(name="a").model is None


async def test_a_copy_of_an_agent_keeps_its_model(stub):
    with context_for(stub):
        agent = make_agent(instructions="first")
        copy = agent.clone(instructions="second")
    assert copy.model is agent.model
    assert isinstance(copy.model, OsmosisLitellmModel)


async def test_a_run_without_a_session_is_refused_before_it_costs_anything(stub):
    with context_for(stub), pytest.raises(RuntimeError, match=r"session=OsmosisMemorySession\(\)"):
        await Runner.run(make_agent(), PROMPT)
    assert stub.requests == []


async def test_an_error_of_the_endpoint_is_not_retried_by_the_client(stub):
    stub.script(Behaviour("status", status=500))
    with context_for(stub), pytest.raises(Exception, match="500"):
        await Runner.run(make_agent(), PROMPT, session=OsmosisMemorySession())
    assert len(stub.requests) == 1


async def test_agents_hand_over_and_serve_as_tools_within_one_sample(stub):
    def choose(body):
        names = [tool["function"]["name"] for tool in body.get("tools", [])]
        if body["messages"][0]["content"] == "first" and body["messages"][-1]["role"] == "user":
            return Behaviour("tool-call", text='ask_expert {"input": "help"}')
        if "transfer_to_second" in names:
            return Behaviour("tool-call", text="transfer_to_second {}")
        return Behaviour("text", text=body["messages"][0]["content"])

    stub.answer_with(choose)
    with context_for(stub) as context:
        expert = make_agent(tools=(), instructions="expert")
        expert_tool = expert.as_tool(tool_name="ask_expert", tool_description="Ask.")
        second = make_agent(tools=(), instructions="second")
        second.name = "second"
        first = make_agent(tools=(expert_tool,), instructions="first", handoffs=[second])
        result = await Runner.run(first, "go", session=OsmosisMemorySession())
        sample = await context.get_sample()
    assert result.final_output == "second"
    assert [request.body["messages"][0]["content"] for request in stub.completions] == [
        "first", "expert", "first", "second",
    ]  # fmt: skip
    outputs = [item["output"] for item in sample.messages if item.get("type") == "function_call_output"]
    assert outputs[0] == "expert"


async def test_structured_output_is_asked_for(stub):
    class Answer(BaseModel):
        value: int

    stub.script(Behaviour("text", text='{"value": 108}'))
    with context_for(stub):
        result = await Runner.run(make_agent(output_type=Answer), PROMPT, session=OsmosisMemorySession())
    assert result.final_output == Answer(value=108)
    assert stub.completions[0].body["response_format"]["type"] == "json_schema"


async def test_reasoning_is_in_the_trajectory(stub):
    with context_for(stub) as context:
        await Runner.run(
            make_agent(model=OsmosisRolloutModel(model="reasoning")), PROMPT, session=OsmosisMemorySession()
        )
        sample = await context.get_sample()
    assistant = [message for message in sample.trajectory_messages if message["role"] == "assistant"]
    assert [message.get("reasoning_content") for message in assistant] == ["Let me think.", None]


async def test_rollouts_side_by_side_do_not_mix(stub):
    async def rollout(index):
        with context_for(stub, f"r{index}"):
            prompt = [{"role": "user", "content": f"What is {index} * 3?"}]
            return (await Runner.run(make_agent(), prompt, session=OsmosisMemorySession())).final_output

    answers = await asyncio.gather(*(rollout(index) for index in range(10, 26)))
    assert [answer.split("#### ")[1] for answer in answers] == [str(index * 3) for index in range(10, 26)]
    assert len({request.headers["authorization"] for request in stub.requests}) == 16


async def test_a_session_keeps_items_and_gives_the_last_ones():
    session = OsmosisMemorySession()  # outside of any rollout: a plain session
    other = OsmosisMemorySession()
    assert len(session.session_id) == 32 and session.session_id != other.session_id
    items = [{"role": "user", "content": str(index)} for index in range(5)]
    await session.add_items(items)
    assert await session.get_items() == items
    assert await session.get_items(2) == items[-2:]
    assert await session.get_items(0) == []
    assert await session.pop_item() == items[-1]
    (await session.get_items()).clear()
    assert len(await session.get_items()) == 4
    await session.clear_session()
    assert await session.get_items() == []
    assert await session.pop_item() is None


async def test_a_session_belongs_to_the_rollout_it_was_made_in(stub):
    outside = OsmosisMemorySession()
    with context_for(stub, "a") as first:
        session = OsmosisMemorySession()
        assert isinstance(first.sample_source, SessionSampleSource)
        with pytest.raises(ValueError, match="one sample"):
            OsmosisMemorySession()
        with pytest.raises(RuntimeError, match="another rollout"):
            await outside.get_items()
    with context_for(stub, "b"):
        for call in (session.get_items(), session.add_items([])):
            with pytest.raises(RuntimeError, match="another rollout"):
                await call


async def test_a_preview_is_a_short_safe_copy(stub):
    with context_for(stub) as context:
        session = OsmosisMemorySession()
        await Runner.run(make_agent(), PROMPT, session=session)
        image = {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]}
        await session.add_items([image, {"type": "reasoning", "id": "r", "summary": []}])
        source = context.sample_source
        assert await source.get_preview(0) is None
        short, whole = await source.get_preview(2), await source.get_preview(100)
    assert short.extra_fields == {"_preview_truncated": True, "_preview_turn": 3}
    assert short.messages == [{"role": "user", "content": [{"type": "input_text", "text": "[image]"}]}]
    assert whole.extra_fields["_preview_truncated"] is False
    assert len(whole.messages) == 5
    whole.messages[0]["content"] = "changed"
    assert (await source.get_sample()).messages[0]["content"] == "What is 12 * 9?"


async def test_an_item_that_chat_has_no_word_for_costs_only_the_trajectory(stub, caplog):
    with context_for(stub) as context:
        await OsmosisMemorySession().add_items([{"type": "hologram"}])
        sample = await context.get_sample()
    assert sample.messages == [{"type": "hologram"}]
    assert sample.trajectory_messages is None
    assert "no trajectory" in caplog.text
