"""Settings of the managed Harbor gateway, as plain models; the backend that reads them is `backend.harbor`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

PrewarmMode = Literal["auto", "full", "healthcheck", "off"]
"""How much a Harbor backend prepares before it serves."""


class HarborHealthcheckConfig(BaseModel):
    """When a task environment counts as ready. Times are seconds."""

    model_config = ConfigDict(extra="forbid")

    command: Annotated[str, Field(min_length=1)]
    interval_sec: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 5.0
    timeout_sec: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 30.0
    start_period_sec: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    start_interval_sec: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 5.0
    retries: Annotated[int, Field(ge=1)] = 3


class HarborGatewayConfig(BaseModel):
    """What a managed Harbor gateway serves."""

    model_config = ConfigDict(extra="forbid")

    agent: Annotated[str, Field(pattern="^[a-z][a-z0-9-]*$")] = "opencode"
    native_agent_kwargs: dict[str, Any] = Field(default_factory=dict)
    concurrency: Annotated[int, Field(ge=1, le=256)] = 4
    environment_kwargs: dict[str, Any] = Field(default_factory=dict)
    environment_healthcheck: HarborHealthcheckConfig | None = None
    cleanup_successful_trials: bool = True
    prewarm: PrewarmMode | bool = "auto"
