"""Named places where a test kills this process with SIGKILL; without `OSMOSIS_CRASH_AT` in its environment they are inert.

`OSMOSIS_CRASH_AT=job.after-claim` dies at the first visit of that place, `job.after-claim:3` at the third.
"""

from __future__ import annotations

import itertools
import os
import signal

_name, _, _visit = os.environ.get("OSMOSIS_CRASH_AT", "").partition(":")
_fatal = int(_visit or "1")
_visits = itertools.count(1)


def reach(name: str) -> None:
    """Dies here if a test said so."""
    if name == _name and next(_visits) == _fatal:
        os.kill(os.getpid(), signal.SIGKILL)
