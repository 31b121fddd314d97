"""nano behind the real gateway: a plain OpenAI client works with a tool over several turns."""

import asyncio
import json
from contextlib import asynccontextmanager

import openai
import pytest
from osmosis_ai.gateway.server import Gateway
from osmosis_trainer import embedded_policy

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "multiply",
            "description": "Multiply two numbers.",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                "required": ["a", "b"],
            },
        },
    }
]
QUESTION = [
    {"role": "system", "content": "Use the multiply tool. Then answer with #### <number>."},
    {"role": "user", "content": "What is 47 * 83?"},
]


@asynccontextmanager
async def gateway_client():
    policy = embedded_policy("osmosis/nano")
    gateway = Gateway(policy)
    await gateway.start()
    session = gateway.open("rollout 1")
    try:
        async with openai.AsyncOpenAI(base_url=session.url, api_key=session.key, max_retries=0) as client:
            yield policy, gateway, client
    finally:
        await gateway.aclose()
        await policy.aclose()


async def test_a_tool_using_conversation_is_one_row_of_tokens():
    async with gateway_client() as (policy, gateway, client):
        messages = list(QUESTION)
        first = await client.chat.completions.create(model="any", messages=messages, tools=TOOLS, temperature=0)
        (call,) = first.choices[0].message.tool_calls
        assert first.choices[0].finish_reason == "tool_calls"
        arguments = json.loads(call.function.arguments)
        result = {"role": "tool", "tool_call_id": call.id, "content": str(arguments["a"] * arguments["b"])}
        messages += [first.choices[0].message, result]
        second = await client.chat.completions.create(model="any", messages=messages, tools=TOOLS, temperature=0)
        assert second.choices[0].finish_reason == "stop"
        assert "3901" in second.choices[0].message.content
        record = await gateway.close("rollout 1")
        one, two = (recorded.tokens for recorded in record.calls)
        whole = one.prompt_ids + one.ids
        assert two.prompt_ids[: len(whole)] == whole
        assert record.tokens == first.usage.total_tokens + second.usage.total_tokens
        assert record.cost_usd == 0.0
        assert not policy._rollouts


async def test_a_streamed_answer_equals_a_whole_one():
    async with gateway_client() as (_, _, client):
        asked = {"model": "any", "messages": QUESTION, "seed": 5, "temperature": 1.5}
        whole = await client.chat.completions.create(**asked)
        streamed, usage = "", None
        stream = await client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
        async for chunk in stream:
            streamed += "".join(choice.delta.content or "" for choice in chunk.choices)
            usage = chunk.usage or usage
        assert streamed == (whole.choices[0].message.content or "")
        assert usage is not None and usage.completion_tokens == whole.usage.completion_tokens


async def test_a_client_that_hangs_up_frees_the_slot():
    async with gateway_client() as (policy, _, client):
        hot = {"model": "any", "messages": QUESTION, "temperature": 8, "max_tokens": 1800}
        stream = await client.chat.completions.create(**hot, stream=True)
        await anext(aiter(stream))
        assert policy.sampler.busy_slots == 1
        await stream.close()
        async with asyncio.timeout(15):
            while policy.sampler.busy_slots:
                await asyncio.sleep(0.005)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"temperature": 1.0, "max_tokens": 10, "messages": [{"role": "user", "content": "x " * 5000}]}, "reads at most 2048"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "reads text only"),
    ],
)  # fmt: skip
async def test_what_nano_cannot_read_is_a_bad_request_that_says_so(change, says):
    async with gateway_client() as (_, _, client):
        with pytest.raises(openai.BadRequestError, match=says):
            await client.chat.completions.create(**({"model": "any", "messages": QUESTION} | change))
