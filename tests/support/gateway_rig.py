"""What gateway tests share: a gateway with one open session and a client that has its key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
from osmosis_ai.gateway.limiter import RetryRules
from osmosis_ai.gateway.policy import Policy
from osmosis_ai.gateway.record import SessionRecord
from osmosis_ai.gateway.server import Gateway, Session

FAST = RetryRules(max_attempts=3, max_wait_s=5.0, max_rate_limit_wait_s=5.0, first_backoff_s=0.01, max_backoff_s=0.05)
QUESTION = [{"role": "user", "content": "What is 12 times 11?"}]
MULTIPLY = {
    "type": "function",
    "function": {
        "name": "multiply",
        "parameters": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}},
    },
}


@dataclass
class Rig:
    """A gateway, one open session and a client that has its key."""

    gateway: Gateway
    policy: Policy
    session: Session
    client: httpx.AsyncClient

    async def chat(self, **body: Any) -> httpx.Response:
        return await self.client.post("/chat/completions", json={"messages": QUESTION, **body})

    async def close(self) -> SessionRecord:
        return await self.gateway.close(self.session.rollout_id)


type MakeRig = Callable[..., Any]
