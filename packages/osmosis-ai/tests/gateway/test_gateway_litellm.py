"""Providers behind LiteLLM, by an Azure deployment on the stub: answers, errors, silence on stderr, no network."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from gateway_rig import MULTIPLY, QUESTION
from osmosis_ai.gateway.assembly import Assembly
from osmosis_ai.gateway.policy import ChatRequest, Policy, PolicyError
from osmosis_ai.gateway.provider import provider_policy
from osmosis_ai.gateway.providers import LITELLM_ONLY, OPENAI_COMPATIBLE
from osmosis_ai.gateway.rules import control_fields
from stub_provider import Behaviour, StubProvider

pytest.importorskip("litellm")


@pytest.fixture
def azure(stub: StubProvider, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    environ = {
        "AZURE_API_BASE": stub.base_url.removesuffix("/v1"),
        "AZURE_API_KEY": "azure-key-123456",
        "AZURE_API_VERSION": "2024-10-21",
    }
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    return environ


async def answer(policy: Policy, *, stream: bool = False, tools: Any = None, **params: Any) -> Assembly:
    assembly = Assembly()
    async for piece in policy.chat(ChatRequest(QUESTION, tools, params, "r", stream)):
        assembly.add(piece)
    assembly.finish()
    return assembly


@pytest.mark.parametrize("stream", [False, True])
async def test_answers_come_through(azure: dict[str, str], stub: StubProvider, stream: bool) -> None:
    policy = provider_policy("azure/multiply", azure)
    one = await answer(policy, stream=stream, tools=[MULTIPLY], temperature=0.5, metadata={"a": "b"})
    assert one.message()["tool_calls"][0]["function"]["arguments"] == '{"a": 12, "b": 11}'
    assert one.finish_reason == "tool_calls"
    assert one.usage is not None
    assert stub.completions[-1].headers["api-key"] == "azure-key-123456"
    assert stub.completions[-1].body["metadata"] == {"a": "b"}
    await policy.aclose()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("status:401", "authentication"),
        ("status:404", "not_found"),
        ("status:429", "rate_limit"),
        ("status:400", "bad_request"),
        ("status:500", "unavailable"),
        ("cut", "unavailable"),
        ("hang", "timeout"),
    ],
)
async def test_errors_keep_their_kind_and_one_try(
    azure: dict[str, str], stub: StubProvider, model: str, kind: str, stream: bool
) -> None:
    policy = provider_policy(f"azure/{model}", azure, timeout_s=0.5)
    with pytest.raises(PolicyError) as caught:
        await answer(policy, stream=stream)
    assert caught.value.kind == kind
    assert "Traceback" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not str(caught.value).startswith("litellm.")
    assert len(stub.completions) == 1


async def test_a_dead_endpoint_is_told_without_litellms_internals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_BASE", "http://127.0.0.1:9")
    environ = {"ANTHROPIC_API_KEY": "sk-ant-12345678"}
    with pytest.raises(PolicyError, match=r"Cannot connect to host 127\.0\.0\.1:9") as caught:
        await answer(provider_policy("anthropic/claude-sonnet-4-5", environ))
    assert "litellm" not in str(caught.value) and "object at" not in str(caught.value)


async def test_what_is_no_answer_is_an_error_and_no_usage_is_none(azure: dict[str, str], stub: StubProvider) -> None:
    for model in ("html", "no-choices"):
        for stream in (False, True):
            with pytest.raises(PolicyError) as caught:
                await answer(provider_policy(f"azure/{model}", azure), stream=stream)
            assert caught.value.transient
    assert (await answer(provider_policy("azure/null-usage", azure))).usage is None
    assert (await answer(provider_policy("azure/null-content", azure))).message()["content"] == ""


async def test_retry_after_is_kept(azure: dict[str, str], stub: StubProvider) -> None:
    stub.script(Behaviour("status", status=429, retry_after="7"))
    with pytest.raises(PolicyError) as caught:
        await answer(provider_policy("azure/x", azure))
    assert caught.value.retry_after_s == 7


async def test_preflight_is_one_token(azure: dict[str, str], stub: StubProvider) -> None:
    await provider_policy("azure/text", azure).preflight()
    assert [request.body["max_tokens"] for request in stub.completions] == [1]
    await provider_policy("azure/status:429", azure).preflight()
    with pytest.raises(PolicyError):
        await provider_policy("azure/status:401", azure).preflight()


@pytest.mark.parametrize(
    ("path", "metadata", "words"),
    [("anthropic/c", {"tag": "x"}, "only metadata.user_id"), ("gemini/g", {"a": "b"}, "metadata is not supported")],
)
async def test_metadata_is_refused_where_it_is_not_understood(path: str, metadata: Any, words: str) -> None:
    keys = {"ANTHROPIC_API_KEY": "k", "GEMINI_API_KEY": "k"}
    with pytest.raises(PolicyError, match=words) as caught:
        await answer(provider_policy(path, keys), metadata=metadata)
    assert caught.value.status == 400


async def test_a_missing_key_is_found_without_importing_anything() -> None:
    with pytest.raises(PolicyError, match="ANTHROPIC_API_KEY") as caught:
        await provider_policy("anthropic/claude-sonnet-4-5", {}).preflight()
    assert caught.value.kind == "authentication"


async def test_without_litellm_its_providers_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "litellm", None)
    with pytest.raises(PolicyError, match=r"pip install \"osmosis-ai\[rubric\]\"") as caught:
        await provider_policy("anthropic/claude-sonnet-4-5", {"ANTHROPIC_API_KEY": "k"}).preflight()
    assert caught.value.fatal


def test_nothing_but_our_own_lines_reaches_the_terminal(stub: StubProvider) -> None:
    code = """
import asyncio, os
from osmosis_ai.gateway.policy import ChatRequest, PolicyError
from osmosis_ai.gateway.provider import provider_policy
async def main():
    for model in ("status:500", "text", "html"):
        for stream in (True, False):
            try:
                request = ChatRequest([{"role": "user", "content": "hi"}], None, {}, "r", stream)
                async for _ in provider_policy("azure/" + model, os.environ).chat(request): pass
            except PolicyError: pass
asyncio.run(main())
"""
    environ = {
        **os.environ,
        "AZURE_API_BASE": stub.base_url.removesuffix("/v1"),
        "AZURE_API_KEY": "azure-key-123456",
        "AZURE_API_VERSION": "2024-10-21",
        "HTTPS_PROXY": "http://127.0.0.1:1",
    }
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_our_tables_know_what_litellm_knows() -> None:
    import litellm
    from litellm.types.utils import all_litellm_params

    known = {getattr(provider, "value", provider) for provider in litellm.provider_list}
    assert known <= LITELLM_ONLY | OPENAI_COMPATIBLE.keys()
    owned = set(all_litellm_params) - {"metadata"}
    missed = owned - set(control_fields(owned))
    assert not missed, sorted(missed)
