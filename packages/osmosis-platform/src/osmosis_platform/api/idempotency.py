"""`Idempotency-Key`: a creating request of /api/v1 that is sent again answers as it did, and creates nothing twice.

A key counts for a day, for one credential (another one of the same person may not reach as far), method and path. The row
is claimed before the route runs, and marked in the very transaction that creates: after a kill the outcome is known to be
nothing (the retry runs), or something (the retry is told so). Answers may hold a token that is shown once, so they are
sealed like secrets; what was sent is kept as a MAC only.
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import timedelta
from typing import Any

import structlog
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.responses import StreamingResponse

from osmosis_platform import crashpoints
from osmosis_platform.api.scope import caller, declared, services_of
from osmosis_platform.db.database import UnitOfWork, joining
from osmosis_platform.db.repositories.idempotency import IdempotencyRepository, KeyedRequest
from osmosis_platform.domain.actor import Actor
from osmosis_platform.errors import InvalidRequestError, ServiceError, TakenError
from osmosis_platform.secrets.vault import PLATFORM, Sealed
from osmosis_platform.services import Services

log = structlog.get_logger(__name__)

HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
KEPT = timedelta(hours=24)
CLAIMED = timedelta(minutes=2)
_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_MAX_ANSWER_BYTES = 1 << 20
_PARAMETER = {
    "name": HEADER,
    "in": "header",
    "required": False,
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
    "description": "Any text of your choice, new for each thing to create: sent again with the same body, the request "
    "answers as it did and creates nothing twice. It counts for 24 hours.",
}


class IdempotentRoute(APIRoute):
    """A route that knows the header."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, behind the look at the key."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            if HEADER not in request.headers:
                return await handler(request)
            return await _Keyed.of(request, await caller(request), await request.body()).answer(request, handler)

        return handle


def take_keys(router: APIRouter) -> None:
    """Lets every POST of a /api/v1 router that needs a credential take keys; called before the router is included."""
    for route in router.routes:
        if not isinstance(route, APIRoute) or not route.path.startswith("/api/v1/"):
            continue
        if isinstance(route, IdempotentRoute):
            continue  # routers are the process's: an earlier application has done it
        said = declared(route)
        if "POST" in (route.methods or ()) and said is not None and said.action is not None:
            route.__class__ = IdempotentRoute  # including a router makes its routes anew, of their class
            extra = route.openapi_extra or {}
            route.openapi_extra = {**extra, "parameters": [*extra.get("parameters", ()), _PARAMETER]}


