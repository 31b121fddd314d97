"""The bar of an upload or download: bytes, rate and time left on a terminal; elsewhere nothing or a line now and then.

Owns: the drawing. Bytes are counted by whoever moves them, from several threads.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

from osmosis_ai.cli.figures import size_text
from osmosis_ai.cli.output import live_allowed

if TYPE_CHECKING:
    from osmosis_ai.cli.output import Output

_LINE_EVERY_S = 5.0


@contextlib.contextmanager
def moving(output: Output, verb: str, total_bytes: int) -> Generator[Callable[[int], None]]:
    """Show a transfer while it goes on.

    Args:
        output: Where it is shown: a bar on a terminal, lines of text otherwise, nothing under JSON.
        verb: `Uploading` or `Downloading`.
        total_bytes: Bytes that will travel.

    Yields:
        Gets how many bytes more were moved; fewer than none when a try begins anew.
    """
    if output.format == "json" or total_bytes == 0:
        yield lambda _count: None
    elif output.format == "rich" and output.interactive and live_allowed():
        with _bar(verb, total_bytes) as advance:
            yield advance
    else:
        yield _Lines(output, verb, total_bytes).add


class _Lines:
    """One line when a transfer takes long, and then every few seconds."""

    def __init__(self, output: Output, verb: str, total_bytes: int) -> None:
        self._output = output
        self._verb = verb
        self._total = total_bytes
        self._moved = 0
        self._next_at = time.monotonic() + _LINE_EVERY_S
        self._lock = threading.Lock()  # several transfers report at once

    def add(self, count: int) -> None:
        with self._lock:
            self._moved += count
            if (now := time.monotonic()) < self._next_at:
                return
            self._next_at = now + _LINE_EVERY_S
            share = 100 * self._moved / self._total
            sizes = f"{size_text(self._moved)} of {size_text(self._total)}"
            self._output.note(f"{self._verb}: {sizes} ({share:.0f}%)")


@contextlib.contextmanager
def _bar(verb: str, total_bytes: int) -> Generator[Callable[[int], None]]:
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    from osmosis_ai.cli.drawing import make_console
    from osmosis_ai.cli.prompts import keys_unseen

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with keys_unseen(), Progress(*columns, console=make_console(stderr=True), transient=True) as progress:
        task = progress.add_task(verb, total=total_bytes)
        yield lambda count: progress.update(task, advance=count)
