"""What a person sees while an evaluation runs: a live bar on a terminal, one line an item elsewhere.

Owns: the observers of `eval run`. They are called on a thread of their own (the runner's relay) and only draw.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from osmosis_ai.cli.figures import count_text, dollars_text, duration_text, rate_text
from osmosis_ai.cli.output import Output, clean, live_allowed
from osmosis_ai.evaluation.verdict import Attempt, Outcome, Verdict, WorkItem

if TYPE_CHECKING:
    from osmosis_ai.evaluation.observer import Observer, Tally

_REFRESHES_PER_S = 4
_RATE_WINDOW = 50


def make_progress(output: Output, *, total: int, done: int, verbose: bool) -> Progress:
    """The observer for an output: live only where a terminal may be redrawn, silent under JSON."""
    if output.format == "json":
        return Progress(output, total=total, done=done, verbose=False)
    if output.format == "rich" and not verbose and live_allowed():
        return LiveProgress(output, total=total, done=done)
    return LineProgress(output, total=total, done=done, verbose=verbose)


class Progress:
    """Warnings only, and the running sums that the other kinds show. A context manager.

    Args:
        output: Where it speaks.
        total: Work items of the run.
        done: Of these, the ones with a verdict from earlier invocations.
        verbose: Echo the lines of logs.txt instead of stages.
    """

    def __init__(self, output: Output, *, total: int, done: int, verbose: bool = False) -> None:
        self.output = output
        self.total = total
        self.done = done
        self.verbose = verbose
        self.tokens = 0
        self.cost_usd: float | None = 0.0
        self.rewards = 0
        self.reward_sum = 0.0

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the terminal as it was."""

    def stage(self, text: str) -> None:
        """The run enters a stage."""

    def started(self, item: WorkItem) -> None:
        """A try at a work item begins."""

    def attempt(self, attempt: Attempt) -> None:
        """A try ended nothing."""

    def verdict(self, verdict: Verdict, tally: Tally) -> None:
        """A verdict is durable."""
        self.tokens += verdict.tokens or 0
        if verdict.cost_usd is None:
            if verdict.tokens:
                self.cost_usd = None
        elif self.cost_usd is not None:
            self.cost_usd += verdict.cost_usd
        if verdict.outcome is Outcome.GRADED and verdict.reward is not None:
            self.rewards += 1
            self.reward_sum += verdict.reward

    def log(self, line: str) -> None:
        """A line was added to logs.txt."""

    def warning(self, code: str | None, message: str) -> None:
        """Something that the user should know."""
        self.output.warn(message, code)


class LineProgress(Progress):
    """One line for each stage and each finished item; with `verbose`, the log's lines instead of stages."""

    def stage(self, text: str) -> None:  # noqa: D102
        if not self.verbose:
            self.output.note(f"→ {text}")

    def log(self, line: str) -> None:  # noqa: D102
        if self.verbose:
            self.output.note(line)

    def attempt(self, attempt: Attempt) -> None:  # noqa: D102
        failure = attempt.failure
        reason = clean(failure.message).split("\n", 1)[0][:160]
        self.output.note(
            f"row {attempt.row_index} run {attempt.run_index}: try {attempt.number} failed ({failure.code}: {reason})"
        )

    def verdict(self, verdict: Verdict, tally: Tally) -> None:  # noqa: D102
        super().verdict(verdict, tally)
        self.output.note(f"{tally.done}/{tally.total} {pass_text(tally)} · failed {tally.failed}")


class LiveProgress(Progress):
    """One bar at the bottom of the terminal; stages and warnings are printed above it."""

    def __init__(self, output: Output, *, total: int, done: int) -> None:
        super().__init__(output, total=total, done=done)
        from rich.live import Live

        from osmosis_ai.cli.drawing import make_console
        from osmosis_ai.cli.prompts import keys_unseen

        self.console = make_console(stderr=True)
        self.keyboard = ExitStack()
        self.keyboard.enter_context(keys_unseen())
        self.running = 0
        self.tally: Tally | None = None
        self.finished_at: deque[float] = deque(maxlen=_RATE_WINDOW)
        self.began_at: float | None = None
        self.live = Live(
            console=self.console, get_renderable=self._draw, refresh_per_second=_REFRESHES_PER_S, transient=True
        )

    def close(self) -> None:  # noqa: D102
        if self.live.is_started:
            self.live.stop()
        self.keyboard.close()

    def stage(self, text: str) -> None:  # noqa: D102
        self.console.print(f"→ {clean(text)}", style="dim")

    def started(self, item: WorkItem) -> None:  # noqa: D102
        self.began_at = self.began_at or time.monotonic()
        if not self.live.is_started:
            self.live.start()
        self.running += 1

    def attempt(self, attempt: Attempt) -> None:  # noqa: D102
        failure = attempt.failure
        reason = clean(failure.message).split("\n", 1)[0][:160]
        self.console.print(
            f"↻ row {attempt.row_index} run {attempt.run_index}: try {attempt.number} failed"
            f" ({failure.code}: {reason})",
            style="yellow",
        )

    def verdict(self, verdict: Verdict, tally: Tally) -> None:  # noqa: D102
        super().verdict(verdict, tally)
        self.running = max(0, self.running - 1)
        self.tally = tally
        self.finished_at.append(time.monotonic())

    def warning(self, code: str | None, message: str) -> None:  # noqa: D102
        self.console.print(f"⚠ {clean(message)}", style="yellow")

    def _draw(self) -> Any:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        done = self.tally.done if self.tally else self.done
        parts: list[tuple[str, str]] = [(f" {done}/{self.total}", "bold")]
        if self.tally:
            parts.append((pass_text(self.tally), "green"))
            if self.rewards:
                parts.append((f"reward {self.reward_sum / self.rewards:.3f}", ""))
            if self.tally.failed:
                parts.append((f"failed {self.tally.failed}", "red"))
            if self.tally.skipped:
                parts.append((f"skipped {self.tally.skipped}", "yellow"))
        if self.running:
            parts.append((f"{self.running} running", "blue"))
        if self.tokens:
            parts.append((f"{count_text(self.tokens)} tokens", "dim"))
        if self.tokens and self.cost_usd:
            parts.append((dollars_text(self.cost_usd), "dim"))
        if (left := self._seconds_left(done)) is not None:
            parts.append((f"{duration_text(left)} left", "dim"))
        words = Text(no_wrap=True, overflow="ellipsis")
        for index, (text, style) in enumerate(parts):
            words.append(" · " if index else "", "dim").append(text, style)
        grid = Table.grid(expand=True)
        grid.add_column(width=max(10, min(40, self.console.width // 4)))
        grid.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        grid.add_row(ProgressBar(total=max(1, self.total), completed=done), words)
        return grid

    def _seconds_left(self, done: int) -> float | None:
        """From the pace of the last items; None before there is one."""
        if len(self.finished_at) < 2 or self.began_at is None:
            return None
        whole = len(self.finished_at) < _RATE_WINDOW
        span = self.finished_at[-1] - (self.began_at if whole else self.finished_at[0])
        intervals = len(self.finished_at) if whole else len(self.finished_at) - 1
        since = time.monotonic() - self.finished_at[-1]
        return max(0.0, (self.total - done) * span / intervals - since)


def pass_text(tally: Tally) -> str:
    """`pass 75.0%` of the items that count, or that none does yet."""
    counted = tally.graded + tally.failed
    return f"pass {rate_text(tally.passed / counted)}" if counted else "pass –"


def _protocol_check(progress: Progress) -> Observer:
    return progress