class _Keyed:
    """One request with a key."""

    def __init__(self, services: Services, key_id: str, request_mac: str) -> None:
        self._services = services
        self._id = key_id
        self._mac = request_mac
        self._claim = secrets.token_hex(16)
        self._is_running = False

    @classmethod
    def of(cls, request: Request, actor: Actor, body: bytes) -> _Keyed:
        keys = request.headers.getlist(HEADER)
        if len(keys) > 1 or not _KEY.fullmatch(keys[0]):
            message = f"{HEADER} must be one text of 1 to 255 visible ASCII characters, for example a UUID."
            raise InvalidRequestError(message, code="IDEMPOTENCY_KEY_INVALID", field=HEADER)
        services = services_of(request)
        secret = services.vault.derive("idempotency")

        def mac(*facts: str, data: bytes = b"") -> str:
            return hmac.digest(secret, json.dumps(facts).encode() + b"\0" + data, "sha256").hex()

        credential = actor.token_id or actor.session_id or ""
        key_id = mac("id", actor.user_id, credential, request.method, request.url.path, keys[0])
        sent = mac("request", request.url.query, request.headers.get("content-type", ""), data=body)
        return cls(services, key_id, sent)

    async def answer(self, request: Request, handler: Callable[[Request], Coroutine[Any, Any, Response]]) -> Response:
        """What the request answers, or what it answered before.

        Raises:
            TakenError: `IDEMPOTENCY_IN_PROGRESS`, or `IDEMPOTENCY_OUTCOME_UNKNOWN`.
            InvalidRequestError: `IDEMPOTENCY_KEY_REUSED`.
        """
        database = self._services.database
        before = await database.writing(self._begin)
        if before is not None:
            return before
        crashpoints.reach("idempotency.after-claim")
        token = joining.set(self._join)
        self._is_running = True
        try:
            response = await handler(request)
        except BaseException as error:
            self._is_running = False
            is_refused = isinstance(error, ServiceError) and error.status < 500
            with suppress(ServiceError):  # the claim runs out by itself
                await database.writing(lambda work: self._give_up(work, is_refused=is_refused))
            raise
        finally:
            self._is_running = False
            joining.reset(token)
        crashpoints.reach("idempotency.before-answer")
        try:
            await database.writing(lambda work: self._keep(work, response))
        except ServiceError as error:  # it is done and says so; only a retry would not learn how it went
            log.warning("answer not kept", error=error.message)
        return response

    def _begin(self, work: UnitOfWork) -> Response | None:
        repository, now = IdempotencyRepository(work), work.clock()
        found = repository.claim(
            self._id,
            request_mac=self._mac,
            claim=self._claim,
            claimed_until=now + CLAIMED,
            expires_at=now + KEPT,
        )
        if found is None:
            return None
        if not hmac.compare_digest(found.request_mac, self._mac):
            message = f"This {HEADER} was used for another request; take a new one for each thing to create."
            raise InvalidRequestError(message, code="IDEMPOTENCY_KEY_REUSED", field=HEADER)
        if found.status is not None:
            return self._replayed(work, found)
        if found.claimed_until > now:
            message = "The first request with this key still runs; send it again in a moment to learn its answer."
            raise TakenError(message, code="IDEMPOTENCY_IN_PROGRESS", field=HEADER, headers={"Retry-After": "1"})
        if found.is_applied:
            message = (
                "The first request with this key was carried out, but its answer was lost. "
                "Look for what it made; take a new key to make another one."
            )
            raise TakenError(message, code="IDEMPOTENCY_OUTCOME_UNKNOWN", field=HEADER)
        repository.take_over(self._id, claim=self._claim, claimed_until=now + CLAIMED)
        return None

    def _join(self, work: UnitOfWork) -> None:
        """Is called in each durable transaction of the request."""
        if self._is_running and not IdempotencyRepository(work).apply(self._id, self._claim):
            message = "This request took so long that a retry with its key has taken over; nothing was changed by it."
            raise TakenError(message, code="IDEMPOTENCY_IN_PROGRESS", field=HEADER)

    def _give_up(self, work: UnitOfWork, *, is_refused: bool) -> None:
        IdempotencyRepository(work).give_up(self._id, self._claim, is_refused=is_refused)

    def _keep(self, work: UnitOfWork, response: Response) -> None:
        body = b"" if isinstance(response, StreamingResponse) else bytes(response.body)
        if isinstance(response, StreamingResponse) or len(body) > _MAX_ANSWER_BYTES or response.status_code >= 500:
            self._give_up(work, is_refused=False)
            return
        sealed = self._services.vault.seal(work, PLATFORM, body, self._place())
        IdempotencyRepository(work).answer(
            self._id,
            self._claim,
            status=response.status_code,
            data_key_id=sealed.data_key_id,
            nonce=sealed.nonce,
            ciphertext=sealed.ciphertext,
        )

    def _replayed(self, work: UnitOfWork, found: KeyedRequest) -> Response:
        assert found.status is not None and found.data_key_id and found.nonce and found.ciphertext
        sealed = Sealed(found.data_key_id, bytes(found.nonce), bytes(found.ciphertext))
        body = self._services.vault.unseal(work, PLATFORM, sealed, self._place())
        headers = {REPLAYED: "true"}
        if not body:
            return Response(status_code=found.status, headers=headers)
        return Response(body, found.status, headers=headers, media_type=JSONResponse.media_type)

    def _place(self) -> dict[str, str]:
        return {"idempotency": self._id}
