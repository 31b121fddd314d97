"""What a caller may say on the chat route, and the request it becomes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from osmosis_ai.gateway.policy import PolicyError
from osmosis_ai.gateway.rules import control_fields, parse_chat, parse_json_object

HELLO = [{"role": "user", "content": "hello"}]


def refusal(**fields: Any) -> str:
    with pytest.raises(PolicyError) as caught:
        parse_chat({"messages": HELLO, **fields})
    assert caught.value.kind == "bad_request"
    assert caught.value.status == 400
    return str(caught.value)


def test_inference_fields_reach_the_policy_and_the_gateways_own_do_not() -> None:
    call = parse_chat(
        {"model": "mine", "messages": HELLO, "stream": True, "n": 1, "temperature": 0.5, "top_k": 7, "seed": 1}, "r1"
    )
    assert call.request.params == {"temperature": 0.5, "top_k": 7, "seed": 1}
    assert (call.caller_model, call.stream, call.request.rollout_id) == ("mine", True, "r1")
    assert call.request.stream


def test_stream_options_ask_for_the_usage_chunk() -> None:
    assert parse_chat({"messages": HELLO, "stream_options": {"include_usage": True}}).include_usage
    assert not parse_chat({"messages": HELLO, "stream_options": None}).include_usage


@pytest.mark.parametrize("n", [0, 2, True, "1"])
def test_more_than_one_choice_is_refused(n: object) -> None:
    assert "n must be 1" in refusal(n=n)


def test_extra_body_is_merged_deeply_over_the_top_level() -> None:
    call = parse_chat(
        {
            "messages": HELLO,
            "chat_template_kwargs": {"a": 1, "deep": {"x": 1}},
            "extra_body": {"chat_template_kwargs": {"deep": {"y": 2}}, "top_k": 3},
        }
    )
    assert call.request.params == {"chat_template_kwargs": {"a": 1, "deep": {"x": 1, "y": 2}}, "top_k": 3}


def test_extra_body_must_be_one_object_without_the_gateways_fields() -> None:
    assert "extra_body must be an object" in refusal(extra_body=[1])
    assert "another extra_body" in refusal(extra_body={"extra_body": {}})
    assert "must not set messages, stream" in refusal(extra_body={"messages": [], "stream": True})
    assert parse_chat({"messages": HELLO, "model": "a", "extra_body": {"model": "b"}}).caller_model == "b"


@pytest.mark.parametrize(
    "name",
    [
        "api_key",
        "api_base",
        "base_url",
        "extra_headers",
        "drop_params",
        "engine",
        "system",
        "prompt",
        "input",
        "usage",
        "preset",
        "models",
        "num_retries",
        "fallbacks",
        "mock_response",
        "custom_llm_provider",
        "_private",
        "litellm_metadata",
        "aws_region_name",
        "azure_ad_token",
        "vertex_project",
        "watsonx_token",
        "sagemaker_base_url",
        "oci_key",
        "wx_api_key",
        "s3_bucket_name",
        "langfuse_public_key",
        "input_cost_per_token",
    ],
)
def test_control_fields_are_refused_by_name_wherever_they_stand(name: str) -> None:
    assert name in refusal(**{name: "x"})
    assert name in refusal(extra_body={name: "x"})


def test_every_refused_field_is_named_and_metadata_is_none_of_them() -> None:
    text = refusal(api_key="k", timeout=3, temperature=1, metadata={"a": "b"})
    assert "api_key, timeout" in text
    assert "temperature" not in text
    assert "metadata" not in text


def test_the_openai_parameters_are_inference_parameters() -> None:
    openai = """audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens max_tokens
        metadata modalities parallel_tool_calls prediction presence_penalty prompt_cache_key reasoning_effort
        response_format safety_identifier seed service_tier stop store temperature tool_choice top_logprobs top_p user
        verbosity web_search_options top_k min_p repetition_penalty chat_template_kwargs guided_json provider
        transforms thinking reasoning include_reasoning min_tokens ignore_eos skip_special_tokens"""
    assert control_fields(openai.split()) == []


def test_empty_tools_are_dropped_with_what_depends_on_them() -> None:
    request = parse_chat(
        {"messages": HELLO, "tools": [], "tool_choice": "auto", "parallel_tool_calls": False, "top_p": 1}
    ).request
    assert request.tools is None
    assert request.params == {"top_p": 1}


def test_broken_tool_call_arguments_in_history_stay_verbatim() -> None:
    history = [
        *HELLO,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1, '}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "error: not JSON"},
    ]
    assert list(parse_chat({"messages": history}).request.messages) == history


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"messages": None}, "messages must be a list"),
        ({"messages": []}, "messages must be a list"),
        ({"messages": ["hi"]}, "messages[0] must be an object"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content must be a string"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "assistant", "tool_calls": {"id": 1}}]}, "messages[0].tool_calls"),
        ({"tools": {"a": 1}}, "tools must be a list"),
        ({"tools": [1]}, "tools must be a list"),
        ({"stream": "yes"}, "stream must be true or false"),
        ({"stream_options": True}, "stream_options must be an object"),
        ({"model": 4}, "model must be a string"),
    ],
)
def test_wrong_types_are_refused_with_their_place(fields: dict[str, Any], complaint: str) -> None:
    assert complaint in refusal(**fields)


@pytest.mark.parametrize(
    ("raw", "complaint"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[]", "must be a JSON object, not a list"),
        (b"null", "must be a JSON object, not null"),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b'{"a": 1e400}', "too large"),
        (b'{"a": -Infinity}', "-Infinity is not a JSON number"),
        (b'{"a": ' + b"9" * 5000 + b"}", "cannot be read"),
        (b'{"a": "\xff"}', "not UTF-8"),
        (b"[" * 100_000, "cannot be read"),
        (b'{"messages": [{"content": "half \\ud83d"}]}', "messages[0].content holds a lone surrogate"),
        (b'{"\\uDC00": 1}', "a field name in the body holds a lone surrogate"),
    ],
)
def test_bodies_that_are_no_clean_json_object_are_refused(raw: bytes, complaint: str) -> None:
    with pytest.raises(PolicyError) as caught:
        parse_json_object(raw)
    assert complaint in str(caught.value)
    assert caught.value.status == 400


def test_whole_surrogate_pairs_are_text() -> None:
    assert parse_json_object(b'{"a": "\\ud83d\\ude00"}') == {"a": "😀"}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
names = st.sampled_from(["model", "messages", "tools", "stream", "stream_options", "n", "extra_body", "temperature"])


@settings(deadline=None)
@given(st.dictionaries(names | st.text(max_size=6), json_values, max_size=6))
def test_any_json_object_is_parsed_or_refused_and_never_crashes(body: dict[str, Any]) -> None:
    try:
        parsed = parse_json_object(json.dumps(body).encode())
        request = parse_chat(parsed).request
    except PolicyError as error:
        assert error.kind == "bad_request"
        assert len(str(error)) < 5000
    else:
        assert request.messages
        json.dumps(dict(request.params), allow_nan=False).encode()
