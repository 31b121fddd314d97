"""The chat route over real sockets: keys, streaming, keep-alive, hang-ups, retries, records."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from typing import Any

import httpx
import pytest
from gateway_rig import MULTIPLY, QUESTION, MakeRig
from osmosis_ai.errors import ConflictError, NetworkError, ValidationError
from osmosis_ai.gateway.record import CallRecord
from osmosis_ai.gateway.server import Gateway, Timing
from stub_provider import Behaviour, StubProvider


def events(text: str) -> list[Any]:
    """The data of a stream: JSON, or the word [DONE]."""
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


async def test_a_reply_has_the_published_shape(rig: MakeRig) -> None:
    one = await rig("text:hello")
    reply = (await one.chat(model="whatever")).json()
    assert reply["id"].startswith("chatcmpl-")
    assert reply["object"] == "chat.completion"
    assert reply["model"] == "whatever"
    assert reply["choices"] == [
        {"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}
    ]
    assert reply["usage"]["total_tokens"] == reply["usage"]["prompt_tokens"] + reply["usage"]["completion_tokens"]


async def test_the_configured_model_wins_and_raw_fields_arrive(rig: MakeRig, stub: StubProvider) -> None:
    one = await rig("text")
    await one.chat(model="gpt-99", top_k=5, custom={"x": 1}, extra_body={"min_p": 0.1}, n=1)
    body = stub.completions[-1].body
    assert body["model"] == "text"
    assert (body["top_k"], body["custom"], body["min_p"]) == (5, {"x": 1}, 0.1)
    assert "n" not in body
    assert "extra_body" not in body
    assert stub.completions[-1].headers["authorization"] == "Bearer sk-stub-key"


async def test_a_stream_comes_as_the_model_speaks(rig: MakeRig) -> None:
    one = await rig("slow:0.5")
    seen: list[tuple[float, str]] = []
    began = time.monotonic()
    async with one.client.stream("POST", "/chat/completions", json={"messages": QUESTION, "stream": True}) as reply:
        assert reply.headers["cache-control"] == "no-cache"
        assert reply.headers["x-accel-buffering"] == "no"
        async for line in reply.aiter_lines():
            seen.append((time.monotonic() - began, line))
    assert seen[0][1] == ": ping"
    assert seen[0][0] < 0.5
    texts = [(at, json.loads(line[6:])) for at, line in seen if line.startswith("data: {")]
    first = next(at for at, chunk in texts if chunk["choices"][0]["delta"].get("content"))
    assert first < texts[-1][0] - 0.3
    assert "".join(c["choices"][0]["delta"].get("content", "") for _, c in texts) == "Hello from the stub."
    assert texts[-1][1]["choices"][0]["finish_reason"] == "stop"
    assert texts[-1][1]["usage"]["completion_tokens"] == 4
    assert seen[-2][1] == "data: [DONE]"
    record = (await one.close()).calls[0]
    assert record.first_token_s is not None
    assert record.first_token_s < record.duration_s - 0.3


async def test_the_usage_chunk_comes_when_asked_for(rig: MakeRig) -> None:
    one = await rig("text")
    asked = events((await one.chat(stream=True, stream_options={"include_usage": True})).text)
    assert asked[-1] == "[DONE]"
    assert asked[-2]["choices"] == []
    assert asked[-2]["usage"] == asked[-3]["usage"]
    plain = events((await one.chat(stream=True)).text)
    assert plain[-2]["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("stream", [False, True])
async def test_tool_calls_arrive_whole(rig: MakeRig, stream: bool) -> None:
    one = await rig("multiply")
    reply = await one.chat(tools=[MULTIPLY], stream=stream)
    assert reply.status_code == 200
    message = (await one.close()).calls[0].response
    assert message is not None
    assert message["finish_reason"] == "tool_calls"
    assert message["message"]["tool_calls"][0]["function"] == {"name": "multiply", "arguments": '{"a": 12, "b": 11}'}


async def test_empty_tools_do_not_reach_the_provider(rig: MakeRig, stub: StubProvider) -> None:
    one = await rig("text")
    await one.chat(tools=[], tool_choice="auto")
    assert "tools" not in stub.completions[-1].body
    assert "tool_choice" not in stub.completions[-1].body


# -- keys


async def test_a_key_works_for_its_rollout_alone_and_dies_with_it(rig: MakeRig) -> None:
    one = await rig("text")
    other = one.gateway.open("rollout-2")
    crossed = await httpx.AsyncClient(trust_env=False).post(
        f"{other.url}/chat/completions",
        json={"messages": QUESTION},
        headers={"authorization": f"Bearer {one.session.key}"},
    )
    assert (crossed.status_code, crossed.json()) == (401, {"detail": "Unauthorized"})
    for headers in (
        {"authorization": ""},
        {"authorization": "Bearer x"},
        {"authorization": f"Basic {one.session.key}"},
    ):
        assert (await one.client.post("/chat/completions", json={}, headers=headers)).status_code == 401
    assert (await one.chat()).status_code == 200
    await one.close()
    assert (await one.chat()).status_code == 401
    assert one.session.key != other.key
    assert one.session.key not in repr(one.session)


async def test_an_unknown_rollout_looks_like_a_wrong_key(rig: MakeRig) -> None:
    one = await rig("text")
    reply = await one.client.post(f"{one.gateway.url}/v1/rollouts/nobody/chat/completions", json={})
    assert reply.status_code == 401


async def test_ids_are_percent_encoded_in_the_url(rig: MakeRig) -> None:
    one = await rig("text")
    session = one.gateway.open("a b%2F#?ü")
    assert session.url.endswith("/v1/rollouts/a%20b%252F%23%3F%C3%BC")
    headers = {"authorization": f"Bearer {session.key}"}
    reply = await one.client.post(f"{session.url}/chat/completions", json={"messages": QUESTION}, headers=headers)
    assert reply.status_code == 200


async def test_a_rollout_has_one_session_at_a_time(rig: MakeRig) -> None:
    one = await rig("text")
    with pytest.raises(ConflictError, match="rollout-1"):
        one.gateway.open("rollout-1")
    await one.close()
    assert one.gateway.open("rollout-1").key != one.session.key


@pytest.mark.parametrize("rollout_id", ["", "a/b"])
async def test_an_id_that_is_no_path_segment_is_refused(rig: MakeRig, rollout_id: str) -> None:
    one = await rig("text")
    with pytest.raises(ValidationError, match="path segment"):
        one.gateway.open(rollout_id)


async def test_a_rollout_that_closes_while_its_call_arrives_makes_no_call(rig: MakeRig, stub: StubProvider) -> None:
    one = await rig("text")

    async def slowly() -> Any:
        yield b'{"messages": '
        await one.close()
        yield b'[{"role": "user", "content": "x"}]}'

    assert (await one.client.post("/chat/completions", content=slowly())).status_code == 401
    assert stub.completions == []


@pytest.mark.parametrize(
    "path", ["/", "/docs", "/openapi.json", "/v1/models", "/v1/chat/completions", "/v1/rollouts/rollout-1/responses/"]
)
async def test_everything_else_is_not_found(rig: MakeRig, path: str) -> None:
    one = await rig("text")
    assert (await one.client.get(one.gateway.url + path)).status_code == 404
    assert (await one.client.post(one.gateway.url + path)).status_code == 404


async def test_an_advertised_base_is_used_by_later_sessions(rig: MakeRig) -> None:
    one = await rig("text")
    one.gateway.advertise("https://tunnel.example/", keep_alive=True)
    assert one.gateway.open("later").url == "https://tunnel.example/v1/rollouts/later"
    assert (await one.chat()).status_code == 200


async def test_a_port_in_use_is_named(rig: MakeRig) -> None:
    one = await rig("text")
    with pytest.raises(NetworkError, match=str(one.gateway.port)):
        await Gateway(one.policy).start(port=one.gateway.port)


# -- bad requests


async def test_bad_bodies_are_refused_in_openai_words_and_recorded(rig: MakeRig, stub: StubProvider) -> None:
    one = await rig("text", max_body_bytes=10_000)
    bodies = [b"", b"{", b"[1]", b'{"messages": 3}', b'{"messages": [{"role": "user", "content": "\\ud800"}]}', b"\xff"]
    for body in bodies:
        reply = await one.client.post("/chat/completions", content=body)
        assert reply.status_code == 400
        error = reply.json()
        assert error["error"]["type"] == "invalid_request_error"
        assert error["detail"] == error["error"]["message"]
        assert reply.headers["x-should-retry"] == "false"
    large = await one.client.post("/chat/completions", content=b"x" * 10_001)
    assert large.status_code == 413

    async def unsized() -> Any:
        for _ in range(3):
            yield b"y" * 5_000

    assert (await one.client.post("/chat/completions", content=unsized())).status_code == 413
    record = await one.close()
    assert len(record.calls) == len(bodies) + 2
    assert {call.error.kind for call in record.calls if call.error} == {"bad_request"}
    assert record.tokens is None
    assert stub.completions == []


async def test_a_refused_stream_is_a_plain_400(rig: MakeRig) -> None:
    one = await rig("text")
    assert (await one.chat(stream=True, api_key="x")).status_code == 400


# -- provider failures


async def test_a_rate_limit_is_waited_out_for_all_rollouts(rig: MakeRig, stub: StubProvider) -> None:
    one = await rig("text")
    stub.script(Behaviour("status", status=429, retry_after="1.5"))
    first = asyncio.create_task(one.chat())
    while not stub.completions:
        await asyncio.sleep(0.01)
    async with asyncio.timeout(10):
        while not one.gateway.limiter.paused_s:
            await asyncio.sleep(0.01)
    began = time.monotonic()
    second = await one.chat()
    assert time.monotonic() - began > 0.1
    assert second.status_code == (await first).status_code == 200
    times = [request.at for request in stub.completions]
    assert min(times[1:]) - times[0] >= 1.5
    assert [call.retries for call in (await one.close()).calls] == [1, 0]


TRANSIENT = {
    "500": Behaviour("status", status=500),
    "503 with Retry-After": Behaviour("status", status=503, retry_after="0"),
    "HTML": Behaviour("html"),
    "no choices": Behaviour("no-choices"),
    "broken JSON": Behaviour("garbage"),
    "an error object with status 200": Behaviour("error-200"),
}


@pytest.mark.parametrize(
    ("name", "stream"),
    # broken JSON in a stream comes after its first words, and then nothing is tried again
    [(name, stream) for name in TRANSIENT for stream in (False, True) if (name, stream) != ("broken JSON", True)],
)
async def test_transient_failures_are_tried_again(rig: MakeRig, stub: StubProvider, name: str, stream: bool) -> None:
    one = await rig("text:fine")
    stub.script(TRANSIENT[name], TRANSIENT[name])
    reply = await one.chat(stream=stream)
    assert reply.status_code == 200
    assert "fine" in reply.text
    assert "error" not in reply.text
    call = (await one.close()).calls[0]
    assert call.retries == 2
    assert call.error is None


async def test_a_cut_reply_is_tried_again_but_not_once_words_went_out(rig: MakeRig, stub: StubProvider) -> None:
    one = await rig("text:one two three")
    stub.script(Behaviour("cut"))
    assert (await one.chat()).json()["choices"][0]["message"]["content"] == "one two three"
    stub.script(Behaviour("cut", text="one two three"))
    reply = await one.chat(stream=True)
    assert "event: error" in reply.text
    error, done = events(reply.text)[-2:]
    assert done == "[DONE]"
    assert "broke" in error["error"]["message"]
    record = await one.close()
    assert [call.retries for call in record.calls] == [1, 0]
    assert record.calls[1].error is not None
    assert record.calls[1].error.transient
    assert record.calls[1].response is None


@pytest.mark.parametrize(
    ("status", "told", "kind", "tries"),
    [
        (400, 400, "bad_request", 1),
        (401, 401, "authentication", 1),
        (402, 402, "quota", 1),
        (404, 404, "not_found", 1),
        (422, 422, "bad_request", 1),
        (500, 502, "unavailable", 3),
        (503, 502, "unavailable", 3),
    ],
)
async def test_failures_keep_their_4xx_and_say_whose_they_are(
    rig: MakeRig, stub: StubProvider, status: int, told: int, kind: str, tries: int
) -> None:
    one = await rig(f"status:{status}")
    reply = await one.chat()
    assert reply.status_code == told
    assert reply.json()["error"]["message"].startswith(f"stub error {status}")
    assert len(stub.completions) == tries
    error = (await one.close()).last_error
    assert error is not None
    assert error.kind == kind
    assert error.fatal == (kind in ("authentication", "quota", "not_found"))


async def test_an_exhausted_quota_is_fatal_and_not_waited_for(rig: MakeRig, stub: StubProvider) -> None:
    one = await rig("text")
    body = {"error": {"message": "You exceeded your quota", "type": "insufficient_quota", "code": "insufficient_quota"}}
    stub.script(Behaviour("raw", status=429, body=body))
    assert (await one.chat()).status_code == 429
    error = (await one.close()).last_error
    assert error is not None
    assert (error.kind, error.fatal) == ("quota", True)


async def test_a_rate_limit_that_outlasts_the_budget_is_told_at_once(rig: MakeRig, stub: StubProvider) -> None:
    one = await rig("text")
    stub.script(Behaviour("status", status=429, retry_after="3600"))
    assert (await one.chat()).status_code == 429
    began = time.monotonic()
    assert (await one.chat()).status_code == 429
    assert time.monotonic() - began < 10
    assert len(stub.completions) == 1


async def test_errors_of_a_stream_come_inside_it(rig: MakeRig) -> None:
    one = await rig("status:401")
    reply = await one.chat(stream=True)
    assert reply.status_code == 200
    assert reply.text.startswith(": ping\n\nevent: error\ndata: {")
    error, done = events(reply.text)
    assert set(error["error"]) == {"message", "type", "code"}
    assert done == "[DONE]"


async def test_provider_keys_do_not_show_in_errors(rig: MakeRig, stub: StubProvider) -> None:
    one = await rig("text")
    message = "Incorrect API key provided: sk-stub-key.\nFind yours at example.com" + "!" * 2000
    stub.script(Behaviour("status", status=401, text=message))
    told = (await one.chat()).json()["error"]["message"]
    assert told.startswith("Incorrect API key provided: [REDACTED]. Find yours")
    assert len(told) == 1000


async def test_null_usage_is_no_count(rig: MakeRig) -> None:
    one = await rig("null-usage")
    assert (await one.chat()).json()["usage"] is None
    streamed = events((await one.chat(stream=True, stream_options={"include_usage": True})).text)
    assert streamed[-2]["choices"][0]["finish_reason"] == "stop"
    assert "usage" not in streamed[-2]
    record = await one.close()
    assert record.tokens is None
    assert record.cost_usd is None
    assert record.calls[0].response is not None


async def test_null_content_is_empty_text(rig: MakeRig) -> None:
    one = await rig("null-content")
    assert (await one.chat()).json()["choices"][0]["message"]["content"] == ""
    assert (await one.chat(stream=True)).text.endswith("[DONE]\n\n")


async def test_half_a_surrogate_from_the_model_does_not_break_the_reply(rig: MakeRig, stub: StubProvider) -> None:
    one = await rig("text")
    stub.script(Behaviour("raw", status=200, body={"choices": [{"message": {"content": "a\ud83d"}}]}))
    assert (await one.chat()).json()["choices"][0]["message"]["content"] == "a\ufffd"


async def test_usage_after_the_last_choice_is_counted(rig: MakeRig) -> None:
    one = await rig("trailing-usage")
    assert events((await one.chat(stream=True)).text)[-2]["usage"]["total_tokens"] > 0


async def test_tool_calls_without_an_index_are_kept_apart(rig: MakeRig) -> None:
    one = await rig("no-index")
    for stream in (False, True):
        await one.chat(stream=stream)
    for call in (await one.close()).calls:
        assert call.response is not None
        functions = [c["function"] for c in call.response["message"]["tool_calls"]]
        assert functions == [
            {"name": "first", "arguments": '{"a": 1}'},
            {"name": "second", "arguments": '{"b": 2}'},
        ]


async def test_dropped_reasoning_reaches_the_model_again(rig: MakeRig) -> None:
    one = await rig("reasoning")
    first = (await one.chat(tools=[MULTIPLY])).json()["choices"][0]["message"]
    assert first["reasoning_content"] == "Let me think."
    dropped = {k: v for k, v in first.items() if k != "reasoning_content"}
    result = {"role": "tool", "tool_call_id": first["tool_calls"][0]["id"], "content": "132"}
    second = await one.chat(messages=[*QUESTION, dropped, result], tools=[MULTIPLY])
    assert second.json()["choices"][0]["message"]["content"] == "done"


# -- silence and hang-ups


async def test_silence_in_a_stream_is_filled_with_comments(rig: MakeRig, stub: StubProvider) -> None:
    one = await rig("text", timing=Timing(ping_s=0.1))
    stub.script(Behaviour("text", delay_s=0.45))
    assert (await one.chat(stream=True)).text.count(": ping") >= 4


async def test_a_late_reply_is_kept_alive_by_spaces(rig: MakeRig, stub: StubProvider) -> None:
    one = await rig("text", keep_alive=True, timing=Timing(grace_s=0.1, space_s=0.1))
    stub.script(Behaviour("text", delay_s=0.45))
    late = await one.chat()
    assert late.status_code == 200
    assert late.text.startswith("  ")
    assert late.json()["choices"][0]["message"]["content"] == "Hello from the stub."
    stub.script(Behaviour("status", status=404, delay_s=0.3))
    failed = await one.chat()
    assert failed.status_code == 200
    assert failed.json()["error"]["message"].startswith("stub error 404")
    stub.script(Behaviour("status", status=404))
    assert (await one.chat()).status_code == 404


@pytest.mark.parametrize("stream", [False, True])
async def test_a_hang_up_cancels_the_call_and_is_recorded(rig: MakeRig, stub: StubProvider, stream: bool) -> None:
    calls: list[CallRecord] = []
    one = await rig("hang", on_call=lambda _, record: calls.append(record))
    with pytest.raises(httpx.ReadTimeout):
        body = {"messages": QUESTION, "stream": stream}
        async with one.client.stream("POST", "/chat/completions", json=body, timeout=1) as reply:
            await reply.aread()
    for _ in range(500):
        if calls and stub.aborted:
            break
        await asyncio.sleep(0.02)
    assert stub.aborted == 1
    assert [(c.cancelled, c.error, c.response) for c in calls] == [(True, None, None)]
    assert (await one.close()).calls == tuple(calls)


@pytest.mark.parametrize("stream", [False, True])
async def test_closing_a_rollout_cancels_what_is_in_flight(rig: MakeRig, stub: StubProvider, stream: bool) -> None:
    one = await rig("hang")
    pending = asyncio.create_task(one.chat(stream=stream))
    while not stub.completions:
        await asyncio.sleep(0.01)
    record = await one.close()
    assert [call.cancelled for call in record.calls] == [True]
    reply = await pending
    assert reply.status_code == (200 if stream else 503)
    assert "the rollout was closed" in reply.text


async def test_a_hundred_calls_at_once_are_all_recorded_in_order(rig: MakeRig) -> None:
    one = await rig("multiply")
    replies = await asyncio.gather(*(one.chat(messages=[{"role": "user", "content": f"{i} x 3"}]) for i in range(100)))
    assert {r.status_code for r in replies} == {200}
    calls = (await one.close()).calls
    assert [call.index for call in calls] == list(range(100))


async def test_a_policy_that_breaks_is_told_and_recorded_like_any_failure(rig: MakeRig) -> None:
    class Broken:
        model = "osmosis/broken"

        async def preflight(self) -> None: ...
        async def close_session(self, rollout_id: str) -> None:
            raise RuntimeError("and again")

        async def aclose(self) -> None: ...
        async def chat(self, request: object) -> Any:
            raise ZeroDivisionError("oops")
            yield

    one = await rig(policy=Broken())
    reply = await one.chat()
    assert reply.status_code == 502
    assert "ZeroDivisionError: oops" in reply.json()["detail"]
    record = await one.close()
    assert record.last_error is not None


async def test_small_replies_are_not_held_back_by_the_kernel(rig: MakeRig) -> None:
    one = await rig("text")
    await one.chat()
    (connection,) = one.gateway._server.server_state.connections
    accepted = connection.transport.get_extra_info("socket")
    assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
