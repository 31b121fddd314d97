"""When calls may go out and failed ones are tried again; how event streams are read; the published bridge names."""

from __future__ import annotations

from itertools import pairwise

import httpx
import pytest
from gateway_rig import QUESTION
from hypothesis import given, settings
from hypothesis import strategies as st
from osmosis_ai.gateway.limiter import Limiter, RetryRules
from osmosis_ai.gateway.policy import PolicyError
from osmosis_ai.gateway.sse import Event, EventReader
from stub_provider import StubProvider


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def limiter(**rules: float) -> tuple[Limiter, Clock]:
    clock = Clock()
    return Limiter(RetryRules(**rules), clock), clock  # type: ignore[arg-type]


def busy(retry_after_s: float | None = None) -> PolicyError:
    return PolicyError("slow down", kind="rate_limit", status=429, retry_after_s=retry_after_s)


def test_transient_errors_back_off_ever_longer_and_then_give_up() -> None:
    gate, _ = limiter(max_attempts=4, first_backoff_s=1, max_backoff_s=3)
    down = PolicyError("down", kind="unavailable")
    delays = [gate.retry_delay_s(down, attempt, 100.0) for attempt in (1, 2, 3, 4)]
    assert delays[3] is None
    for delay, backoff in zip(delays, (1, 2, 3), strict=False):
        assert delay is not None
        assert backoff * 0.5 <= delay <= backoff * 1.5
    assert gate.paused_s == 0


@pytest.mark.parametrize("kind", ["authentication", "quota", "not_found", "bad_request"])
def test_what_cannot_heal_is_not_tried_again(kind: str) -> None:
    gate, _ = limiter()
    assert gate.retry_delay_s(PolicyError("no", kind=kind), 1, 100.0) is None  # type: ignore[arg-type]


def test_a_rate_limit_pauses_everyone_and_the_longest_pause_counts() -> None:
    gate, clock = limiter()
    assert gate.retry_delay_s(busy(10), 1, 100.0) == 10
    assert gate.retry_delay_s(busy(4), 1, 100.0) == 4
    assert gate.paused_s == 10
    clock.now += 11
    assert gate.paused_s == 0


def test_waiting_at_once_for_ever_is_no_pace() -> None:
    gate, _ = limiter(first_backoff_s=1)
    assert [gate.retry_delay_s(busy(0), attempt, 100.0) for attempt in (1, 3, 10)] == [0.2, 0.8, 6.0]


def test_the_wait_of_one_call_is_bounded() -> None:
    gate, clock = limiter(max_wait_s=60, max_rate_limit_wait_s=300)
    clock.now += 59.9
    assert gate.retry_delay_s(PolicyError("down", kind="unavailable"), 3, 100.0) is None
    assert gate.retry_delay_s(busy(200), 1, 100.0) == 200
    assert gate.retry_delay_s(busy(250), 1, 100.0) is None


async def test_a_call_that_cannot_wait_so_long_is_told_why() -> None:
    gate, clock = limiter(max_rate_limit_wait_s=300)
    gate.pause(400, busy(400))
    with pytest.raises(PolicyError, match="slow down") as caught:
        await gate.ready(clock.now)
    assert (caught.value.kind, caught.value.status, caught.value.retry_after_s) == ("rate_limit", 429, 400)


STREAM = ": hi\r\n\r\nevent: a\r\ndata: one\r\ndata: two\r\n\r\nid: 3\ndata:three ü\n\ndata: four".encode()
EXPECTED = [Event("a", "one\ntwo"), Event("", "three ü"), Event("", "four")]


@settings(deadline=None)
@given(st.lists(st.integers(1, len(STREAM) - 1), max_size=8))
def test_events_are_the_same_however_the_bytes_are_sliced(cuts: list[int]) -> None:
    reader = EventReader()
    edges = [0, *sorted(cuts), len(STREAM)]
    events = [e for a, b in pairwise(edges) for e in reader.feed(STREAM[a:b])]
    assert events + reader.close() == EXPECTED


def test_an_endless_event_is_refused() -> None:
    reader = EventReader()
    with pytest.raises(ValueError, match="16 MiB"):
        for _ in range(20):
            reader.feed(b"x" * 1024 * 1024)


async def test_the_published_bridge_names_serve_a_model(stub: StubProvider) -> None:
    from osmosis_ai.eval.local import LiteLLMBridge, LlmBridgeListener

    bridge = LiteLLMBridge("openai/text:hello", environ=stub.environ())
    await bridge.preflight()
    async with LlmBridgeListener(bridge) as listener, httpx.AsyncClient(trust_env=False) as client:
        session = listener.open("r")
        headers = {"authorization": f"Bearer {session.key}"}
        reply = await client.post(f"{session.url}/chat/completions", json={"messages": QUESTION}, headers=headers)
        assert reply.json()["choices"][0]["message"]["content"] == "hello"
        assert reply.json()["model"] == bridge.model == "openai/text:hello"
    await bridge.aclose()


def test_the_bridge_names_are_listed_and_others_are_not_there() -> None:
    import osmosis_ai.eval.local as local

    assert dir(local) == local.__all__ == ["LiteLLMBridge", "LlmBridgeListener"]
    with pytest.raises(AttributeError, match="nothing"):
        _ = local.nothing
