"""The agent half of the authoring contract."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from osmosis_ai.rollout.context import AgentWorkflowContext
from osmosis_ai.rollout.types.config import AgentWorkflowConfig
from osmosis_ai.rollout.types.output import AgentWorkflowOutput


class AgentWorkflow[TConfig: AgentWorkflowConfig](ABC):
    """An agent. A new instance is made for every rollout, with a deep copy of the configuration.

    Args:
        config: The configuration, kept as `self.config`.
    """

    def __init__(self, config: TConfig | None = None) -> None:
        self.config = config

    @abstractmethod
    async def run(self, ctx: AgentWorkflowContext[TConfig]) -> AgentWorkflowOutput | list[dict[str, Any]] | None:
        """Work on one prompt.

        Returns:
            The output, or the conversation as a list of message dicts, or None when the agent or session registered
            a sample source on the rollout context.
        """
