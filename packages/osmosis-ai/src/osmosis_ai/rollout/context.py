"""The contexts a rollout runs in: what the agent gets, what the grader gets, and the ambient rollout context.

Owns the context variable that integrations read to find their model endpoint. Leaves execution to `backend`.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from osmosis_ai.rollout.types.config import AgentWorkflowConfig
from osmosis_ai.rollout.types.sample import RolloutSample
from osmosis_ai.rollout.types.status import RolloutStatus

CHAT_COMPLETIONS_URL_ENV = "OSMOSIS_CHAT_COMPLETIONS_URL"
API_KEY_ENV = "OSMOSIS_API_KEY"
ROLLOUT_ID_ENV = "OSMOSIS_ROLLOUT_ID"
ROLLOUT_ARTIFACT_ROOT_ENV = "_OSMOSIS_ROLLOUT_ARTIFACT_ROOT"
ROLLOUT_INSTANCE_ID_ENV = "_OSMOSIS_ROLLOUT_INSTANCE_ID"
ROLLOUT_NAME_ENV = "_OSMOSIS_ROLLOUT_NAME"
ROLLOUT_PORT_ENV = "_OSMOSIS_ROLLOUT_PORT"
ROLLOUT_API_KEY_ENV = "_OSMOSIS_ROLLOUT_API_KEY"
ROLLOUT_PREVIEW_ROOT_ENV = "_OSMOSIS_ROLLOUT_PREVIEW_ROOT"

_active: ContextVar[RolloutContext | None] = ContextVar("osmosis_rollout_context", default=None)


class SampleSource(ABC):
    """Something that can give the rollout's sample when the agent is done; one per rollout."""

    @abstractmethod
    async def get_sample(self) -> RolloutSample:
        """The sample as it stands."""

    async def get_preview(self, max_messages: int) -> RolloutSample | None:
        """An isolated copy of the last `max_messages` messages for live previews; None (the default) gives none.

        A limit below 1 gives None.
        """
        return None


@dataclass
class RolloutProgress:
    """The status of a running rollout, and whoever wants to hear of its changes.

    Attributes:
        status: Where the rollout stands.
        on_status: Called with every new status, on the event loop; it must not block.
    """

    status: RolloutStatus = RolloutStatus.QUEUED
    on_status: Callable[[RolloutStatus], None] | None = None

    async def set_status(self, status: RolloutStatus) -> None:
        """Take note of the status; one that stands already changes nothing."""
        if status is not self.status:
            self.status = status
            if self.on_status is not None:
                self.on_status(status)


@dataclass
class AgentWorkflowContext[TConfig: AgentWorkflowConfig]:
    """What `AgentWorkflow.run` gets.

    Attributes:
        prompt: The messages to start from.
        config: The workflow's own copy of its configuration.
        metadata: The dataset row's metadata.
        artifacts_dir: Where files to keep may be written; None when there is no such place.
    """

    prompt: list[dict[str, Any]]
    config: TConfig | None = None
    metadata: dict[str, Any] | None = None
    artifacts_dir: Path | None = None


@dataclass
class GraderContext:
    """What `Grader.grade` gets.

    Attributes:
        label: The dataset row's ground truth.
        sample: What the agent produced; None when it produced nothing.
        project_path: Where the graded project lies, for backends that have one.
        metadata: The dataset row's metadata.
        artifacts_dir: Where the agent's files lie and more may be written; None when there is no such place.
    """

    label: str | None = None
    sample: RolloutSample | None = None
    project_path: str | None = None
    metadata: dict[str, Any] | None = None
    artifacts_dir: Path | None = None

    def set_reward(self, reward: float) -> None:
        """Give the sample its reward.

        Raises:
            ValueError: There is no sample, or the reward is not a finite number.
        """
        if self.sample is None:
            raise ValueError("there is no sample to reward: the agent returned no messages and registered no source")
        self.sample.reward = reward


@dataclass
class RolloutContext:
    """The ambient facts of one rollout; `with context:` makes it what `get_rollout_context()` returns.

    Attributes:
        chat_completions_url: Base URL of the rollout's model; empty falls back to OSMOSIS_CHAT_COMPLETIONS_URL.
        api_key: Key for it; empty falls back to OSMOSIS_API_KEY.
        rollout_id: Empty falls back to OSMOSIS_ROLLOUT_ID.
        sample_source: Where the sample comes from when the workflow returns None.
        progress: Where status changes go.
        process_id: Which server process runs it.
        preview_path: Where live previews are written; None writes none.
        preview_enabled: False opts out of live previews when set before a source is registered and before the
            workflow first awaits; later it only stops further snapshots.
    """

    chat_completions_url: str = ""
    api_key: str | None = field(default=None, repr=False)
    rollout_id: str = ""
    sample_source: SampleSource | None = None
    progress: RolloutProgress | None = None
    process_id: str | None = None
    preview_path: Path | None = None
    preview_enabled: bool = True
    _tokens: list[Token[RolloutContext | None]] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.chat_completions_url = self.chat_completions_url or os.environ.get(CHAT_COMPLETIONS_URL_ENV, "")
        self.api_key = self.api_key or os.environ.get(API_KEY_ENV) or None
        self.rollout_id = self.rollout_id or os.environ.get(ROLLOUT_ID_ENV, "")

    def __enter__(self) -> Self:
        self._tokens.append(_active.set(self))
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        token = self._tokens.pop()
        try:
            _active.reset(token)
        except ValueError:  # left in another context than it was entered in (an abandoned task)
            _active.set(None)

    def set_sample_source(self, source: SampleSource) -> None:
        """Register where the sample comes from.

        Raises:
            ValueError: A source is registered already; a rollout has one sample.
        """
        if self.sample_source is not None:
            raise ValueError(
                f"rollout {self.rollout_id or '(no id)'} already has a sample source "
                f"({type(self.sample_source).__name__}): a rollout has one sample, so create one agent or session "
                "with a source, or return the messages from run"
            )
        self.sample_source = source

    async def get_sample(self) -> RolloutSample | None:
        """The registered source's sample; None without a source."""
        return None if self.sample_source is None else await self.sample_source.get_sample()

    async def set_status(self, status: RolloutStatus) -> None:
        """Report the status, when anybody listens."""
        if self.progress is not None:
            await self.progress.set_status(status)


def get_rollout_context() -> RolloutContext | None:
    """The rollout the caller runs in; None outside of one."""
    return _active.get()
