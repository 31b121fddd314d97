"""What the gateway itself costs: CPU of a call without a provider, memory of a long session."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator

import pytest
from gateway_rig import MakeRig
from osmosis_ai.gateway.policy import ChatDelta, ChatRequest, Usage

CALLS = 300
CLIENT = r"""
import json, socket, sys
port, key, calls, stream = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4] == "1"
turns = [{"role": "user", "content": "word " * 50}, {"role": "assistant", "content": "word " * 50}] * 4
body = json.dumps({"messages": [*turns, turns[0]], "stream": stream}).encode()
head = f"POST /v1/rollouts/rollout-1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
request = head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body
with socket.create_connection(("127.0.0.1", port)) as connection:
    for _ in range(calls):
        connection.sendall(request)
        reply = b""
        while not reply.endswith((b"0\r\n\r\n", b"}}")):
            reply += connection.recv(65536)
        assert reply.startswith(b"HTTP/1.1 200"), reply
"""


class Instant:
    """A policy that costs nothing."""

    model = "osmosis/instant"

    async def preflight(self) -> None: ...

    async def close_session(self, rollout_id: str) -> None: ...

    async def aclose(self) -> None: ...

    async def chat(self, request: ChatRequest) -> AsyncIterator[ChatDelta]:
        yield ChatDelta({"role": "assistant", "content": "Done."}, "stop", Usage(100, 10))


@pytest.mark.parametrize("stream", ["0", "1"])
async def test_a_call_costs_at_most_one_and_a_half_milliseconds(rig: MakeRig, stream: str) -> None:
    one = await rig(policy=Instant())

    async def client(calls: int) -> None:
        arguments = (str(one.gateway.port), one.session.key, str(calls), stream)
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", CLIENT, *arguments)
        assert await process.wait() == 0

    await client(20)
    spent_ms: list[float] = []
    while len(spent_ms) < 3 and not (spent_ms and spent_ms[-1] < 1.5):  # neighbours make a call dearer, never cheaper
        before = time.process_time()
        await client(CALLS)
        spent_ms.append((time.process_time() - before) * 1000 / CALLS)
    assert min(spent_ms) < 1.5
    record = await one.close()
    assert len(record.calls) == CALLS * len(spent_ms) + 20
    assert record.cost_usd == 0


async def test_a_session_of_many_turns_keeps_each_message_once(rig: MakeRig) -> None:
    one = await rig(policy=Instant())
    messages = [{"role": "user", "content": f"turn {number} " + "x" * 2000} for number in range(60)]
    for number in range(1, 61):
        await one.chat(messages=messages[:number])
    calls = (await one.close()).calls
    kept = {id(message) for call in calls for message in call.request.messages}
    assert len(kept) == 60
    assert sum(len(json.dumps(call.to_json()["request"])) for call in calls) > 60 * 2000 * 25
