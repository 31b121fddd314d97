"""The grader half of the authoring contract."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from osmosis_ai.rollout.context import GraderContext
from osmosis_ai.rollout.types.config import GraderConfig


class Grader(ABC):
    """A judge of samples. A new instance is made for every rollout; all share the configuration.

    Args:
        config: The configuration, kept as `self.config`.
    """

    def __init__(self, config: GraderConfig | None = None) -> None:
        self.config = config

    @abstractmethod
    async def grade(self, ctx: GraderContext) -> Any:
        """Judge `ctx.sample` and call `ctx.set_reward(number)`; the returned value is ignored.

        Leaving the reward unset leaves the sample ungraded: it is counted as skipped, never as zero.
        """
