"""The seam between the rollout server and whatever executes a rollout."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from osmosis_ai.rollout.types.execution import ExecutionOutcome, ExecutionRequest


class ExecutionBackend(ABC):
    """Executes rollouts. The ambient `RolloutContext` says where the rollout's model is and takes its status."""

    @abstractmethod
    async def execute(self, request: ExecutionRequest) -> ExecutionOutcome:
        """Run the agent and the grader. A failing agent is an outcome, not an exception."""

    def has_capacity(self) -> bool:
        """Whether one more rollout would be accepted; False makes the server answer 429."""
        return True

    def rollout_status(self, rollout_id: str) -> dict[str, Any] | None:
        """What the backend itself knows of a rollout; None when it keeps no such record."""
        return None

    def cancel_rollouts(
        self, ids: Sequence[str] | None = None, prefix: str | None = None, all: bool = False
    ) -> dict[str, str]:
        """Cancel rollouts that the backend owns.

        Returns:
            id to `cancelled_queued`, `cancelled_running` or `not_found`; ids it leaves out are the server's to cancel.
        """
        return {}

    def health(self) -> dict[str, Any]:
        """The backend's part of `GET /health`."""
        return {"status": "ok"}

    async def shutdown(self) -> None:
        """Release what the backend holds; nothing is executing any more."""
        return None
