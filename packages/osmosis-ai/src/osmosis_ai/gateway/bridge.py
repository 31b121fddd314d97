"""The gateway under the names that published code imports: a provider by model name, and a listener to serve it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from typing import Self

from osmosis_ai.gateway.policy import ChatDelta, ChatRequest, Policy
from osmosis_ai.gateway.provider import provider_policy
from osmosis_ai.gateway.server import Gateway


class LiteLLMBridge:
    """The policy for a LiteLLM model name. OpenAI-compatible providers are called without LiteLLM.

    Args:
        model: `provider/model`.
        environ: Keys and base URLs; the process environment by default.

    Raises:
        ValidationError: The provider is unknown.
    """

    def __init__(self, model: str, *, environ: Mapping[str, str] | None = None) -> None:
        self._policy: Policy = provider_policy(model, os.environ if environ is None else environ)

    @property
    def model(self) -> str:
        """The configured model name."""
        return self._policy.model

    async def preflight(self) -> None:
        """Check cheaply that calls can succeed; raises `PolicyError` when they cannot."""
        await self._policy.preflight()

    def chat(self, request: ChatRequest) -> AsyncIterator[ChatDelta]:
        """Answer one call, piece by piece."""
        return self._policy.chat(request)

    async def close_session(self, rollout_id: str) -> None:
        """Forget a rollout."""
        await self._policy.close_session(rollout_id)

    async def aclose(self) -> None:
        """Close connections."""
        await self._policy.aclose()


class LlmBridgeListener(Gateway):
    """The gateway as an async context manager on a loopback port of its own choosing."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
