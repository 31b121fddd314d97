"""A rollout that was admitted: polls its result, keeps its lease, tells its status."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pydantic import ValidationError

from osmosis_ai.rollout.client.errors import RolloutProtocolError
from osmosis_ai.rollout.types.protocol import POLLING_LEASE_HEADER, RolloutInitResponse, RolloutResultResponse
from osmosis_ai.rollout.types.status import RolloutStatus

if TYPE_CHECKING:
    import httpx

    from osmosis_ai.rollout.client.session import RolloutClient

TRANSPORT_PAUSES_S = (0.1, 0.5)
GATEWAY_PAUSES_S = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
GATEWAY_STATUSES = frozenset({502, 503, 504})
READ_MARGIN_S = 10.0
_CONNECT_TIMEOUT_S = 10.0


class RolloutHandle:
    """An admitted rollout. `await handle` gives its result.

    Polling starts at once, in a task of its own, because the rollout is cancelled when nobody polls. It ends with the
    result, with an error, or with the client.

    Args:
        client: Whose connection is used.
        admission: The server's answer to `POST /rollout`.
        lease_deadline: When the lease ends, on `time.monotonic`'s clock; None counts from now.

    Attributes:
        rollout_id: Its id.
        status: The last known status.
        phase: The last known status before the terminal one.
        latest_result: The last answer; before the end it has only a status.
    """

    def __init__(
        self, client: RolloutClient, admission: RolloutInitResponse, *, lease_deadline: float | None = None
    ) -> None:
        self._client = client
        self._admission = admission
        self._lease_deadline = lease_deadline or time.monotonic() + admission.polling_lease_timeout_sec
        self._changed = asyncio.Event()
        self.rollout_id = admission.rollout_id
        self.status: RolloutStatus = admission.status
        self.phase: RolloutStatus = admission.status
        self.latest_result: RolloutResultResponse | None = None
        self._polling = asyncio.create_task(self._poll(), name=f"poll-{self.rollout_id}")
        self._polling.add_done_callback(self._ended)

    def __await__(self) -> Generator[Any, None, RolloutResultResponse]:
        return self.wait_for_completion().__await__()

    def done(self) -> bool:
        """Whether there is a result or an error."""
        return self._polling.done()

    def cancel(self) -> bool:
        """Give the rollout up: stop polling, and ask the server in the background to cancel it.

        Awaiting the handle then raises CancelledError. To await the server's own word instead, leave the handle and
        call `RolloutClient.cancel_rollout`: the handle ends with the status cancelled.

        Returns:
            Whether there was anything left to give up.
        """
        if self.done():
            return False
        self.close()
        self._client.cancel_in_background(self.rollout_id)
        return True

    def close(self) -> None:
        """Stop polling; unless somebody else cancels it, the server does when the lease ends."""
        self._polling.cancel()

    async def wait_for_running(self) -> RolloutStatus:
        """Wait until it no longer queues; returns the status, which may be a later one."""
        return await self._wait_past(RolloutStatus.QUEUED)

    async def wait_for_grading(self) -> RolloutStatus:
        """Wait until the agent is done; returns the status, which may be a later one."""
        return await self._wait_past(RolloutStatus.QUEUED, RolloutStatus.RUNNING)

    async def wait_for_completion(self) -> RolloutResultResponse:
        """Wait for the result; being cancelled while waiting leaves the rollout running.

        Raises:
            RolloutProtocolError: The server answered with something else than a result.
            httpx.TransportError: The server could not be reached, again and again or until the lease ended.
        """
        return await asyncio.shield(self._polling)

    async def _wait_past(self, *statuses: RolloutStatus) -> RolloutStatus:
        while self.status in statuses and not self._polling.done():
            await self._changed.wait()
        if self._polling.done():
            self.status = (await self.wait_for_completion()).status
        return self.status

    async def _poll(self) -> RolloutResultResponse:
        import httpx

        http = self._client.http
        url = self._client.url_of(f"/rollout/{quote(self.rollout_id, safe='')}/result")
        headers = {**self._client.headers, POLLING_LEASE_HEADER: self._admission.polling_lease_token}
        wait_s = self._admission.result_wait_timeout_sec
        timeout = httpx.Timeout(_CONNECT_TIMEOUT_S, read=wait_s + READ_MARGIN_S, pool=None)
        transport_failures = gateway_failures = 0
        while True:
            sent = time.monotonic()
            try:
                response = await http.get(url, headers=headers, timeout=timeout, follow_redirects=False)
            except (httpx.RemoteProtocolError, httpx.NetworkError, httpx.ReadTimeout):
                if transport_failures >= len(TRANSPORT_PAUSES_S):
                    raise
                if not await self._pause(TRANSPORT_PAUSES_S[transport_failures]):
                    raise
                transport_failures += 1
                continue
            transport_failures = 0
            if response.status_code in GATEWAY_STATUSES and gateway_failures < len(GATEWAY_PAUSES_S):
                if not await self._pause(GATEWAY_PAUSES_S[gateway_failures]):
                    raise protocol_error("GET result", response)
                gateway_failures += 1
                continue
            result = self._read(response)
            gateway_failures = 0
            self._lease_deadline = sent + self._admission.polling_lease_timeout_sec
            self.latest_result = result
            if result.status is not self.status:
                self.status = result.status
                if not result.status.terminal:
                    self.phase = result.status
                self._announce()
            if result.status.terminal:
                return result

    async def _pause(self, pause_s: float) -> bool:
        """Wait before the next try; False when the lease would be over by then."""
        if time.monotonic() + pause_s >= self._lease_deadline:
            return False
        await asyncio.sleep(pause_s)
        return True

    def _read(self, response: httpx.Response) -> RolloutResultResponse:
        if response.status_code != 200:
            raise protocol_error("GET result", response)
        try:
            body = response.json()
            status = RolloutStatus(body["status"])
            if body["rollout_id"] != self.rollout_id:
                raise ValueError(f"it belongs to rollout {body['rollout_id']!r}")
            if not status.terminal:
                return RolloutResultResponse.model_construct(rollout_id=self.rollout_id, status=status)
            if isinstance(body.get("sample"), dict):
                body["sample"]["trajectory_messages"] = None  # they stay on the server; do not copy the messages here
            return RolloutResultResponse.model_validate(body)
        except (ValueError, KeyError, TypeError, ValidationError) as exc:
            raise RolloutProtocolError(
                f"the rollout server's result of {self.rollout_id} is malformed: {exc}", status_code=200
            ) from exc

    def _announce(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _ended(self, polling: asyncio.Task[RolloutResultResponse]) -> None:
        if not polling.cancelled():
            polling.exception()  # retrieved: whoever awaits the handle gets it, nobody need
        self._client.forget(self)
        self._announce()


def protocol_error(what: str, response: httpx.Response) -> RolloutProtocolError:
    """The error for an answer whose status is not the one the protocol has here."""
    text = " ".join(response.text[:500].split())
    return RolloutProtocolError(
        f"{what} at {response.request.url.copy_with(query=None)} was answered {response.status_code}: {text}",
        status_code=response.status_code,
    )
