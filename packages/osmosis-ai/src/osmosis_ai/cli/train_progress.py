"""What a person sees while a training runs: curves on a terminal, one line a step elsewhere.

Owns: the observers of `train run`. They are called on a thread of their own (the loop's relay) and only draw.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from osmosis_ai.cli.figures import duration_text, path_text, reward_text, value_text
from osmosis_ai.cli.graph import sparkline
from osmosis_ai.cli.output import Output, clean, live_allowed
from osmosis_ai.cli.training_curves import TRAINING_REWARD, VALIDATION_REWARD, Curves, reward_plot

if TYPE_CHECKING:
    from osmosis_trainer.training import TrainingObserver

_REFRESHES_PER_S = 4
_PACE_STEPS = 10
_PLOT_HEIGHT = 12
_PLOT_ROWS = 7  # of a terminal that are not the plot's
_LEAST_PLOT = 4
_SPARK = 24
_SHOWN = (
    ("loss", "loss"),
    ("gap", "logprob_gap_max"),
    ("entropy", "model_entropy"),
    ("length", "response_length"),
)


def make_progress(output: Output, *, steps: int, curves: Curves) -> TrainProgress:
    """The observer for an output: live only where a terminal may be redrawn, silent under JSON.

    Args:
        output: Where it speaks.
        steps: Steps of the whole training.
        curves: What earlier invocations measured.
    """
    if output.format == "json":
        return TrainProgress(output, steps=steps, curves=curves)
    if output.format == "rich" and live_allowed():
        return LiveTrainProgress(output, steps=steps, curves=curves)
    return LineTrainProgress(output, steps=steps, curves=curves)


class TrainProgress:
    """Warnings only, and the curves that the other kinds show. A context manager.

    Args:
        output: Where it speaks.
        steps: Steps of the whole training.
        curves: What earlier invocations measured; grows.
    """

    def __init__(self, output: Output, *, steps: int, curves: Curves) -> None:
        self.output = output
        self.steps = steps
        self.curves = curves
        self.ended_at: deque[float] = deque([time.monotonic()], maxlen=_PACE_STEPS + 1)

    def __enter__(self) -> TrainProgress:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the terminal as it was."""

    def stage(self, text: str) -> None:
        """The run enters a stage."""
        self.ended_at[-1] = time.monotonic()

    def progress(self, step: int, phase: str, done: int, total: int) -> None:
        """So many rollouts of a step have ended."""

    def step(self, step: int, steps: int, values: Mapping[str, float]) -> None:
        """A step was trained."""
        self.steps = steps
        self.curves.add({**values, "step": step, "kind": "training"})
        self.ended_at.append(time.monotonic())

    def validation(self, step: int, values: Mapping[str, float]) -> None:
        """A validation pass has ended."""
        self.curves.add({**values, "step": step, "kind": "validation"})

    def checkpoint(self, step: int, path: Path) -> None:
        """A checkpoint is on the disk."""

    def warning(self, code: str | None, message: str) -> None:
        """Something that the user should know."""
        self.output.warn(message, code)

    def diagnosis(self, text: str) -> None:
        """Why the reward does not move; a warning to whoever reads only those."""
        self.output.warn(text, "NO_LEARNING_SIGNAL")

    def log(self, line: str) -> None:
        """A line was added to logs.txt."""

    def seconds_left(self) -> float | None:
        """From the pace of the last steps; None before there is one."""
        if len(self.ended_at) < 2:
            return None
        pace = (self.ended_at[-1] - self.ended_at[0]) / (len(self.ended_at) - 1)
        since = time.monotonic() - self.ended_at[-1]
        return max(0.0, (self.steps - self.curves.step) * pace - since)

    def figures(self) -> list[tuple[str, str]]:
        """Label and value of the newest metrics that say whether training is sound."""
        shown = []
        for label, name in _SHOWN:
            if (value := self.curves.last(name)) is not None:
                shown.append((label, value_text(value)))
        return shown

    def rate(self) -> str | None:
        """Tokens per second of the newest step."""
        value = self.curves.last("tokens_per_s")
        return f"{value:,.0f} tok/s" if value is not None else None


class LineTrainProgress(TrainProgress):
    """One line for each stage, step, validation pass and checkpoint."""

    def stage(self, text: str) -> None:  # noqa: D102
        super().stage(text)
        self.output.note(f"→ {text}")

    def step(self, step: int, steps: int, values: Mapping[str, float]) -> None:  # noqa: D102
        super().step(step, steps, values)
        reward = values.get(TRAINING_REWARD)
        parts = [f"step {step}/{steps}", f"reward {_reward(reward)}"]
        parts += [f"{label} {value}" for label, value in self.figures()]
        parts += [part for part in (self.rate(), self._left()) if part]
        self.output.note(" · ".join(parts))

    def validation(self, step: int, values: Mapping[str, float]) -> None:  # noqa: D102
        super().validation(step, values)
        self.output.note(validation_text(step, values))

    def checkpoint(self, step: int, path: Path) -> None:  # noqa: D102
        self.output.note(f"checkpoint after step {step}: {path_text(path)}")

    def _left(self) -> str | None:
        left = self.seconds_left()
        return f"{duration_text(left)} left" if left is not None and self.curves.step < self.steps else None


