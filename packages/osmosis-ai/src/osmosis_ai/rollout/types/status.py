"""The words for where a rollout stands and what kind of error ended it; both travel on the wire."""

from __future__ import annotations

from enum import StrEnum


class RolloutStatus(StrEnum):
    """Where a rollout stands; the last three of its walk are terminal."""

    QUEUED = "queued"
    RUNNING = "running"
    GRADING = "grading"
    SUCCESS = "success"
    FAILURE = "failure"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"

    @property
    def terminal(self) -> bool:
        """Whether the rollout has ended."""
        return self in (RolloutStatus.SUCCESS, RolloutStatus.FAILURE, RolloutStatus.CANCELLED)


class RolloutErrorCategory(StrEnum):
    """What kind of error ended a rollout; `utils.errors.category_of` maps exceptions to it."""

    TIMEOUT = "timeout"
    LEASE_EXPIRED = "lease_expired"
    VALIDATION_ERROR = "validation_error"
    HTTP_ERROR = "http_error"
    AGENT_ERROR = "agent_error"
    INTERNAL_ERROR = "internal_error"
