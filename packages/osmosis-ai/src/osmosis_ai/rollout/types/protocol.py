"""The wire models of the rollout server (HTTP bodies); the server and the client share them."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from osmosis_ai.rollout.types.execution import ExecutionTimings, FiniteSeconds, PathSegment, RolloutFault
from osmosis_ai.rollout.types.sample import RolloutSample
from osmosis_ai.rollout.types.status import RolloutErrorCategory, RolloutStatus

POLLING_LEASE_HEADER = "X-Osmosis-Rollout-Lease"
"""The header in which a poll shows its lease token."""

type CancelDisposition = Literal["cancelled_queued", "cancelled_running", "not_found"]


class RolloutInitRequest(BaseModel):
    """The body of `POST /rollout`."""

    initial_messages: list[dict[str, Any]]
    rollout_id: PathSegment
    chat_completions_url: str
    """Base URL of the rollout's model; agents append `/chat/completions`."""
    llm_api_key: Annotated[str, Field(min_length=1)] | None = None
    label: str | None = None
    metadata: dict[str, Any] | None = None
    """The dataset row's metadata; `osmosis_observability` may carry run_id and run_name for the ownership log."""
    grade: bool = True
    agent_timeout_sec: FiniteSeconds | None = None
    grader_timeout_sec: FiniteSeconds | None = None
    extra_fields: dict[str, Any] | None = None
    """Echoed into the trajectory only."""


class RolloutInitResponse(BaseModel):
    """The answer to `POST /rollout`: the rollout is admitted, and this is the lease to poll it with."""

    rollout_id: str
    status: RolloutStatus = RolloutStatus.QUEUED
    polling_lease_token: Annotated[str, Field(min_length=1)]
    result_wait_timeout_sec: float
    """How long one poll may take."""
    polling_lease_timeout_sec: float
    """The rollout is cancelled when no poll comes for so long."""

    @model_validator(mode="after")
    def _lease_outlasts_a_poll(self) -> RolloutInitResponse:
        check_lease_timeouts(self.result_wait_timeout_sec, self.polling_lease_timeout_sec)
        return self


def check_lease_timeouts(wait_s: float, lease_s: float) -> None:
    """Refuse timeouts with which a poller could lose its lease while it polls.

    Raises:
        ValueError: The wait is not positive and finite, or the lease is not finite and greater than the wait.
    """
    if not math.isfinite(wait_s) or wait_s <= 0:
        raise ValueError(f"result_wait_timeout_sec must be positive and finite, not {wait_s}")
    if not math.isfinite(lease_s) or lease_s <= 0:
        raise ValueError(f"polling_lease_timeout_sec must be positive and finite, not {lease_s}")
    if lease_s <= wait_s:
        raise ValueError(
            f"polling_lease_timeout_sec ({lease_s}) must be greater than result_wait_timeout_sec ({wait_s})"
        )


class RolloutResultResponse(BaseModel):
    """The answer to `GET /rollout/{id}/result`. Before the end only `rollout_id` and `status` are set."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    rollout_id: str
    status: RolloutStatus
    sample: RolloutSample | None = None
    err_message: str | None = None
    err_category: RolloutErrorCategory | None = None
    err_fault: RolloutFault | None = None
    """Whose side the failure is on; published servers do not say."""
    err_traceback: str | None = None
    """The last part of the traceback, secrets removed; published servers do not say."""
    timings: ExecutionTimings | None = None
    """Seconds queued, in the agent and in the grader; published servers do not say."""


class RolloutLifecycle(BaseModel):
    """The `lifecycle` of `GET /health`."""

    accepting_rollouts: bool
    active_rollouts: Annotated[int, Field(ge=0)]


class CancelRolloutsRequest(BaseModel):
    """The body of `POST /rollout/cancel`: exactly one of the three."""

    ids: list[str] | None = None
    prefix: str | None = None
    all: bool = False

    @model_validator(mode="after")
    def _exactly_one(self) -> CancelRolloutsRequest:
        if (self.ids is not None) + (self.prefix is not None) + self.all != 1:
            raise ValueError("give exactly one of ids, prefix, all=true")
        return self


class CancelRolloutsResponse(BaseModel):
    """The answer to `POST /rollout/cancel`: what became of each rollout. Asking again is harmless."""

    dispositions: dict[str, CancelDisposition]
