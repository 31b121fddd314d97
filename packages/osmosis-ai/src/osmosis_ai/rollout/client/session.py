"""RolloutClient: starts rollouts on a rollout server, ours or the published one's."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import math
import time
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from pydantic import ValidationError

from osmosis_ai.rollout.client.errors import RolloutAdmissionTimeoutError, RolloutProtocolError
from osmosis_ai.rollout.client.handle import RolloutHandle, protocol_error
from osmosis_ai.rollout.types.protocol import (
    CancelRolloutsResponse,
    RolloutInitResponse,
    RolloutLifecycle,
    RolloutResultResponse,
)
from osmosis_ai.rollout.types.sample import MessageDict

if TYPE_CHECKING:
    import httpx

CANCEL_TIMEOUT_S = 5.0
_REQUEST_TIMEOUT_S = 30.0
_KEEPALIVE_EXPIRY_S = 4.0  # below uvicorn's default of 5: a request never meets a connection that is being closed
_RETRY_AFTER_DEFAULT_S = 1.0
_RETRY_AFTER_BOUNDS_S = (0.05, 60.0)
_IDLE_RETRY_STATUSES = frozenset({408, 429, 500, 502, 503, 504})


class RolloutClient:
    """A client of one rollout server. Use it in one event loop; close it with `aclose()` or `async with`.

    Args:
        url: The server's base URL.
        http_client: An httpx client to use; it stays the caller's to close. Without one the client makes its own,
            which uses no proxy for a loopback server and as many connections as there are rollouts.
        admission_timeout_sec: How long `run_rollout` asks a full server again; None asks for ever.
        api_key: Sent as bearer token.

    Raises:
        ValueError: The admission timeout is not finite, or the key is blank.
    """

    def __init__(
        self,
        *,
        url: str,
        http_client: httpx.AsyncClient | None = None,
        admission_timeout_sec: float | None = None,
        api_key: str | None = None,
    ) -> None:
        if admission_timeout_sec is not None and not math.isfinite(admission_timeout_sec):
            raise ValueError(f"admission_timeout_sec must be finite, not {admission_timeout_sec}")
        if api_key is not None and not api_key.strip():
            raise ValueError("api_key is blank; give a key, or None when the server has no gate")
        import httpx

        self._url = url.rstrip("/")
        self._admission_timeout_s = admission_timeout_sec
        self._owns_http = http_client is None
        self.http = http_client or httpx.AsyncClient(
            trust_env=not _is_loopback(self._url),
            follow_redirects=False,
            timeout=_REQUEST_TIMEOUT_S,
            limits=httpx.Limits(
                max_connections=None, max_keepalive_connections=None, keepalive_expiry=_KEEPALIVE_EXPIRY_S
            ),
        )
        self.headers: dict[str, str] = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self._handles: set[RolloutHandle] = set()
        self._cancelling: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop polling, see cancellations through, close the connections unless the httpx client was given."""
        for handle in list(self._handles):
            handle.close()
        await asyncio.gather(*self._cancelling)
        if self._owns_http:
            await self.http.aclose()

    async def health(self) -> dict[str, Any]:
        """The server's health.

        Raises:
            RolloutProtocolError: The answer is not 200 with a JSON object.
        """
        response = await self.http.get(self.url_of("/health"), headers=self.headers, follow_redirects=False)
        return _object(response, "GET /health", 200)

    async def wait_idle(
        self, timeout_sec: float = 120.0, poll_interval_sec: float = 1.0, process_id: str | None = None
    ) -> dict[str, Any]:
        """Wait until the server executes nothing; returns its health.

        Args:
            timeout_sec: How long to wait.
            poll_interval_sec: How often to ask.
            process_id: The server process that is meant; None takes the first that answers.

        Raises:
            TimeoutError: It is still busy, or does not answer.
            RolloutProtocolError: It does not say who it is or how busy, or another process answers.
        """
        import httpx

        deadline = time.monotonic() + timeout_sec
        last = "no answer"
        while True:
            try:
                health = await asyncio.wait_for(self.health(), max(0.05, deadline - time.monotonic()))
            except RolloutProtocolError as exc:
                if exc.status_code not in _IDLE_RETRY_STATUSES:
                    raise
                last = exc.message
            except httpx.TransportError as exc:
                last = f"{type(exc).__name__}: {exc}"
            except TimeoutError:
                last = "no answer"
            else:
                active, process_id = _lifecycle(health, process_id)
                if active == 0:
                    return health
                last = f"{active} active rollouts"
            if time.monotonic() + poll_interval_sec >= deadline:
                raise TimeoutError(f"the rollout server at {self._url} is not idle after {timeout_sec:g}s: {last}")
            await asyncio.sleep(poll_interval_sec)

    async def run_rollout(
        self,
        initial_messages: list[MessageDict],
        chat_completions_url: str,
        rollout_id: str,
        llm_api_key: str | None = None,
        label: str | None = None,
        metadata: dict[str, Any] | None = None,
        grade: bool = True,
        agent_timeout_sec: float | None = None,
        grader_timeout_sec: float | None = None,
        extra_fields: dict[str, Any] | None = None,
    ) -> RolloutResultResponse:
        """Start a rollout and wait for its result; cancelled, it cancels the rollout."""
        handle = await self.run_rollout_async(
            initial_messages,
            chat_completions_url,
            rollout_id,
            llm_api_key,
            label,
            metadata,
            grade,
            agent_timeout_sec,
            grader_timeout_sec,
            extra_fields,
        )
        try:
            return await handle
        except asyncio.CancelledError:
            handle.cancel()
            raise

    async def run_rollout_async(
        self,
        initial_messages: list[MessageDict],
        chat_completions_url: str,
        rollout_id: str,
        llm_api_key: str | None = None,
        label: str | None = None,
        metadata: dict[str, Any] | None = None,
        grade: bool = True,
        agent_timeout_sec: float | None = None,
        grader_timeout_sec: float | None = None,
        extra_fields: dict[str, Any] | None = None,
    ) -> RolloutHandle:
        """Start a rollout; a full server (429) is asked again until the admission timeout.

        Args:
            initial_messages: The messages the agent starts from.
            chat_completions_url: Base URL of the rollout's model.
            rollout_id: A single path segment, new to the server.
            llm_api_key: Key for the model.
            label: The row's ground truth.
            metadata: The row's metadata.
            grade: False stops after the agent.
            agent_timeout_sec: Seconds for the agent, queue time included; None is unbounded.
            grader_timeout_sec: Seconds for the grader; None is unbounded.
            extra_fields: Echoed into the trajectory.

        Raises:
            RolloutAdmissionTimeoutError: The server stayed full.
            RolloutProtocolError: It answered neither 202 nor 429.
            httpx.TransportError: It could not be reached.
        """
        body = json.dumps(
            {
                "initial_messages": initial_messages,
                "rollout_id": rollout_id,
                "chat_completions_url": chat_completions_url,
                "llm_api_key": llm_api_key,
                "label": label,
                "metadata": metadata,
                "grade": grade,
                "agent_timeout_sec": agent_timeout_sec,
                "grader_timeout_sec": grader_timeout_sec,
                "extra_fields": extra_fields,
            }
        ).encode()
        limit_s = self._admission_timeout_s
        deadline = None if limit_s is None else time.monotonic() + limit_s
        while True:
            sent = time.monotonic()
            try:
                async with asyncio.timeout(None if deadline is None else max(0.0, deadline - sent)):
                    response = await self.http.post(
                        self.url_of("/rollout"),
                        content=body,
                        headers={**self.headers, "Content-Type": "application/json"},
                        follow_redirects=False,
                    )
            except TimeoutError:
                raise RolloutAdmissionTimeoutError(
                    f"the rollout server at {self._url} did not admit rollout {rollout_id} within {limit_s:g}s; a "
                    "request was still pending, so the rollout may have been admitted all the same"
                ) from None
            if response.status_code != 429:
                break
            pause_s = _retry_after_s(response)
            if deadline is not None and time.monotonic() + pause_s >= deadline:
                raise RolloutAdmissionTimeoutError(
                    f"the rollout server at {self._url} had no room for rollout {rollout_id} within {limit_s:g}s"
                )
            await asyncio.sleep(pause_s)
        try:
            admission = RolloutInitResponse.model_validate(_object(response, "POST /rollout", 202))
        except ValidationError as exc:
            raise RolloutProtocolError(
                f"the admission of rollout {rollout_id} is malformed: {exc}", status_code=202
            ) from exc
        if admission.rollout_id != rollout_id:
            raise RolloutProtocolError(
                f"asked for rollout {rollout_id}, the server admitted {admission.rollout_id}", status_code=202
            )
        handle = RolloutHandle(self, admission, lease_deadline=sent + admission.polling_lease_timeout_sec)
        self._handles.add(handle)
        return handle

    async def cancel_rollout(self, rollout_id: str) -> CancelRolloutsResponse:
        """Cancel a rollout; one that is unknown or finished is `not_found`.

        Raises:
            TimeoutError: No answer within 5 s.
            RolloutProtocolError: The answer is not 200 with dispositions.
        """
        async with asyncio.timeout(CANCEL_TIMEOUT_S):
            response = await self.http.post(
                self.url_of("/rollout/cancel"), json={"ids": [rollout_id]}, headers=self.headers, follow_redirects=False
            )
        try:
            return CancelRolloutsResponse.model_validate(_object(response, "POST /rollout/cancel", 200))
        except ValidationError as exc:
            raise RolloutProtocolError(f"the answer to a cancellation is malformed: {exc}", status_code=200) from exc

    def cancel_in_background(self, rollout_id: str) -> None:
        """Cancel a rollout as far as possible, without anybody waiting for it but `aclose`."""

        async def cancel() -> None:
            with contextlib.suppress(Exception):  # the lease ends the rollout anyway
                await self.cancel_rollout(rollout_id)

        task = asyncio.create_task(cancel())
        self._cancelling.add(task)
        task.add_done_callback(self._cancelling.discard)

    def url_of(self, path: str) -> str:
        """The absolute URL of a path of the server."""
        return self._url + path

    def forget(self, handle: RolloutHandle) -> None:
        """A handle has ended."""
        self._handles.discard(handle)


