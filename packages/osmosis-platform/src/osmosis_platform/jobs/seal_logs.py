"""`logs.seal`: moves log lines that are no longer hot into compressed objects; what and how is in events/sealing.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from osmosis_platform.events.sealing import seal_streams
from osmosis_platform.jobs.handler import JobContext


def run(context: JobContext) -> Mapping[str, Any]:
    """Seals what is due; again after an interruption it goes on where it was."""
    return {"segments": seal_streams(context.services)}
