"""Which endpoint a model path means, what is sent there, and what its answers and failures become."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from typing import Any

import pytest
from gateway_rig import MULTIPLY, QUESTION
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from osmosis_ai.errors import ValidationError
from osmosis_ai.gateway.assembly import Assembly
from osmosis_ai.gateway.chat_wire import read_chunk, read_completion, read_error, read_usage, retry_after_s
from osmosis_ai.gateway.litellm_policy import LiteLLMPolicy
from osmosis_ai.gateway.openai_http import OpenAICompatiblePolicy
from osmosis_ai.gateway.policy import ChatRequest, Policy, PolicyError, Usage
from osmosis_ai.gateway.provider import provider_policy
from osmosis_ai.gateway.providers import LITELLM_ONLY, OPENAI_COMPATIBLE, split_model_path
from stub_provider import Behaviour, StubProvider


def compatible(model_path: str, environ: dict[str, str]) -> OpenAICompatiblePolicy:
    policy = provider_policy(model_path, environ)
    assert isinstance(policy, OpenAICompatiblePolicy)
    return policy


async def answer(policy: Policy, *, stream: bool = False, **params: Any) -> Assembly:
    assembly = Assembly()
    tools = params.pop("tools", None)
    messages = params.pop("messages", QUESTION)
    async for piece in policy.chat(ChatRequest(messages, tools, params, "r", stream)):
        assembly.add(piece)
    assembly.finish()
    return assembly


async def failure(policy: Policy, **params: Any) -> PolicyError:
    with pytest.raises(PolicyError) as caught:
        await answer(policy, **params)
    return caught.value


def official(stub: StubProvider, model: str) -> OpenAICompatiblePolicy:
    openai = OPENAI_COMPATIBLE["openai"]
    return OpenAICompatiblePolicy(
        f"openai/{model}", model, openai, base_url=stub.base_url, api_key="k", environ={}, wire="responses"
    )


# -- routing


@pytest.mark.parametrize(
    ("model_path", "environ", "base"),
    [
        ("openai/gpt-4.1", {}, "https://api.openai.com/v1"),
        ("gpt-4.1", {}, "https://api.openai.com/v1"),
        ("openai/x", {"OPENAI_BASE_URL": "http://a/v1/", "OPENAI_API_BASE": "http://b"}, "http://a/v1"),
        ("openai/x", {"OPENAI_API_BASE": "http://b"}, "http://b"),
        ("openrouter/meta-llama/llama-3.3-70b", {}, "https://openrouter.ai/api/v1"),
        ("groq/openai/gpt-oss-20b", {"GROQ_API_BASE": "http://c"}, "http://c"),
        ("ollama/qwen3", {"OLLAMA_API_BASE": "http://gpu:11434"}, "http://gpu:11434/v1"),
        ("ollama_chat/qwen3", {}, "http://localhost:11434/v1"),
        ("fireworks_ai/accounts/x", {"FIREWORKS_API_BASE": "http://d"}, "http://d"),
        ("grok-4", {}, "https://api.x.ai/v1"),
    ],
)
def test_a_model_path_means_an_endpoint(model_path: str, environ: dict[str, str], base: str) -> None:
    assert compatible(model_path, environ).base_url == base


def test_only_openais_own_endpoint_is_spoken_to_in_responses() -> None:
    assert compatible("openai/gpt-4.1", {}).wire == "responses"
    assert compatible("openai/gpt-4.1", {"OPENAI_BASE_URL": "https://eu.api.openai.com/v1"}).wire == "responses"
    assert compatible("openai/gpt-4.1", {"OPENAI_BASE_URL": "https://api.openai.com.evil.example/v1"}).wire == "chat"
    assert compatible("groq/x", {}).wire == "chat"


def test_other_known_prefixes_go_through_litellm_which_is_not_imported_for_it() -> None:
    for path in ("anthropic/claude-sonnet-4-5", "gemini/gemini-2.5-flash", "bedrock/x", "azure/d", "claude-opus-4-5"):
        assert isinstance(provider_policy(path, {}), LiteLLMPolicy)
    assert provider_policy("claude-opus-4-5", {}).model == "anthropic/claude-opus-4-5"


@pytest.mark.parametrize(
    "path", ["", "/", "openai", "openai/", "/gpt-4", "nobody/model", "mistral-large", "osmosis/nano"]
)
def test_an_unknown_provider_is_an_error_with_examples(path: str) -> None:
    with pytest.raises(ValidationError) as caught:
        provider_policy(path, {})
    assert repr(path) in str(caught.value)
    assert "openai/gpt-4.1-mini" in str(caught.value) or "local" in str(caught.value)


def test_the_provider_tables_do_not_overlap() -> None:
    assert not OPENAI_COMPATIBLE.keys() & LITELLM_ONLY
    assert split_model_path(" openrouter/a/b:free ") == ("openrouter", "a/b:free")


def test_importing_the_gateway_loads_no_framework() -> None:
    code = (
        "import sys, osmosis_ai.gateway.server, osmosis_ai.gateway.provider, osmosis_ai.gateway.openai_http\n"
        "import osmosis_ai.gateway.litellm_policy, osmosis_ai.eval.rubric, osmosis_ai.eval.local\n"
        "heavy = {'fastapi', 'litellm', 'openai', 'starlette', 'uvicorn', 'httpx', 'pydantic'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


async def test_a_missing_key_names_its_variable(stub: StubProvider) -> None:
    error = await failure(provider_policy("groq/llama", {}))
    assert (error.kind, error.fatal) == ("authentication", True)
    assert "GROQ_API_KEY" in str(error)
    with pytest.raises(PolicyError, match="OPENROUTER_API_KEY or OR_API_KEY"):
        await provider_policy("openrouter/x", {}).preflight()
    # an endpoint of the user's own may need none
    assert (await answer(provider_policy("openai/text", {"OPENAI_BASE_URL": stub.base_url}))).finish_reason == "stop"
    assert "authorization" not in stub.completions[-1].headers


async def test_a_missing_base_names_its_variable() -> None:
    with pytest.raises(PolicyError, match="HOSTED_VLLM_API_BASE"):
        await provider_policy("hosted_vllm/x", {}).preflight()


@pytest.mark.parametrize("key", ["two\nlines-secret", "schlüssel-geheim"])
async def test_a_key_that_cannot_be_sent_is_refused_without_showing_it(stub: StubProvider, key: str) -> None:
    error = await failure(provider_policy("openai/x", {**stub.environ(), "OPENAI_API_KEY": key}))
    assert (error.kind, stub.requests) == ("authentication", [])
    assert "OPENAI_API_KEY" in str(error)
    assert "lines-secret" not in str(error)
    assert "geheim" not in str(error)


async def test_a_base_without_a_scheme_is_named() -> None:
    error = await failure(provider_policy("openai/x", {"OPENAI_BASE_URL": "localhost:8000/v1"}))
    assert error.fatal
    assert "'localhost:8000/v1': write http:// or https:// in OPENAI_BASE_URL" in str(error)


async def test_loopback_never_goes_through_a_proxy(stub: StubProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    assert (await answer(provider_policy("openai/text", stub.environ()))).usage is not None


async def test_connections_are_used_again(stub: StubProvider) -> None:
    policy = provider_policy("openai/text", stub.environ())
    for stream in (True, False, True, False, True):
        await answer(policy, stream=stream)
    assert stub.open_connections == 1
    await policy.aclose()


# -- what is sent


async def test_metadata_goes_only_where_it_is_understood(stub: StubProvider) -> None:
    await answer(provider_policy("openai/text", stub.environ()), metadata={"a": "b"})
    assert stub.completions[-1].body["metadata"] == {"a": "b"}
    error = await failure(
        provider_policy("hosted_vllm/x", {"HOSTED_VLLM_API_BASE": stub.base_url}), metadata={"a": "b"}
    )
    assert (error.kind, error.status) == ("bad_request", 400)
    assert "hosted_vllm" in str(error)


async def test_openrouter_is_asked_for_the_price_and_believed(stub: StubProvider) -> None:
    policy = provider_policy("openrouter/text", {"OPENROUTER_API_BASE": stub.base_url, "OPENROUTER_API_KEY": "k"})
    body = {
        "choices": [{"message": {"content": "x"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "cost": 0.0125},
    }
    stub.script(Behaviour("raw", status=200, body=body))
    assert (await answer(policy)).cost_usd == 0.0125
    assert stub.completions[-1].body["usage"] == {"include": True}


async def test_a_provider_that_refuses_stream_options_is_asked_without(stub: StubProvider) -> None:
    policy = provider_policy("openai/trailing-usage", stub.environ())
    stub.script(Behaviour("status", status=400, text="unknown field stream_options"))
    assert (await answer(policy, stream=True)).usage is not None
    assert [("stream_options" in r.body) for r in stub.completions] == [True, False]
    await answer(policy, stream=True)
    assert "stream_options" not in stub.completions[-1].body


async def test_the_official_endpoint_gets_responses_bodies(stub: StubProvider) -> None:
    policy = official(stub, "multiply")
    for stream in (False, True):
        one = await answer(
            policy,
            stream=stream,
            tools=[MULTIPLY],
            max_tokens=50,
            max_completion_tokens=50,
            reasoning_effort="low",
            response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": {}}},
            tool_choice={"type": "function", "function": {"name": "multiply"}},
            custom=1,
        )
        assert one.finish_reason == "tool_calls"
        assert one.message()["tool_calls"][0]["function"]["arguments"] == '{"a": 12, "b": 11}'
        assert one.usage is not None
    sent = stub.completions[-1]
    assert sent.path.endswith("/responses")
    assert sent.body["max_output_tokens"] == 50
    assert sent.body["reasoning"] == {"effort": "low"}
    assert sent.body["text"] == {"format": {"type": "json_schema", "name": "s", "schema": {}}}
    assert sent.body["tool_choice"] == {"type": "function", "name": "multiply"}
    assert sent.body["tools"][0]["name"] == "multiply"
    assert sent.body["custom"] == 1
    assert sent.body["store"] is False
    history = [*QUESTION, one.message(), {"role": "tool", "tool_call_id": "call_1_0", "content": "132"}]
    final = await answer(policy, messages=history, tools=[MULTIPLY])
    assert final.message()["content"].endswith("#### 132")
    assert [item.get("type", item.get("role")) for item in stub.completions[-1].body["input"]] == [
        "user",
        "function_call",
        "function_call_output",
    ]
    assert (await failure(policy, max_tokens=1, max_completion_tokens=2)).status == 400
    assert "stop" in str(await failure(policy, stop=["x"]))
    stub.script(Behaviour("length"), Behaviour("length"), Behaviour("cut"))
    assert (await answer(policy)).finish_reason == "length"
    assert (await answer(policy, stream=True)).finish_reason == "length"
    assert (await failure(policy, stream=True)).kind == "unavailable"
    await policy.aclose()


async def test_encrypted_thinking_travels_between_turns_and_is_not_asked_of_models_without(stub: StubProvider) -> None:
    policy = official(stub, "multiply")
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}
    call = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "multiply", "arguments": "{}"}
    reply = {"status": "completed", "output": [{**thought, "status": None}, call], "usage": None}
    stub.script(Behaviour("raw", status=200, body=reply))
    first = (await answer(policy, tools=[MULTIPLY])).message()
    assert stub.completions[-1].body["include"] == ["reasoning.encrypted_content"]
    await answer(policy, messages=[*QUESTION, first, {"role": "tool", "tool_call_id": "c1", "content": "132"}])
    assert stub.completions[-1].body["input"][1] == thought
    stub.script(Behaviour("status", status=400, text="Encrypted content is not supported with this model."))
    plain = official(stub, "text")
    for _ in range(2):
        await answer(plain)
    assert [("include" in request.body) for request in stub.completions[-3:]] == [True, False, False]
    await answer(official(stub, "text"), store=True)
    assert "include" not in stub.completions[-1].body


# -- preflight


async def test_preflight_is_one_free_look_at_the_model(stub: StubProvider) -> None:
    await provider_policy("openai/text", stub.environ()).preflight()
    assert [(r.method, r.path) for r in stub.requests] == [("GET", "/v1/models/text")]


async def test_preflight_without_a_model_list_costs_one_token(stub: StubProvider) -> None:
    stub.strict_models = True
    await provider_policy("openai/unlisted", stub.environ()).preflight()
    assert stub.requests[-1].body["max_tokens"] == 1
    assert len(stub.completions) == 1


async def test_preflight_fails_for_a_wrong_key_a_missing_model_and_a_dead_endpoint(stub: StubProvider) -> None:
    stub.api_key = "right"
    with pytest.raises(PolicyError) as caught:
        await provider_policy("openai/text", {**stub.environ(), "OPENAI_API_KEY": "wrong-key-1234"}).preflight()
    assert caught.value.kind == "authentication"
    assert str(caught.value).endswith(f"(from {stub.base_url}; the key is read from OPENAI_API_KEY)")
    stub.api_key = None
    stub.strict_models = True
    with pytest.raises(PolicyError) as caught:
        await provider_policy("openai/status:404", stub.environ()).preflight()
    assert caught.value.kind == "not_found"
    assert str(caught.value).endswith(f"(model 'status:404' at {stub.base_url}/chat/completions)")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        with pytest.raises(PolicyError, match=dead) as caught:
            await provider_policy("openai/x", {"OPENAI_BASE_URL": dead}).preflight()
    assert caught.value.kind == "unavailable"


async def test_preflight_lets_a_rate_limit_pass(stub: StubProvider) -> None:
    stub.strict_models = True
    await provider_policy("openai/status:429", stub.environ()).preflight()


# -- what comes back


@pytest.mark.parametrize(
    ("behaviour", "kind", "words"),
    [
        (Behaviour("html"), "protocol", "HTML page"),
        (Behaviour("html", status=502), "unavailable", "answered 502 with an HTML page"),
        (Behaviour("raw", status=200, body=[]), "protocol", "not a JSON object"),
        (Behaviour("raw", status=200, body={"choices": [{}]}), "protocol", "without a message"),
        (
            Behaviour("raw", status=302, body="", headers={"location": "http://x/"}),
            "not_found",
            "redirects to http://x/",
        ),
        (Behaviour("raw", status=400, body={"detail": [{"msg": "bad"}]}), "bad_request", "bad"),
        (Behaviour("raw", status=400, body={"error": "plain words"}), "bad_request", "plain words"),
        (
            Behaviour("raw", status=200, body={"error": {"message": "slow down", "code": 429}}),
            "rate_limit",
            "slow down",
        ),
        (Behaviour("raw", status=400, body={"error": {"message": "no", "code": "model_not_found"}}), "not_found", "no"),
        (Behaviour("raw", status=403, body={"error": {"message": "input was flagged"}}), "bad_request", "flagged"),
        (Behaviour("cut"), "unavailable", "broke"),
    ],
)
async def test_odd_answers_become_policy_errors(
    stub: StubProvider, behaviour: Behaviour, kind: str, words: str
) -> None:
    stub.script(behaviour)
    error = await failure(provider_policy("openai/x", stub.environ()))
    assert error.kind == kind
    assert words in str(error)
    assert "\n" not in str(error)


async def test_silence_is_a_timeout(stub: StubProvider) -> None:
    error = await failure(provider_policy("openai/hang", stub.environ(), timeout_s=0.2))
    assert error.kind == "timeout"
    assert "0.2 s" in str(error)


def test_retry_after_is_seconds_milliseconds_or_a_date() -> None:
    assert retry_after_s({"retry-after": "1.5"}) == 1.5
    assert retry_after_s({"retry-after-ms": "250", "retry-after": "9"}) == 0.25
    assert retry_after_s({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0
    future = retry_after_s({"retry-after": "Wed, 21 Oct 2099 07:28:00 GMT"})
    assert future is not None
    assert future > 1e6
    for nonsense in ("soon", "inf", "nan", ""):
        assert retry_after_s({"retry-after": nonsense}) is None
    assert retry_after_s({}) is None


def test_usage_that_makes_no_sense_is_none() -> None:
    for nonsense in (None, 3, {}, {"prompt_tokens": None, "completion_tokens": "x"}, {"prompt_tokens": -1}):
        assert read_usage(nonsense) is None
    assert read_usage({"prompt_tokens": 3, "completion_tokens": None, "prompt_tokens_details": None}) == Usage(3, 0)
    details = {"prompt_tokens_details": {"cached_tokens": 1}, "completion_tokens_details": {"reasoning_tokens": 2}}
    assert read_usage({"prompt_tokens": 3, "completion_tokens": 4, **details}) == Usage(3, 4, 1, 2)


def test_log_probabilities_and_content_parts_do_not_confuse_an_answer() -> None:
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "yes"}]
    piece = read_completion(
        {
            "prompt_logprobs": [None, {"1": {"logprob": -1}}],
            "choices": [{"message": {"role": "assistant", "content": parts}, "logprobs": {"content": []}}],
        }
    )
    assert piece.delta["content"] == "yes"
    assert piece.delta["reasoning_content"] == "hm"
    assert piece.finish_reason == "stop"
    assert read_chunk({"choices": []}) is None
    assert read_chunk({"choices": [{"delta": None, "finish_reason": "stop"}]}) is not None


def test_an_error_page_is_named_not_quoted() -> None:
    error = read_error(502, "<!DOCTYPE html><html>" + "x" * 5000, {})
    assert str(error) == "the provider answered 502 with an HTML page"


async def test_many_calls_at_once_share_small_pools_and_leave_them_usable(stub: StubProvider) -> None:
    policy = provider_policy("openai/text", stub.environ())
    stub.answer_with(lambda body: Behaviour("text", delay_s=0.3))
    answers = await asyncio.gather(*(answer(policy, stream=i % 2 == 0) for i in range(100)))
    assert {one.message()["content"] for one in answers} == {"Hello from the stub."}
    opened = stub.open_connections
    assert opened <= 100
    stub.answer_with(None)
    for _ in range(10):
        await answer(policy)
    assert stub.open_connections <= opened
    await policy.aclose()


async def test_preflight_does_not_take_a_web_page_for_a_model(stub: StubProvider) -> None:
    stub.models_page = True
    with pytest.raises(PolicyError) as caught:
        await provider_policy("openai/html", stub.environ()).preflight()
    assert caught.value.kind == "protocol"


words = st.sampled_from(
    """message function_call reasoning output_text completed incomplete failed response.completed error stop length
    response.output_item.added response.output_text.delta response.function_call_arguments.delta""".split()
)
keys = st.sampled_from(
    """choices message delta content tool_calls function name arguments index id type usage prompt_tokens error code
    completion_tokens prompt_tokens_details cached_tokens finish_reason output item response status input_tokens
    output_index incomplete_details summary text input_tokens_details reasoning_content thinking_blocks""".split()
)
odd = st.recursive(
    st.none() | st.booleans() | st.integers() | words | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=5),
    max_leaves=16,
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(reply=odd, responses=st.booleans())
async def test_any_reply_is_an_answer_or_a_policy_error(stub: StubProvider, reply: Any, responses: bool) -> None:
    policy = OpenAICompatiblePolicy(
        "openai/x",
        "x",
        OPENAI_COMPATIBLE["openai"],
        base_url=stub.base_url,
        api_key="k",
        environ={},
        wire="responses" if responses else "chat",
    )
    stub.script(Behaviour("raw", status=200, body=reply))
    try:
        (await answer(policy)).message()
    except PolicyError:
        pass
    await policy.aclose()


@settings(deadline=None)
@given(reply=odd)
def test_any_chunk_is_a_piece_or_a_policy_error(reply: Any) -> None:
    assembly = Assembly()
    try:
        if (piece := read_chunk(reply)) is not None:
            assembly.add(piece)
            assembly.finish()
            json.dumps(assembly.message())
    except PolicyError:
        pass
