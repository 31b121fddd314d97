"""A rollout's session with the gateway: its key, its calls so far, what its next call builds on."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

from osmosis_ai.consts import ROLLOUT_KEY_PREFIX
from osmosis_ai.gateway.memory import ReasoningMemory
from osmosis_ai.gateway.policy import ChatRequest
from osmosis_ai.gateway.record import CallRecord, SessionRecord, share_messages


@dataclass(frozen=True, slots=True)
class Session:
    """What an agent needs: agents append `/chat/completions` or `/responses` to the URL."""

    rollout_id: str
    url: str
    key: str = field(repr=False)


class OpenSession:
    """The state of a session while it lives.

    Args:
        rollout_id: Whose it is.
        base_url: The gateway's address as the agent sees it.
        keep_alive: Whether pending JSON replies are kept alive by spaces.
        item: What the rollout is a try at (`ChatRequest.item`).
        on_call: Told of every finished call.

    Attributes:
        tasks: The calls in flight.
        closed: No call may begin any more.
    """

    def __init__(
        self,
        rollout_id: str,
        base_url: str,
        *,
        keep_alive: bool,
        item: str = "",
        on_call: Callable[[str, CallRecord], None] | None = None,
    ) -> None:
        url = f"{base_url}/v1/rollouts/{quote(rollout_id, safe='')}"
        self.session = Session(rollout_id, url, ROLLOUT_KEY_PREFIX + secrets.token_hex(32))
        self.key = self.session.key.encode()
        self.keep_alive = keep_alive
        self.item = item
        self.tasks: set[asyncio.Task[Any]] = set()
        self.closed = False
        self._on_call = on_call
        self._records: list[CallRecord] = []
        self._begun = 0
        self._memory = ReasoningMemory()
        self._last_request: ChatRequest | None = None

    def next_index(self) -> int:
        """The number of a call that begins now."""
        self._begun += 1
        return self._begun - 1

    def build_on(self, request: ChatRequest) -> ChatRequest:
        """The request with messages shared with the call before, and dropped reasoning put back."""
        messages = request.messages
        if self._last_request is not None:
            messages = share_messages(messages, self._last_request.messages)
        self._last_request = replace(request, messages=self._memory.restore(messages), item=self.item)
        return self._last_request

    def keep(self, record: CallRecord) -> None:
        """Keep the record of a call that ended."""
        self._records.append(record)
        if record.response is not None:
            self._memory.remember(record.response["message"])
        if self._on_call is not None:
            self._on_call(self.session.rollout_id, record)

    def record(self) -> SessionRecord:
        """All calls that ended, in the order they began."""
        return SessionRecord(self.session.rollout_id, tuple(sorted(self._records, key=lambda call: call.index)))
