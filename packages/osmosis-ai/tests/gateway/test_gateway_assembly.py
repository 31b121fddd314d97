"""Pieces of an answer put together, reasoning remembered, records and prices made."""

from __future__ import annotations

import json
from typing import Any

import pytest
from osmosis_ai.gateway.assembly import Assembly
from osmosis_ai.gateway.memory import ReasoningMemory
from osmosis_ai.gateway.policy import ChatDelta, ChatRequest, PolicyError, Usage
from osmosis_ai.gateway.prices import Price, PriceTable, shipped_prices
from osmosis_ai.gateway.proxies import is_loopback, loopback_no_proxy
from osmosis_ai.gateway.record import CallError, CallRecord, SessionRecord, share_messages
from osmosis_ai.gateway.scrub import Scrubber


def assemble(*deltas: dict[str, Any], finish: str | None = "stop") -> tuple[Assembly, list[dict[str, Any]]]:
    assembly = Assembly()
    wire = [assembly.add(ChatDelta(delta)) for delta in deltas]
    assembly.add(ChatDelta(finish_reason=finish))
    assembly.finish()
    return assembly, [piece for piece in wire if piece]


def test_text_is_joined_and_the_role_goes_out_once() -> None:
    assembly, wire = assemble({"role": "assistant", "content": ""}, {"content": "Hel"}, {"content": "lo"})
    assert assembly.message() == {"role": "assistant", "content": "Hello"}
    assert wire == [{"role": "assistant", "content": "Hel"}, {"content": "lo"}]


def test_null_content_becomes_empty_text() -> None:
    assert assemble({"role": "assistant", "content": None})[0].message()["content"] == ""


def test_fragments_of_interleaved_tool_calls_find_their_call() -> None:
    assembly, _ = assemble(
        {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x"'}}]},
        {"tool_calls": [{"index": 1, "id": "b", "function": {"name": "g", "arguments": "{"}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}, {"index": 1, "function": {"arguments": "}"}}]},
        finish=None,
    )
    calls = assembly.message()["tool_calls"]
    assert [(c["id"], c["type"], c["function"]["name"], c["function"]["arguments"]) for c in calls] == [
        ("a", "function", "f", '{"x": 1}'),
        ("b", "function", "g", "{}"),
    ]
    assert assembly.finish_reason == "tool_calls"


def test_calls_without_index_or_id_are_told_apart_by_their_names() -> None:
    assembly, wire = assemble(
        {"tool_calls": [{"function": {"name": "f", "arguments": "{"}}]},
        {"tool_calls": [{"function": {"arguments": "}"}}]},
        {"tool_calls": [{"function": {"name": "g", "arguments": {"already": "parsed"}}}]},
    )
    first, second = assembly.message()["tool_calls"]
    assert (first["function"], second["function"]) == (
        {"name": "f", "arguments": "{}"},
        {"name": "g", "arguments": '{"already": "parsed"}'},
    )
    assert first["id"].startswith("call_")
    assert first["id"] != second["id"]
    assert [piece["tool_calls"][0]["index"] for piece in wire] == [0, 0, 1]


def test_calls_that_are_all_numbered_zero_are_told_apart_by_their_ids() -> None:
    assembly, _ = assemble(
        {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}]},
        {"tool_calls": [{"index": 0, "id": "b", "function": {"name": "g", "arguments": "{}"}}]},
    )
    assert [call["id"] for call in assembly.message()["tool_calls"]] == ["a", "b"]


@pytest.mark.parametrize(
    ("said", "meant"),
    [("stop", "stop"), ("max_tokens", "length"), ("SAFETY", "content_filter"), ("eos", "stop"), (None, "stop")],
)
def test_finish_reasons_of_all_dialects_become_the_four_words(said: str | None, meant: str) -> None:
    assert assemble({"content": "x"}, finish=said)[0].finish_reason == meant


def test_nothing_at_all_is_a_protocol_error() -> None:
    with pytest.raises(PolicyError, match="no choices") as caught:
        Assembly().finish()
    assert caught.value.kind == "protocol"


