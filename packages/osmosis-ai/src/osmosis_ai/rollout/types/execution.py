"""What a backend is asked to execute and what it answers; nothing here goes on the wire as it is."""

from __future__ import annotations

import math
import posixpath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict

from osmosis_ai.rollout.types.sample import RolloutSample
from osmosis_ai.rollout.types.status import RolloutErrorCategory, RolloutStatus

type RolloutFault = Literal["agent", "grader", "infrastructure"]
"""Whose side a failure is on, decided where it was caught."""


def check_path_segment(value: str) -> str:
    r"""The id, when it can name a directory.

    Raises:
        ValueError: It is empty, `.` or `..`, holds `/`, `\` or NUL, or is not its own basename.
    """
    if not value or value in (".", "..") or any(c in value for c in "/\\\0") or posixpath.basename(value) != value:
        raise ValueError(f"{value!r} is not a single path segment: no empty id, '.', '..', '/', '\\' or NUL")
    return value


def check_finite(value: float | None) -> float | None:
    """The number, unless it is NaN or infinite (ValueError)."""
    if value is not None and not math.isfinite(value):
        raise ValueError(f"{value} is not a finite number of seconds")
    return value


type PathSegment = Annotated[str, AfterValidator(check_path_segment)]
type FiniteSeconds = Annotated[float, AfterValidator(check_finite)]


class ExecutionRequest(BaseModel):
    """One rollout for a backend to execute."""

    id: PathSegment
    """The rollout id; it names the rollout's directory."""
    prompt: list[dict[str, Any]]
    """The messages the agent starts from."""
    label: str | None = None
    metadata: dict[str, Any] | None = None
    agent_timeout_sec: FiniteSeconds | None = None
    """Seconds for the agent, queue time included; zero or less is already expired, None is unbounded."""
    grader_timeout_sec: FiniteSeconds | None = None
    """Seconds for the grader; the same rules."""
    grade: bool = True
    """False stops after the agent."""


class ExecutionResult(BaseModel):
    """How the workflow, or the grader, ended."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    status: RolloutStatus
    sample: RolloutSample | None = None
    err_message: str | None = None
    err_category: RolloutErrorCategory | None = None
    err_fault: RolloutFault | None = None
    """Whose side the failure is on."""
    err_traceback: str | None = None
    """The end of the traceback, secrets removed."""
    extra_fields: dict[str, Any] | None = None
    """The backend's diagnostics, for diagnostics.json; not sent on the wire."""


class ExecutionTimings(BaseModel):
    """Seconds a rollout spent; None where it never got there."""

    queued_s: float | None = None
    agent_s: float | None = None
    grader_s: float | None = None


class ExecutionOutcome(BaseModel):
    """Both halves of a rollout."""

    workflow: ExecutionResult
    grader: ExecutionResult | None = None
    timings: ExecutionTimings | None = None

    @property
    def result(self) -> ExecutionResult:
        """The result that counts: a workflow that did not succeed, else the grader's, else the workflow's.

        A failed workflow without a sample borrows the grader's, when there is one.
        """
        if self.workflow.status is not RolloutStatus.SUCCESS:
            if self.workflow.sample is None and self.grader is not None and self.grader.sample is not None:
                return self.workflow.model_copy(update={"sample": self.grader.sample})
            return self.workflow
        return self.grader if self.grader is not None else self.workflow

    @property
    def result_to_save(self) -> ExecutionResult:
        """The result the trajectory is written from: the grader's when it has a sample, else the workflow's."""
        if self.grader is not None and self.grader.sample is not None:
            return self.grader
        return self.workflow
