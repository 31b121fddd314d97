"""The strict models of ATIF 1.0 to 1.8: unknown fields are refused, and the rules between fields are checked.

Field names and rules are those of Harbor's RFC 0001 (harbor.models.trajectories, 0.26). A document is accepted with
the fields of the newest version whatever version it names, as Harbor itself reads them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

type SchemaVersion = Literal[
    "ATIF-v1.0",
    "ATIF-v1.1",
    "ATIF-v1.2",
    "ATIF-v1.3",
    "ATIF-v1.4",
    "ATIF-v1.5",
    "ATIF-v1.6",
    "ATIF-v1.7",
    "ATIF-v1.8",
]
type FiniteFloat = Annotated[float, Field(allow_inf_nan=False)]
type Count = Annotated[int, Field(ge=0)]
type Extra = dict[str, Any] | None

_AGENT_ONLY = ("model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics")
_LLM_ONLY = ("metrics", "reasoning_content")
_MEDIA_TYPES = {
    "image": {f"image/{kind}" for kind in ("jpeg", "png", "gif", "webp")},
    # with the spellings that providers use for the registered types
    "audio": {
        f"audio/{kind}"
        for kind in (
            *("wav", "x-wav", "wave", "vnd.wave", "mpeg", "mp3", "mpga", "x-mpeg", "mp4", "m4a", "x-m4a"),
            *("aac", "x-aac", "ogg", "flac", "x-flac", "webm", "aiff", "x-aiff"),
        )
    },
}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Agent(_Strict):
    """Who acted."""

    name: str
    version: str
    model_name: str | None = None
    tool_definitions: list[dict[str, Any]] | None = None
    extra: Extra = None


class MediaSource(_Strict):
    """Where an image or a sound lies."""

    media_type: str
    path: str
    duration_sec: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None


class ContentPart(_Strict):
    """A piece of a message: text, or an image (1.6), or audio (1.8)."""

    type: Literal["text", "image", "audio"]
    text: str | None = None
    source: MediaSource | None = None

    @model_validator(mode="after")
    def _fields_fit_the_type(self) -> Self:
        if self.type == "text":
            if self.text is None or self.source is not None:
                raise ValueError("a text part has text and no source")
        elif self.source is None or self.text is not None:
            raise ValueError(f"an {self.type} part has a source and no text")
        elif self.source.media_type not in _MEDIA_TYPES[self.type]:
            raise ValueError(f"an {self.type} part cannot have the media type {self.source.media_type!r}")
        elif self.type == "image" and self.source.duration_sec is not None:
            raise ValueError("an image has no duration_sec")
        return self


class ToolCall(_Strict):
    """A call of the agent's."""

    tool_call_id: str
    function_name: str
    arguments: dict[str, Any]
    extra: Extra = None


class SubagentTrajectoryRef(_Strict):
    """Where a delegated agent's trajectory is."""

    trajectory_id: str | None = None
    session_id: str | None = None
    trajectory_path: str | None = None
    extra: Extra = None

    @model_validator(mode="after")
    def _can_be_resolved(self) -> Self:
        # Before 1.7 the reference was the session's id; it stays readable.
        if self.trajectory_id is None and self.trajectory_path is None:
            raise ValueError("a subagent reference needs trajectory_id or trajectory_path")
        return self


class ObservationResult(_Strict):
    """What one call gave."""

    source_call_id: str | None = None
    content: str | list[ContentPart] | None = None
    subagent_trajectory_ref: list[SubagentTrajectoryRef] | None = None
    extra: Extra = None


class Observation(_Strict):
    """What a step's calls gave."""

    results: list[ObservationResult]


class Metrics(_Strict):
    """Tokens and cost of a step's model call."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: FiniteFloat | None = None
    prompt_token_ids: list[int] | None = None
    completion_token_ids: list[int] | None = None
    logprobs: list[FiniteFloat] | None = None
    extra: Extra = None


class FinalMetrics(_Strict):
    """Totals of a trajectory."""

    total_prompt_tokens: int | None = None
    total_completion_tokens: int | None = None
    total_cached_tokens: int | None = None
    total_cost_usd: FiniteFloat | None = None
    total_steps: Count | None = None
    extra: Extra = None


class Step(_Strict):
    """One turn of the conversation."""

    step_id: Annotated[int, Field(ge=1)]
    timestamp: str | None = None
    source: Literal["system", "user", "agent"]
    model_name: str | None = None
    reasoning_effort: str | FiniteFloat | None = None
    message: str | list[ContentPart]
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    observation: Observation | None = None
    metrics: Metrics | None = None
    is_copied_context: bool | None = None
    llm_call_count: Count | None = None
    extra: Extra = None

    @field_validator("timestamp")
    @classmethod
    def _is_iso_8601(cls, value: str | None) -> str | None:
        if value is not None:
            datetime.fromisoformat(value)
        return value

    @model_validator(mode="after")
    def _fields_fit_the_source(self) -> Self:
        if self.source != "agent":
            present = [name for name in _AGENT_ONLY if getattr(self, name) is not None]
            if present:
                raise ValueError(f"{', '.join(present)}: only for steps of the agent, not of source {self.source!r}")
        elif self.llm_call_count == 0:
            present = [name for name in _LLM_ONLY if getattr(self, name) is not None]
            if present:
                raise ValueError(f"{', '.join(present)}: not allowed when llm_call_count is 0")
        return self


class Trajectory(_Strict):
    """An ATIF document."""

    schema_version: SchemaVersion
    session_id: str | None = None
    trajectory_id: str | None = None
    agent: Agent
    steps: Annotated[list[Step], Field(min_length=1)]
    notes: str | None = None
    final_metrics: FinalMetrics | None = None
    continued_trajectory_ref: str | None = None
    extra: Extra = None
    subagent_trajectories: list[Trajectory] | None = None

    @model_validator(mode="after")
    def _steps_are_in_sequence(self) -> Self:
        for expected, step in enumerate(self.steps, start=1):
            if step.step_id != expected:
                raise ValueError(f"steps[{expected - 1}].step_id is {step.step_id}, not {expected}")
        return self

    @model_validator(mode="after")
    def _observations_belong_to_calls_of_their_step(self) -> Self:
        for step in self.steps:
            if step.observation is None:
                continue
            calls = {call.tool_call_id for call in step.tool_calls or ()}
            for result in step.observation.results:
                if result.source_call_id is not None and result.source_call_id not in calls:
                    raise ValueError(f"step {step.step_id} observes {result.source_call_id!r}, which it did not call")
        return self

    @model_validator(mode="after")
    def _subagents_are_told_apart(self) -> Self:
        ids = [subagent.trajectory_id for subagent in self.subagent_trajectories or ()]
        if None in ids:
            raise ValueError("an embedded subagent trajectory needs a trajectory_id")
        if len(set(ids)) != len(ids):
            raise ValueError("embedded subagent trajectories have the same trajectory_id")
        return self
