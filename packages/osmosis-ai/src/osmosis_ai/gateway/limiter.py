"""When a call may be sent, and whether and when a failed one is sent again. One limiter serves all rollouts of a run.

A provider's Retry-After pauses every call, not only the one that was told. Transient errors are retried a bounded
number of times within a bounded wait; the caller never sees a half answer twice, because it stops asking here once a
piece went out.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from osmosis_ai.gateway.policy import PolicyError


@dataclass(frozen=True, slots=True)
class RetryRules:
    """How stubborn a call is.

    Attributes:
        max_attempts: Tries of one call after errors other than 429, the first included.
        max_wait_s: Seconds since the call began after which it is not tried again.
        max_rate_limit_wait_s: The same after a 429, where waiting is what the provider asks for.
        first_backoff_s: The first pause, doubled at each retry, with up to half of it added or taken at random.
        max_backoff_s: The longest pause of our own choosing.
    """

    max_attempts: int = 4
    max_wait_s: float = 120.0
    max_rate_limit_wait_s: float = 300.0
    first_backoff_s: float = 0.5
    max_backoff_s: float = 30.0


class Limiter:
    """The gate that all calls of a run pass.

    Args:
        rules: Bounds of retries.
        clock: Monotonic seconds.
    """

    def __init__(self, rules: RetryRules | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.rules = rules or RetryRules()
        self._clock = clock
        self._open_at = 0.0
        self._cause: PolicyError | None = None

    @property
    def paused_s(self) -> float:
        """Seconds until calls may go out again; 0 when they may now."""
        return max(0.0, self._open_at - self._clock())

    def pause(self, seconds: float, cause: PolicyError) -> None:
        """Hold all calls back for so long; the longest pause counts."""
        until = self._clock() + seconds
        if until > self._open_at:
            self._open_at, self._cause = until, cause

    async def ready(self, began: float) -> None:
        """Wait until calls may go out.

        Args:
            began: When the call began, on the limiter's clock.

        Raises:
            PolicyError: The cause of the pause, when it outlasts what a call may wait.
        """
        while (wait := self.paused_s) > 0:
            if self._clock() - began + wait > self.rules.max_rate_limit_wait_s and self._cause is not None:
                raise again(self._cause)
            # not all at once when the pause ends
            await asyncio.sleep(wait + random.uniform(0, min(0.5, wait / 10)))  # noqa: S311

    def retry_delay_s(self, error: PolicyError, attempt: int, began: float) -> float | None:
        """Seconds to wait before trying again after the `attempt`-th try failed, or None to give up.

        A 429 pauses every call of the limiter, also when this one gives up.
        """
        if not error.transient:
            return None
        rules = self.rules
        backoff = min(rules.first_backoff_s * 2 ** (attempt - 1), rules.max_backoff_s)
        delay = backoff * random.uniform(0.5, 1.5)  # noqa: S311
        asked = error.retry_after_s
        if asked is not None:
            delay = max(asked, backoff / 5)  # "at once", again and again, is no pace
        if error.kind == "rate_limit" or asked is not None:
            self.pause(delay, error)
            budget = rules.max_rate_limit_wait_s
        else:
            budget = rules.max_wait_s
            if attempt >= rules.max_attempts:
                return None
        if self._clock() - began + delay > budget:
            return None
        return delay

    def now(self) -> float:
        """The limiter's clock."""
        return self._clock()


def again(error: PolicyError) -> PolicyError:
    """A fresh copy of an error, to be raised in another call."""
    return PolicyError(
        str(error),
        kind=error.kind,
        status=error.status,
        type=error.type,
        provider_code=error.provider_code,
        retry_after_s=error.retry_after_s,
    )