class LiveTrainProgress(TrainProgress):
    """The curves at the bottom of the terminal; what happens once is printed above them."""

    def __init__(self, output: Output, *, steps: int, curves: Curves) -> None:
        super().__init__(output, steps=steps, curves=curves)
        from rich.live import Live

        from osmosis_ai.cli.drawing import make_console
        from osmosis_ai.cli.prompts import keys_unseen

        self.console = make_console(stderr=True)
        self.keyboard = ExitStack()
        self.keyboard.enter_context(keys_unseen())
        self.now = ""
        self.live = Live(
            console=self.console, get_renderable=self._draw, refresh_per_second=_REFRESHES_PER_S, transient=True
        )

    def close(self) -> None:  # noqa: D102
        if self.live.is_started:
            self.live.stop()
        self.keyboard.close()

    def stage(self, text: str) -> None:  # noqa: D102
        super().stage(text)
        self.now = ""
        self.console.print(f"→ {clean(text)}", style="dim")

    def progress(self, step: int, phase: str, done: int, total: int) -> None:  # noqa: D102
        what = "validation rollouts" if phase == "validation" else "rollouts"
        self.now = f"learning from {total} rollouts" if done == total and phase != "validation" else ""
        self.now = self.now or f"{what} {done}/{total}"
        if not self.live.is_started:
            self.live.start(refresh=True)

    def step(self, step: int, steps: int, values: Mapping[str, float]) -> None:  # noqa: D102
        super().step(step, steps, values)
        self.now = ""
        if self.live.is_started:
            self.live.refresh()  # every step is seen, however quick
        else:
            self.live.start(refresh=True)

    def validation(self, step: int, values: Mapping[str, float]) -> None:  # noqa: D102
        super().validation(step, values)
        self.console.print(f"◆ {validation_text(step, values)}", style="green")

    def checkpoint(self, step: int, path: Path) -> None:  # noqa: D102
        self.console.print(f"✓ checkpoint after step {step}: {clean(path_text(path))}", style="dim", soft_wrap=True)

    def warning(self, code: str | None, message: str) -> None:  # noqa: D102
        self.console.print(f"⚠ {clean(message)}", style="yellow")

    def diagnosis(self, text: str) -> None:  # noqa: D102
        self.console.print(f"⚠ {clean(text)}", style="yellow")

    def _draw(self) -> Any:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        from osmosis_ai.cli.drawing import ascii_only, plot_text

        poor = ascii_only(self.console)
        head = [(f" step {self.curves.step}/{self.steps}", "bold"), (self.now, "blue"), (self.rate() or "", "dim")]
        if (left := self.seconds_left()) is not None:
            head.append((f"{duration_text(left)} left", "dim"))
        grid = Table.grid(expand=True)
        grid.add_column(width=max(10, min(40, self.console.width // 4)))
        grid.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        grid.add_row(ProgressBar(total=max(1, self.steps), completed=self.curves.step), _joined(head))
        lines: list[Any] = [grid]
        rewards = self.curves.values(TRAINING_REWARD)
        if rewards:
            facts: list[tuple[str, str]] = [(f" reward {_reward(rewards[-1])}", "cyan")]
            facts.append((sparkline(rewards[-_SPARK:], _SPARK, ascii_only=poor), "cyan"))
            if (validated := self.curves.last(VALIDATION_REWARD)) is not None:
                facts.append((f"validation {_reward(validated)}", "green"))
            facts += [(f"{label} {value}", "dim") for label, value in self.figures()]
            lines.append(_joined(facts))
        height = min(_PLOT_HEIGHT, self.console.height - _PLOT_ROWS)
        if len(rewards) > 1 and height >= _LEAST_PLOT:
            plot = reward_plot(self.curves)
            lines += [Text(), plot_text(plot, min(100, self.console.width), height, ascii_only=poor)]
        return Group(*lines)


def validation_text(step: int, values: Mapping[str, float]) -> str:
    """One line about a validation pass."""
    count = values.get("samples")
    rollouts = f" ({count:,.0f} rollouts)" if count else ""
    when = "before training" if step == 0 else f"after step {step}"
    return f"validation {when}: reward {_reward(values.get(VALIDATION_REWARD))}{rollouts}"


def _reward(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}" if abs(value) < 10 else reward_text(value)


def _joined(parts: list[tuple[str, str]]) -> Any:
    from rich.text import Text

    words = Text(no_wrap=True, overflow="ellipsis")
    shown = [(text, style) for text, style in parts if text]
    for index, (text, style) in enumerate(shown):
        words.append(" · " if index else "", "dim").append(text, style)
    return words


def _protocol_check(progress: TrainProgress) -> TrainingObserver:
    return progress