def test_reasoning_comes_under_one_name_and_its_blocks_are_joined_up_to_the_signature() -> None:
    assembly, _ = assemble(
        {"reasoning": "I ", "thinking_blocks": [{"type": "thinking", "thinking": "I "}]},
        {"reasoning": "think", "thinking_blocks": [{"type": "thinking", "thinking": "think"}]},
        {"thinking_blocks": [{"type": "thinking", "thinking": "", "signature": "s1"}]},
        {"thinking_blocks": [{"type": "thinking", "thinking": "more"}]},
        {"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "a"}]},
        {"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "b"}]},
    )
    message = assembly.message()
    assert message["reasoning_content"] == "I think"
    assert message["thinking_blocks"] == [
        {"type": "thinking", "thinking": "I think", "signature": "s1"},
        {"type": "thinking", "thinking": "more"},
    ]
    assert message["reasoning_details"] == [{"type": "reasoning.text", "index": 0, "text": "ab"}]


def turn(arguments: str, **fields: Any) -> dict[str, Any]:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return {"role": "assistant", "content": "", "tool_calls": [call], **fields}


def test_dropped_reasoning_of_a_tool_call_turn_comes_back_though_its_arguments_were_rewritten() -> None:
    memory = ReasoningMemory()
    memory.remember(turn('{"a":1,"b":2}', reasoning_content="because"))
    history = [{"role": "user", "content": "x"}, turn('{"b": 2, "a": 1}'), {"role": "tool", "content": "y"}]
    restored = memory.restore(history)
    assert restored[1]["reasoning_content"] == "because"
    assert "reasoning_content" not in history[1]


def test_reasoning_that_is_there_or_belongs_to_other_calls_is_left_alone() -> None:
    memory = ReasoningMemory()
    memory.remember(turn('{"a": 1}', reasoning_content="because"))
    memory.remember({"role": "assistant", "content": "no calls", "reasoning_content": "gone"})
    kept = [turn('{"a": 1}', reasoning_content="the client's own"), turn('{"a": 2}'), {"role": "assistant"}]
    assert memory.restore(kept) is kept


def record(**fields: Any) -> CallRecord:
    return CallRecord(index=0, started_at="2026-01-01T00:00:00+00:00", duration_s=0.5, **fields)


def test_totals_are_absent_when_nothing_was_counted_and_costs_when_any_is_unknown() -> None:
    assert SessionRecord("r").tokens is None
    assert SessionRecord("r").cost_usd is None
    answered = {"response": {"message": {}}, "usage": Usage(10, 5)}
    priced, unpriced = record(cost_usd=0.25, **answered), record(**answered)
    failed = record(error=CallError.of(PolicyError("down", kind="unavailable")))
    uncounted = record(response={"message": {}})
    session = SessionRecord("r", (priced, failed, priced))
    assert (session.prompt_tokens, session.completion_tokens, session.tokens) == (20, 10, 30)
    assert session.cost_usd == 0.5
    assert SessionRecord("r", (priced, unpriced)).cost_usd is None
    assert SessionRecord("r", (priced, uncounted)).cost_usd is None
    assert SessionRecord("r", (failed,)).cost_usd is None
    assert session.last_error is not None
    assert session.last_error.kind == "unavailable"


def test_a_record_is_one_json_line() -> None:
    request = ChatRequest([{"role": "user", "content": "hi"}], None, {"temperature": 0})
    line = json.loads(json.dumps(record(request=request, usage=Usage(1, 2, 1, 0), cost_usd=0.0).to_json()))
    assert line["request"] == {
        "messages": [{"role": "user", "content": "hi"}],
        "tools": None,
        "params": {"temperature": 0},
    }
    assert line["usage"]["total_tokens"] == 3
    assert line["usage"]["prompt_tokens_details"] == {"cached_tokens": 1}
    assert line["cost_usd"] == 0.0


def test_messages_that_two_calls_share_are_one_object() -> None:
    first = [{"role": "user", "content": "x"}]
    second = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
    shared = share_messages(second, first)
    assert shared == second
    assert shared[0] is first[0]


def test_an_unknown_price_is_no_cost_and_the_embedded_models_cost_nothing() -> None:
    table = shipped_prices()
    usage = Usage(1_000_000, 1_000_000, cached_prompt_tokens=500_000)
    assert table.cost("openai/some-model-of-tomorrow", usage) is None
    assert table.cost("openai/gpt-4o-mini", None) is None
    assert table.cost("osmosis/nano", usage) == 0
    assert table.cost("openai/gpt-4o-mini", usage) == pytest.approx(0.5 * 0.15 + 0.5 * 0.075 + 0.6)
    assert table.as_of >= "2026-01-01"
    assert len(table) > 40


def test_a_price_holds_up_to_its_prompt_length() -> None:
    table = PriceTable({"p/m": Price(input=1, output=2, max_prompt_tokens=1000)}, "2026-01-01")
    assert table.cost("p/m", Usage(1000, 0)) == pytest.approx(0.001)
    assert table.cost("p/m", Usage(1001, 0)) is None


def test_errors_are_one_bounded_line_without_secret_values() -> None:
    scrub = Scrubber({"MY_API_KEY": "sk-12345678", "SHORT_TOKEN": "1234567", "PATH": "/usr/bin/somewhere"})
    line = scrub.line("bad key sk-12345678\n  at /usr/bin/somewhere 1234567" + "x" * 2000)
    assert line.startswith("bad key [REDACTED] at /usr/bin/somewhere 1234567")
    assert len(line) == 1000


def test_loopback_is_kept_from_proxies_in_children() -> None:
    variables = loopback_no_proxy({"NO_PROXY": "corp.example, 127.0.0.1", "no_proxy": "other.example"})
    assert variables["NO_PROXY"] == "corp.example,127.0.0.1,other.example,localhost,::1"
    assert variables["no_proxy"] == variables["NO_PROXY"]
    assert [
        is_loopback(u) for u in ("http://127.8.0.1:1/v1", "http://[::1]/", "http://localhost", "http://a.example")
    ] == [
        True,
        True,
        True,
        False,
    ]
