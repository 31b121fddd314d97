"""What `AgentWorkflow.run` may return, and the one function that turns it into a known shape."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

type Messages = list[dict[str, Any]]
"""One message history, in whatever message format the agent's framework uses."""


class AgentWorkflowOutput(BaseModel):
    """The result of one agent run."""

    model_config = ConfigDict(extra="forbid")

    messages: list[dict[str, Any]] | None = None
    """The conversation; None means the rollout has no sample."""
    metrics: dict[str, Annotated[float, Field(allow_inf_nan=False)]] = Field(default_factory=dict)
    """Finite numbers to keep with the sample."""
    info: dict[str, Any] = Field(default_factory=dict)
    """Reserved; graders do not see it."""


def coerce_output(returned: object) -> AgentWorkflowOutput | None:
    """Turn what `run` returned into an output.

    Args:
        returned: None (take the sample from the registered source), a list of message dicts, or an output, which is
            validated again because its fields may have been assigned since.

    Raises:
        TypeError: It is none of these.
        pydantic.ValidationError: The messages or metrics have the wrong shape.
    """
    if returned is None:
        return None
    if isinstance(returned, list):
        return AgentWorkflowOutput(messages=returned)
    if isinstance(returned, AgentWorkflowOutput):
        return AgentWorkflowOutput.model_validate(dict(returned))
    raise TypeError(
        f"AgentWorkflow.run returned {type(returned).__name__}; return an AgentWorkflowOutput, a list of message "
        "dicts, or None to use the registered sample source"
    )
