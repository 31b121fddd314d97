"""One chat call from the parsed request to its record: through the limiter to the policy, retried, timed, priced."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from osmosis_ai.gateway.assembly import Assembly
from osmosis_ai.gateway.limiter import Limiter
from osmosis_ai.gateway.policy import ChatRequest, Policy, PolicyError
from osmosis_ai.gateway.prices import PriceTable
from osmosis_ai.gateway.record import CallError, CallRecord
from osmosis_ai.gateway.scrub import Scrubber

type Forward = Callable[[dict[str, Any]], Awaitable[None]]

_log = logging.getLogger(__name__)


class PolicyCall:
    """One call; `run` it once, then read `record`.

    Args:
        index: Its number among the rollout's calls.
        request: None when the caller's body never became one; then only `refused` is of use.
        route: The face it came through.

    Attributes:
        recorded: Whether `record` was made.
    """

    def __init__(
        self,
        index: int,
        request: ChatRequest | None,
        *,
        policy: Policy,
        limiter: Limiter,
        prices: PriceTable,
        route: str,
    ) -> None:
        self._index = index
        self._request = request
        self._policy = policy
        self._limiter = limiter
        self._prices = prices
        self._route = route
        self._started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._began = limiter.now()
        self._first_token_s: float | None = None
        self._retries = 0
        self._assembly: Assembly | None = None
        self.recorded = False

    async def run(self, forward: Forward | None = None) -> Assembly:
        """Get the whole answer, handing each piece to `forward` as it comes.

        Raises:
            PolicyError: No whole answer can be had. Once a piece was forwarded nothing is tried again.
        """
        request = self._request
        assert request is not None
        attempt = 0
        while True:
            attempt += 1
            await self._limiter.ready(self._began)
            assembly = self._assembly = Assembly()
            forwarded = False
            stream = self._policy.chat(request)
            try:
                async for piece in stream:
                    wire = assembly.add(piece)
                    if wire:
                        if self._first_token_s is None:
                            self._first_token_s = self._limiter.now() - self._began
                        if forward is not None:
                            forwarded = True
                            await forward(wire)
                assembly.finish()
                return assembly
            except PolicyError as error:
                delay = self._limiter.retry_delay_s(error, attempt, self._began)
                if forwarded or delay is None:
                    raise
            except Exception as error:
                _log.exception("the policy %s failed", self._policy.model)
                text = Scrubber(os.environ).line(f"the policy failed: {type(error).__name__}: {error}")
                raise PolicyError(text, kind="protocol") from error
            finally:
                if (close := getattr(stream, "aclose", None)) is not None:
                    await close()
            self._retries += 1
            await asyncio.sleep(delay)

    def record(self, *, model: str, error: PolicyError | None = None, cancelled: bool = False) -> CallRecord:
        """The record of the call as it stands now.

        Args:
            model: The model name the caller was told.
            error: What the caller was told went wrong.
            cancelled: The caller hung up, or the rollout was closed.
        """
        self.recorded = True
        assembly = self._assembly
        whole = assembly is not None and error is None and not cancelled
        usage = assembly.usage if assembly is not None else None
        cost = assembly.cost_usd if assembly is not None else None
        if cost is None:
            cost = self._prices.cost(self._policy.model, usage)
        return CallRecord(
            index=self._index,
            started_at=self._started_at,
            duration_s=self._limiter.now() - self._began,
            first_token_s=self._first_token_s,
            request=self._request,
            response={"message": assembly.message(), "finish_reason": assembly.finish_reason, "model": model}
            if whole and assembly is not None
            else None,
            usage=usage,
            cost_usd=cost,
            error=None if error is None else CallError.of(error),
            cancelled=cancelled,
            retries=self._retries,
            route=self._route,
            tokens=assembly.tokens if assembly is not None else None,
        )
