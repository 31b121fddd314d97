"""The Responses route: what its input means in chat words, and what it refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gateway_rig import MakeRig
from hypothesis import given, settings
from hypothesis import strategies as st
from osmosis_ai.gateway.policy import PolicyError
from osmosis_ai.gateway.responses_input import input_messages, parse_responses
from stub_provider import StubProvider


def test_items_of_one_turn_become_one_assistant_message() -> None:
    messages = input_messages(
        [
            {"role": "developer", "content": "Rules."},
            {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Thinking."}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Calling."}]},
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{broken"},
            {"type": "function_call", "call_id": "c2", "name": "g", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "one"}]},
            {"type": "function_call_output", "call_id": "c2", "output": "two"},
            {"role": "assistant", "content": "Done."},
        ]
    )
    assert messages == [
        {"role": "system", "content": "Rules."},
        {"role": "user", "content": "Hi"},
        {
            "role": "assistant",
            "content": "Calling.",
            "reasoning_content": "Thinking.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{broken"}},
                {"id": "c2", "type": "function", "function": {"name": "g", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
        {"role": "tool", "tool_call_id": "c2", "content": "two"},
        {"role": "assistant", "content": "Done."},
    ]


def test_images_and_files_keep_their_parts() -> None:
    parts = [
        {"type": "input_text", "text": "Look"},
        {"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "low"},
        {"type": "input_file", "file_data": "data:application/pdf;base64,AA", "filename": "a.pdf"},
    ]
    assert input_messages([{"role": "user", "content": parts}])[0]["content"] == [
        {"type": "text", "text": "Look"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA", "detail": "low"}},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,AA", "filename": "a.pdf"}},
    ]


def test_settings_get_their_chat_names() -> None:
    schema = {"type": "object", "properties": {}}
    call = parse_responses(
        {
            "model": "m",
            "input": "hi",
            "instructions": "Be brief.",
            "max_output_tokens": 9,
            "reasoning": {"effort": "low"},
            "text": {
                "format": {"type": "json_schema", "name": "s", "schema": schema, "strict": True},
                "verbosity": "low",
            },
            "tools": [{"type": "function", "name": "f", "parameters": schema, "strict": True}],
            "tool_choice": {"type": "function", "name": "f"},
            "parallel_tool_calls": False,
            "temperature": 0,
            "store": True,
            "include": [],
            "extra_body": {"top_k": 3},
        }
    )
    assert list(call.request.messages) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"},
    ]
    assert call.request.tools == [{"type": "function", "function": {"name": "f", "parameters": schema, "strict": True}}]
    assert call.request.params == {
        "max_tokens": 9,
        "reasoning_effort": "low",
        "verbosity": "low",
        "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": schema, "strict": True}},
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "parallel_tool_calls": False,
        "temperature": 0,
        "top_k": 3,
    }


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id is not supported: the gateway keeps no responses"),
        ({"conversation": "c"}, "conversation is not supported"),
        ({"background": True}, "background is not supported"),
        ({"input": None}, "input must be"),
        ({"input": []}, "input must be"),
        ({"input": [3]}, "input[0] must be an object"),
        ({"input": [{"type": "web_search_call"}]}, "input[0] has type 'web_search_call'"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "stores none"),
        ({"input": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "input[0].content[0]"),
        ({"tools": [{"type": "web_search"}]}, "only function tools"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format.type"),
        ({"instructions": 3}, "instructions must be a string"),
        ({"api_key": "x"}, "api_key"),
        ({"n": 2}, "n must be 1"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(PolicyError) as caught:
        parse_responses({"input": "hi", **fields})
    assert complaint in str(caught.value)
    assert caught.value.status == 400


async def test_an_answer_cut_short_is_incomplete(rig: MakeRig) -> None:
    one = await rig("length")
    reply = (await one.client.post("/responses", json={"input": "hi"})).json()
    assert (reply["status"], reply["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    streamed = (await one.client.post("/responses", json={"input": "hi", "stream": True})).text
    assert "event: response.incomplete" in streamed


async def test_reasoning_is_an_item_and_finds_its_way_back(rig: MakeRig, stub: StubProvider) -> None:
    one = await rig("reasoning")
    tools = [{"type": "function", "name": "f", "parameters": {}}]
    first = (await one.client.post("/responses", json={"input": "hi", "tools": tools})).json()
    assert [item["type"] for item in first["output"]] == ["reasoning", "function_call"]
    history = [{"role": "user", "content": "hi"}, first["output"][1]]  # the client dropped the reasoning
    history.append({"type": "function_call_output", "call_id": first["output"][1]["call_id"], "output": "ok"})
    second = (await one.client.post("/responses", json={"input": history, "tools": tools})).json()
    assert second["output"][0]["content"][0]["text"] == "done"
    streamed = await one.client.post("/responses", json={"input": "hi", "tools": tools, "stream": True})
    assert "response.reasoning_summary_text.delta" in streamed.text


async def test_events_are_numbered_without_gaps(rig: MakeRig) -> None:
    one = await rig("text")
    text = (await one.client.post("/responses", json={"input": "hi", "stream": True})).text
    numbers = [json.loads(line[6:])["sequence_number"] for line in text.splitlines() if line.startswith("data: {")]
    assert numbers == list(range(len(numbers)))
    assert text.endswith("data: [DONE]\n\n")


words = st.sampled_from(
    """message function_call function_call_output reasoning item_reference input_text output_text input_image input_file
    refusal function json_schema json_object text user assistant developer system low auto""".split()
)
names = st.sampled_from(
    """type role content summary text call_id id name arguments output image_url file_data filename format schema effort
    verbosity parameters model input instructions stream tools tool_choice max_output_tokens reasoning n extra_body
    previous_response_id parallel_tool_calls""".split()
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | words | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=5),
    max_leaves=20,
)


@settings(deadline=None)
@given(st.dictionaries(names, values, max_size=6))
def test_any_object_is_parsed_or_refused_and_never_crashes(body: dict[str, Any]) -> None:
    try:
        call = parse_responses(body)
    except PolicyError as error:
        assert error.kind == "bad_request"
    else:
        assert call.request.messages
        assert all(isinstance(message["role"], str) for message in call.request.messages)
