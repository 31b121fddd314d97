"""Who watches a training, and the relay that keeps a slow watcher from slowing the loop."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from osmosis_ai.evaluation.observer import Delivery


class TrainingObserver(Protocol):
    """Watches a training. Calls come from one thread, in order, and never from the event loop of the run."""

    def stage(self, text: str) -> None:
        """The run enters a stage: `Starting the rollout server`."""
        ...

    def progress(self, step: int, phase: str, done: int, total: int) -> None:
        """So many rollouts of a step's (`training`) or a validation pass's (`validation`) have ended."""
        ...

    def step(self, step: int, steps: int, values: Mapping[str, float]) -> None:
        """A step was trained; values by the names of `metrics.METRICS`."""
        ...

    def validation(self, step: int, values: Mapping[str, float]) -> None:
        """A validation pass over the weights after so many steps has ended."""
        ...

    def checkpoint(self, step: int, path: Path) -> None:
        """A checkpoint is safe on the disk."""
        ...

    def warning(self, code: str | None, message: str) -> None:
        """Something that the user should know."""
        ...

    def diagnosis(self, text: str) -> None:
        """Why the reward does not move, in words."""
        ...

    def log(self, line: str) -> None:
        """A line was added to logs.txt."""
        ...


class SilentTrainingObserver:
    """Watches nothing; a subclass overrides what it wants to see."""

    def stage(self, text: str) -> None:
        """Ignore it."""

    def progress(self, step: int, phase: str, done: int, total: int) -> None:
        """Ignore it."""

    def step(self, step: int, steps: int, values: Mapping[str, float]) -> None:
        """Ignore it."""

    def validation(self, step: int, values: Mapping[str, float]) -> None:
        """Ignore it."""

    def checkpoint(self, step: int, path: Path) -> None:
        """Ignore it."""

    def warning(self, code: str | None, message: str) -> None:
        """Ignore it."""

    def diagnosis(self, text: str) -> None:
        """Ignore it."""

    def log(self, line: str) -> None:
        """Ignore it."""


class TrainingRelay(Delivery):
    """A `TrainingObserver` that hands every call to another one through a `Delivery`.

    Progress and log lines are dropped while the watcher is far behind; nothing else ever is.
    """

    BACKLOG = 1000

    def __init__(self, observer: TrainingObserver) -> None:
        super().__init__()
        self._observer = observer

    def stage(self, text: str) -> None:
        """Pass it on."""
        self.put(lambda: self._observer.stage(text))

    def progress(self, step: int, phase: str, done: int, total: int) -> None:
        """Pass it on, unless the watcher is far behind."""
        self.offer(lambda: self._observer.progress(step, phase, done, total))

    def step(self, step: int, steps: int, values: Mapping[str, float]) -> None:
        """Pass it on."""
        self.put(lambda: self._observer.step(step, steps, values))

    def validation(self, step: int, values: Mapping[str, float]) -> None:
        """Pass it on."""
        self.put(lambda: self._observer.validation(step, values))

    def checkpoint(self, step: int, path: Path) -> None:
        """Pass it on."""
        self.put(lambda: self._observer.checkpoint(step, path))

    def warning(self, code: str | None, message: str) -> None:
        """Pass it on."""
        self.put(lambda: self._observer.warning(code, message))

    def diagnosis(self, text: str) -> None:
        """Pass it on."""
        self.put(lambda: self._observer.diagnosis(text))

    def log(self, line: str) -> None:
        """Pass it on, unless the watcher is far behind."""
        self.offer(lambda: self._observer.log(line))
