"""Looks at a managed run again and again until it has ended, and shows what changes.

On a terminal the picture is redrawn in place; elsewhere each change is one line on stderr.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING

from osmosis_ai.cli.output import live_allowed
from osmosis_ai.errors import OsmosisError

if TYPE_CHECKING:
    from osmosis_ai.cli.output import Output
    from osmosis_ai.cli.results import Block

INTERVAL_S = 3.0
_PATIENCE = 10
_PASSING = ("RATE_LIMITED", "PLATFORM_ERROR", "NETWORK")

type Look = Callable[[], tuple[Sequence[Block], str, bool]]
"""What is seen now: a picture, one line that says it, and whether the run has ended."""


def watch(output: Output, look: Look, *, interval_s: float = INTERVAL_S) -> None:
    """Look until the run has ended; a platform that fails for a moment is asked again.

    Raises:
        OsmosisError: The first look fails, or ten in a row do, or the login is refused.
    """
    failures = 0
    said = ""
    blocks, line, over = look()
    with _screen(output) as draw:
        while True:
            if draw is not None:
                draw(blocks)
            elif line != said:
                output.note(line)
                said = line
            if over:
                return
            time.sleep(interval_s)
            try:
                blocks, line, over = look()
                failures = 0
            except OsmosisError as error:
                failures += 1
                if error.error_code not in _PASSING or failures >= _PATIENCE:
                    raise


@contextlib.contextmanager
def _screen(output: Output) -> Generator[Callable[[Sequence[Block]], None] | None]:
    """A region of the terminal that is drawn over, or None where there is no terminal for it."""
    if not (output.interactive and live_allowed()):
        yield None
        return
    from rich.live import Live

    from osmosis_ai.cli.drawing import make_console, picture
    from osmosis_ai.cli.prompts import keys_unseen

    console = make_console(stderr=True)
    with keys_unseen(), Live(console=console, auto_refresh=False, transient=True) as live:
        yield lambda blocks: live.update(picture(console, blocks), refresh=True)
