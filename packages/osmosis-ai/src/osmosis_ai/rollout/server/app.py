"""`create_rollout_server`: the HTTP surface of a rollout backend.

Owns routes, status codes and the order of shutting down. Leaves executing to `execution`, leases and waiting to
`registry`, the gate to `auth`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from osmosis_ai.rollout.backend.base import ExecutionBackend
from osmosis_ai.rollout.context import ROLLOUT_API_KEY_ENV, ROLLOUT_INSTANCE_ID_ENV, ROLLOUT_PREVIEW_ROOT_ENV
from osmosis_ai.rollout.server.auth import BearerGate
from osmosis_ai.rollout.server.execution import RolloutExecutor, StatusListener
from osmosis_ai.rollout.types.protocol import (
    POLLING_LEASE_HEADER,
    CancelRolloutsRequest,
    RolloutInitRequest,
    check_lease_timeouts,
)
from osmosis_ai.rollout.types.status import RolloutStatus

if TYPE_CHECKING:
    from osmosis_ai.rollout.server.ownership import OwnershipLog

__all__ = [
    "DEFAULT_POLLING_LEASE_TIMEOUT_SEC",
    "DEFAULT_RESULT_RETENTION_SEC",
    "DEFAULT_RESULT_WAIT_TIMEOUT_SEC",
    "POLLING_LEASE_HEADER",
    "create_rollout_server",
]

logger = logging.getLogger(__name__)

DEFAULT_RESULT_WAIT_TIMEOUT_SEC = 30.0
DEFAULT_POLLING_LEASE_TIMEOUT_SEC = 120.0
DEFAULT_RESULT_RETENTION_SEC = 900.0

OTLP_ENDPOINT_ENV = "OSMOSIS_ROLLOUT_OTLP_ENDPOINT"
RETRY_AFTER_S = 5
"""What a full server asks its callers to wait."""
DRAIN_PATIENCE_S = 10.0
DRAIN_CANCEL_WAIT_S = 120.0
DRAIN_FORCE_WAIT_S = 10.0

type Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[Mapping[str, Any] | None]]


def create_rollout_server(
    *,
    backend: ExecutionBackend,
    lifespan: Lifespan | None = None,
    configure_logging: bool = True,
    result_wait_timeout_sec: float = DEFAULT_RESULT_WAIT_TIMEOUT_SEC,
    polling_lease_timeout_sec: float = DEFAULT_POLLING_LEASE_TIMEOUT_SEC,
    result_retention_sec: float = DEFAULT_RESULT_RETENTION_SEC,
    api_key: str | None = None,
) -> FastAPI:
    """The rollout server's application; serve it with uvicorn.

    Args:
        backend: What executes the rollouts.
        lifespan: Your own start-up and shutdown around the server's, as FastAPI takes it.
        configure_logging: Log INFO to stderr when nobody has configured logging.
        result_wait_timeout_sec: How long one poll for a result waits.
        polling_lease_timeout_sec: A rollout that nobody polls for so long is cancelled.
        result_retention_sec: How long a finished result can be read.
        api_key: Every route then requires it as a bearer token. None takes `_OSMOSIS_ROLLOUT_API_KEY` when that is
            set, which `osmosis eval run` does; with neither there is no gate.

    Raises:
        ValueError: A timeout is not positive or not finite, the lease does not outlast a poll, or the key is blank.
    """
    check_lease_timeouts(result_wait_timeout_sec, polling_lease_timeout_sec)
    if not math.isfinite(result_retention_sec) or result_retention_sec < 0:
        raise ValueError(f"result_retention_sec must be finite and not negative, not {result_retention_sec}")
    key_name = "api_key"
    if api_key is None and (api_key := os.environ.get(ROLLOUT_API_KEY_ENV)) is not None:
        key_name = ROLLOUT_API_KEY_ENV
    if api_key is not None and not api_key.strip():
        raise ValueError(f"{key_name} is blank; give a key, or leave it out to serve without one")
    if configure_logging:
        _configure_logging()

    process_id = str(uuid.uuid4())
    instance_id = os.environ.get(ROLLOUT_INSTANCE_ID_ENV) or process_id
    side = _SideChannels(instance_id)
    executor = RolloutExecutor(
        backend,
        process_id=process_id,
        lease_timeout_s=polling_lease_timeout_sec,
        retention_s=result_retention_sec,
        on_status=side.on_status,
        preview_path=side.preview_path,
    )
    accepting = True

    @asynccontextmanager
    async def whole_life(app: FastAPI) -> AsyncGenerator[Mapping[str, Any]]:
        nonlocal accepting
        async with lifespan(app) if lifespan is not None else nullcontext() as state:
            try:
                yield state or {}
            finally:
                accepting = False
                await executor.drain(
                    patience_s=DRAIN_PATIENCE_S, cancel_wait_s=DRAIN_CANCEL_WAIT_S, force_wait_s=DRAIN_FORCE_WAIT_S
                )
                try:
                    await backend.shutdown()
                except Exception:
                    logger.exception("the backend failed to shut down")
                executor.registry.close()
                await side.close()

    app = FastAPI(title="Osmosis rollout server", lifespan=whole_life)
    app.state.rollout_futures = executor.registry

    def openapi() -> dict[str, Any]:
        from osmosis_ai.rollout.server.openapi import describe

        return describe(app)

    app.openapi = openapi
    if api_key is not None:
        app.add_middleware(BearerGate, api_key=api_key)

    # The handlers read and write bodies themselves: they are served thousands of times a minute, and FastAPI's own
    # parsing and serialising costs more than all of the rest. `openapi` describes them.

    @app.get("/health")
    async def health(request: Request) -> Response:
        lifecycle = {"accepting_rollouts": accepting, "active_rollouts": len(executor.registry.executing())}
        identity = {"instance_id": instance_id, "process_id": process_id, "lifecycle": lifecycle}
        return _json({**backend.health(), **identity})

    @app.post("/rollout", status_code=202)
    async def start_rollout(request: Request) -> Response:
        rollout = _parse(RolloutInitRequest, await request.body())
        if not accepting:
            raise HTTPException(503, "rollout server is shutting down")
        if rollout.rollout_id in executor.registry:
            raise HTTPException(409, "rollout_id is already registered")
        if not backend.has_capacity():
            raise HTTPException(429, "rollout queue is full; retry later", headers={"Retry-After": str(RETRY_AFTER_S)})
        token = executor.start(rollout)
        admitted = {
            "rollout_id": rollout.rollout_id,
            "status": RolloutStatus.QUEUED.value,
            "polling_lease_token": token,
            "result_wait_timeout_sec": result_wait_timeout_sec,
            "polling_lease_timeout_sec": polling_lease_timeout_sec,
        }
        return _json(admitted, 202)

    @app.get("/rollout/{rollout_id}/result")
    async def rollout_result(request: Request) -> Response:
        token = request.headers.get(POLLING_LEASE_HEADER)
        if not token:
            where = ("header", POLLING_LEASE_HEADER)
            raise RequestValidationError([{"type": "missing", "loc": where, "msg": "Field required"}])
        record = executor.registry.find(request.path_params["rollout_id"])
        if record is None:
            raise HTTPException(404, "unknown rollout_id")
        if not record.holds_lease(token):
            raise HTTPException(403, "invalid polling lease")
        if record.body is None:
            executor.registry.renew(record)
            await record.wait_for_change(result_wait_timeout_sec)
        return Response(record.answer(), media_type="application/json")

    @app.post("/rollout/cancel")
    async def cancel_rollouts(request: Request) -> Response:
        wanted = _parse(CancelRolloutsRequest, await request.body())
        return _json({"dispositions": await executor.cancel(wanted)})

    return app


class _SideChannels:
    """The ownership log and the previews, each loaded only when its environment variable asks for it."""

    def __init__(self, instance_id: str) -> None:
        self.on_status: StatusListener | None = None
        self.preview_path: Callable[[str], Path | None] = lambda rollout_id: None
        self._ownership: OwnershipLog | None = None
        if os.environ.get(OTLP_ENDPOINT_ENV):
            from osmosis_ai.rollout.server.ownership import OwnershipLog

            self._ownership = OwnershipLog.from_environment(instance_id)
            if self._ownership is not None:
                self.on_status = self._ownership.record
        if os.environ.get(ROLLOUT_PREVIEW_ROOT_ENV):
            from osmosis_ai.rollout.preview import preview_path

            self.preview_path = preview_path

    async def close(self) -> None:
        if self._ownership is not None:
            await asyncio.to_thread(self._ownership.close)  # it may have to wait for its last export


def _parse[M: BaseModel](model: type[M], raw: bytes) -> M:
    """The body as a model; what is wrong becomes FastAPI's usual 422, without echoing the body (it holds a key)."""
    try:
        return model.model_validate_json(raw)
    except ValidationError as exc:
        errors = exc.errors(include_url=False, include_context=False, include_input=False)
        if any(error["type"] == "json_invalid" for error in errors) and (document := _lenient(raw)) is not None:
            try:
                return model.model_validate(document)
            except ValidationError as again:
                errors = again.errors(include_url=False, include_context=False, include_input=False)
        raise RequestValidationError([{**error, "loc": ("body", *error["loc"])} for error in errors]) from None


def _lenient(raw: bytes) -> dict[str, Any] | None:
    """JSON as Python reads it: lone surrogates in a conversation are allowed."""
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _json(content: Any, status: int = 200) -> Response:
    return Response(json.dumps(content).encode(), status_code=status, media_type="application/json")


def _configure_logging() -> None:
    if not logging.getLogger().handlers:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs every request of every agent