def _object(response: httpx.Response, what: str, expected: int) -> dict[str, Any]:
    if response.status_code != expected:
        raise protocol_error(what, response)
    try:
        body = response.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise RolloutProtocolError(f"{what} was answered with something else than a JSON object", status_code=expected)
    return body


def _lifecycle(health: dict[str, Any], process_id: str | None) -> tuple[int, str]:
    identity = health.get("process_id")
    try:
        lifecycle = RolloutLifecycle.model_validate(health.get("lifecycle"))
    except ValidationError:
        lifecycle = None
    if not isinstance(identity, str) or not identity or lifecycle is None:
        raise RolloutProtocolError("the server's health has no process_id or no lifecycle", status_code=200)
    if process_id is not None and identity != process_id:
        raise RolloutProtocolError(f"the server was restarted: process {process_id} became {identity}", status_code=200)
    return lifecycle.active_rollouts, identity


def _retry_after_s(response: httpx.Response) -> float:
    low, high = _RETRY_AFTER_BOUNDS_S
    given = response.headers.get("Retry-After", "")
    try:
        seconds = float(given)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(given).timestamp() - time.time()
        except (ValueError, TypeError):
            seconds = _RETRY_AFTER_DEFAULT_S
    return min(max(seconds, low), high) if math.isfinite(seconds) else _RETRY_AFTER_DEFAULT_S


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
