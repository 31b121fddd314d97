"""A stub provider on a real socket and gateways in front of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from gateway_rig import FAST, MakeRig, Rig
from osmosis_ai.gateway.limiter import Limiter
from osmosis_ai.gateway.policy import Policy
from osmosis_ai.gateway.provider import provider_policy
from osmosis_ai.gateway.server import Gateway
from stub_provider import StubProvider


@pytest.fixture
def stub() -> Iterator[StubProvider]:
    with StubProvider() as provider:
        yield provider


@pytest.fixture
async def rig(stub: StubProvider) -> AsyncIterator[MakeRig]:
    made: list[Rig] = []

    async def make(model: str = "text", *, policy: Policy | None = None, **options: Any) -> Rig:
        policy = policy or provider_policy(f"openai/{model}", stub.environ())
        options.setdefault("limiter", Limiter(FAST))
        gateway = Gateway(policy, **options)
        await gateway.start()
        session = gateway.open("rollout-1")
        headers = {"authorization": f"Bearer {session.key}"}
        client = httpx.AsyncClient(base_url=session.url, headers=headers, timeout=20, trust_env=False)
        made.append(Rig(gateway, policy, session, client))
        return made[-1]

    yield make
    for one in made:
        await one.client.aclose()
        await one.gateway.aclose()
        await one.policy.aclose()
