"""The rollouts a server knows: their status, their leases, who waits for a change, and finished results for a while.

Owns the first-writer-wins rule, the lease watcher and the retention. Leaves executing to `execution` and HTTP to `app`.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import secrets
from collections.abc import Callable, Iterator
from typing import Any

from osmosis_ai.rollout.types.status import RolloutStatus
from osmosis_ai.rollout.utils.ttl_cache import TTLCache

logger = logging.getLogger(__name__)

NOTICE_DELAY_S = 0.05
"""A status that is not final is announced so much later: a short rollout then costs one poll instead of three."""
_LATE_TIMER_S = 1.0
_LATE_TIMER_GRACE_S = 5.0


class RolloutRecord:
    """One admitted rollout.

    Attributes:
        rollout_id: Its id.
        status: Where it stands.
        body: The final result as JSON bytes; None until there is one.
        task: The execution; it may outlive the result (after a lost lease).
        settled: The outcome is known and only has to be written down: too late to cancel.
        cancel_requested: Somebody asked to cancel it.
    """

    __slots__ = (
        "_changed",
        "_digest",
        "_loop",
        "_notice",
        "body",
        "cancel_requested",
        "lease_deadline",
        "lease_timer",
        "rollout_id",
        "settled",
        "status",
        "task",
    )

    def __init__(self, rollout_id: str, lease_token: str) -> None:
        self.rollout_id = rollout_id
        self.status = RolloutStatus.QUEUED
        self.body: bytes | None = None
        self.task: asyncio.Task[None] | None = None
        self.settled = False
        self.cancel_requested = False
        self.lease_deadline = 0.0
        self.lease_timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._notice: asyncio.TimerHandle | None = None
        self._digest = _digest(lease_token)

    @property
    def executing(self) -> bool:
        """Whether the execution has not ended yet."""
        return self.task is not None and not self.task.done()

    def holds_lease(self, token: str) -> bool:
        """Whether the token is the one given at admission."""
        return hmac.compare_digest(_digest(token), self._digest)

    def set_status(self, status: RolloutStatus) -> None:
        """Note a status that is not final, and announce it shortly after."""
        if self.body is not None or status is self.status:
            return
        self.status = status
        if self._notice is None:
            self._notice = self._loop.call_later(NOTICE_DELAY_S, self._announce)

    def finish(self, status: RolloutStatus, body: bytes) -> bool:
        """Publish the result; False when another was published before, which then stays."""
        if self.body is not None:
            return False
        self.status = status
        self.body = body
        self._announce()
        if self.lease_timer is not None:
            self.lease_timer.cancel()
            self.lease_timer = None
        return True

    async def wait_for_change(self, timeout_s: float) -> None:
        """Wait until a change is announced or the time is over."""
        if self.body is None:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._changed.wait()
            except TimeoutError:
                pass

    def answer(self) -> bytes:
        """The JSON body that a poll gets now."""
        if self.body is not None:
            return self.body
        return _IN_FLIGHT % (json.dumps(self.rollout_id).encode(), json.dumps(self.status.value).encode())

    def _announce(self) -> None:
        if self._notice is not None:
            self._notice.cancel()
            self._notice = None
        self._changed.set()
        self._changed = asyncio.Event()


_IN_FLIGHT = (
    b'{"rollout_id":%b,"status":%b,"sample":null,"err_message":null,"err_category":null,'
    b'"err_fault":null,"err_traceback":null,"timings":null}'
)


class RolloutRegistry:
    """All rollouts of a server by id.

    Args:
        lease_timeout_s: A rollout whose lease nobody renews for so long has lost it.
        retention_s: How long a finished result can be read.
        on_lease_lost: Called with the record whose lease expired; it publishes the failure and cancels the execution.
    """

    def __init__(
        self, *, lease_timeout_s: float, retention_s: float, on_lease_lost: Callable[[RolloutRecord], None]
    ) -> None:
        self._lease_timeout_s = lease_timeout_s
        self._retention_s = retention_s
        self._on_lease_lost = on_lease_lost
        self._active: dict[str, RolloutRecord] = {}
        self._finished: TTLCache[str, RolloutRecord] = TTLCache(retention_s)
        self._sweep: asyncio.TimerHandle | None = None

    def admit(self, rollout_id: str) -> tuple[RolloutRecord, str]:
        """Register a rollout; returns its record and the lease token, of which only a digest is kept."""
        token = secrets.token_urlsafe(32)
        record = self._active[rollout_id] = RolloutRecord(rollout_id, token)
        self.renew(record)
        return record, token

    def find(self, rollout_id: str) -> RolloutRecord | None:
        """The rollout, while it executes or its result is kept."""
        return self._active.get(rollout_id) or self._finished.get(rollout_id)

    def renew(self, record: RolloutRecord) -> None:
        """Start the record's lease anew."""
        loop = asyncio.get_running_loop()
        record.lease_deadline = loop.time() + self._lease_timeout_s
        if record.lease_timer is None and record.body is None:
            record.lease_timer = loop.call_at(record.lease_deadline, self._check_lease, record, loop)

    def retain(self, record: RolloutRecord) -> None:
        """Keep a published result readable for the retention time."""
        self._finished.put(record.rollout_id, record)
        if self._sweep is None and self._retention_s > 0:
            self._sweep = asyncio.get_running_loop().call_later(self._retention_s + 1, self._purge)

    def forget_execution(self, record: RolloutRecord) -> None:
        """The execution has ended: from now on only the retention keeps the id."""
        if self._active.get(record.rollout_id) is record:
            del self._active[record.rollout_id]

    def executing(self) -> list[RolloutRecord]:
        """The rollouts whose execution has not ended."""
        return [record for record in self._active.values() if record.executing]

    def close(self) -> None:
        """Stop all timers and forget everything."""
        for record in self._active.values():
            if record.lease_timer is not None:
                record.lease_timer.cancel()
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        self._active.clear()
        self._finished.clear()

    def __contains__(self, rollout_id: str) -> bool:
        return self.find(rollout_id) is not None

    def __len__(self) -> int:
        return len(set(self._active) | set(self._finished))

    def __iter__(self) -> Iterator[str]:
        return iter(set(self._active) | set(self._finished))

    def _check_lease(self, record: RolloutRecord, loop: asyncio.AbstractEventLoop) -> None:
        record.lease_timer = None
        if record.body is not None:
            return
        now = loop.time()
        if now < record.lease_deadline:
            record.lease_timer = loop.call_at(record.lease_deadline, self._check_lease, record, loop)
        elif now - record.lease_deadline > _LATE_TIMER_S:
            # An agent blocked the event loop, so polls could not be served: give the ones that wait in the socket time.
            record.lease_deadline = now + _LATE_TIMER_GRACE_S
            record.lease_timer = loop.call_at(record.lease_deadline, self._check_lease, record, loop)
        else:
            logger.warning("rollout %s: nobody polled in time, the lease is lost", record.rollout_id)
            self._on_lease_lost(record)

    def _purge(self) -> None:
        self._sweep = None
        self._finished.purge()
        if len(self._finished):
            self._sweep = asyncio.get_running_loop().call_later(self._retention_s / 4 + 1, self._purge)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def failure_body(
    rollout_id: str, status: RolloutStatus, message: str | None, category: str | None, fault: str | None = None
) -> bytes:
    """The JSON body of a result that has nothing but an error."""
    body: dict[str, Any] = {
        "rollout_id": rollout_id,
        "status": status.value,
        "sample": None,
        "err_message": message,
        "err_category": category,
        "err_fault": fault,
        "err_traceback": None,
        "timings": None,
    }
    return json.dumps(body).encode()
