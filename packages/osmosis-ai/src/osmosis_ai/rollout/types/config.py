"""Configuration that a rollout author writes once and every rollout reads."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class ConcurrencyConfig(BaseModel):
    """How much of something may run at once."""

    max_concurrent: int | None = Field(default=None, ge=1)
    """Rollouts at a time, at least 1; None is no limit."""


class BaseConfig(BaseModel):
    """A named configuration. Subclasses add fields; unknown fields are kept, and assignments are validated."""

    model_config = ConfigDict(extra="allow", validate_assignment=True, arbitrary_types_allowed=True)

    name: str
    """What logs and pages call it."""
    description: str | None = None
    """One line for people."""


class AgentWorkflowConfig(BaseConfig):
    """Configuration of an agent workflow; every rollout gets a deep copy."""

    concurrency: ConcurrencyConfig = Field(default_factory=ConcurrencyConfig)
    """How many rollouts LocalBackend runs at once."""


class GraderConfig(BaseConfig):
    """Configuration of a grader; all rollouts share the one object."""

    concurrency: ConcurrencyConfig = Field(default_factory=ConcurrencyConfig)
    """Kept for symmetry; LocalBackend limits whole rollouts by the workflow's value only."""
