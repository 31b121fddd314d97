"""The openai package against the gateway: chat and responses, whole and streamed, with tools."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from gateway_rig import MULTIPLY, QUESTION, MakeRig, Rig
from stub_provider import StubProvider

FLAT_MULTIPLY = {"type": "function", "strict": False, **MULTIPLY["function"]}


@pytest.fixture
async def connected(rig: MakeRig) -> AsyncIterator[tuple[Rig, openai.AsyncOpenAI]]:
    one = await rig("multiply")
    async with openai.AsyncOpenAI(base_url=one.session.url, api_key=one.session.key, max_retries=0) as client:
        yield one, client


type Connected = tuple[Rig, openai.AsyncOpenAI]


async def test_a_tool_using_conversation_over_chat(connected: Connected) -> None:
    one, client = connected
    messages: list[Any] = list(QUESTION)
    first = await client.chat.completions.create(model="any", messages=messages, tools=[MULTIPLY])
    call = first.choices[0].message.tool_calls[0]
    assert (call.function.name, call.function.arguments) == ("multiply", '{"a": 12, "b": 11}')
    messages += [first.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "132"}]
    second = await client.chat.completions.create(model="any", messages=messages, tools=[MULTIPLY])
    assert second.choices[0].message.content.endswith("#### 132")
    record = await one.close()
    assert record.tokens == first.usage.total_tokens + second.usage.total_tokens
    first_call, second_call = record.calls
    assert second_call.request.messages[0] is first_call.request.messages[0]


async def test_a_streamed_tool_call_over_chat(connected: Connected) -> None:
    _, client = connected
    strict = {"type": "function", "function": {**MULTIPLY["function"], "strict": True}}  # the client insists
    async with client.chat.completions.stream(
        model="any", messages=QUESTION, tools=[strict], stream_options={"include_usage": True}
    ) as stream:
        kinds = [event.type async for event in stream]
        final = await stream.get_final_completion()
    assert "tool_calls.function.arguments.delta" in kinds
    assert final.choices[0].finish_reason == "tool_calls"
    assert final.choices[0].message.tool_calls[0].function.arguments == '{"a": 12, "b": 11}'
    assert final.usage.total_tokens > 0


async def test_errors_are_openai_errors(connected: Connected) -> None:
    _, client = connected
    with pytest.raises(openai.BadRequestError, match="num_retries"):
        await client.chat.completions.create(model="any", messages=QUESTION, extra_body={"num_retries": 2})
    with pytest.raises(openai.AuthenticationError):
        await client.with_options(api_key="wrong").chat.completions.create(model="any", messages=QUESTION)


async def test_an_error_inside_a_stream_is_raised(rig: MakeRig) -> None:
    one = await rig("status:401")
    async with openai.AsyncOpenAI(base_url=one.session.url, api_key=one.session.key) as client:
        with pytest.raises(openai.APIError, match="stub error 401"):
            async for _ in await client.chat.completions.create(model="any", messages=QUESTION, stream=True):
                pass
        with pytest.raises(openai.APIError, match="stub error 401"):
            async for _ in await client.responses.create(model="any", input="12 times 11", stream=True):
                pass


async def test_a_text_response(connected: Connected) -> None:
    _, client = connected
    response = await client.responses.create(model="any", input="What is 12 times 11?", instructions="Be brief.")
    assert response.output_text.endswith("#### 132")
    assert response.status == "completed"
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens


async def test_a_tool_using_conversation_over_responses(connected: Connected, stub: StubProvider) -> None:
    one, client = connected
    history: list[Any] = [{"role": "user", "content": "What is 12 times 11?"}]
    first = await client.responses.create(model="any", input=history, tools=[FLAT_MULTIPLY])
    call = first.output[0]
    assert (call.type, call.name, call.arguments) == ("function_call", "multiply", '{"a": 12, "b": 11}')
    history += [*first.output, {"type": "function_call_output", "call_id": call.call_id, "output": "132"}]
    second = await client.responses.create(model="any", input=history, tools=[FLAT_MULTIPLY])
    assert second.output_text.endswith("#### 132")
    sent = stub.completions[-1].body
    assert [m["role"] for m in sent["messages"]] == ["user", "assistant", "tool"]
    assert sent["messages"][1]["tool_calls"][0]["id"] == sent["messages"][2]["tool_call_id"]
    assert sent["tools"][0]["function"]["name"] == "multiply"
    assert [c.route for c in (await one.close()).calls] == ["responses", "responses"]


async def test_a_streamed_response_with_text_and_one_with_a_tool(connected: Connected) -> None:
    _, client = connected
    async with client.responses.stream(model="any", input="What is 12 times 11?") as stream:
        kinds = [event.type async for event in stream]
        final = await stream.get_final_response()
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert kinds.count("response.output_text.delta") > 2
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert final.output_text.endswith("#### 132")
    async with client.responses.stream(model="any", input="12 times 11", tools=[FLAT_MULTIPLY]) as stream:
        kinds = [event.type async for event in stream]
        final = await stream.get_final_response()
    assert "response.function_call_arguments.done" in kinds
    assert final.output[0].arguments == '{"a": 12, "b": 11}'
    assert final.usage.output_tokens > 0
