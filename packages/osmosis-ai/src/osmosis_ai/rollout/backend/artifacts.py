"""The directory a rollout may keep files in."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

from osmosis_ai.rollout.context import ROLLOUT_ARTIFACT_ROOT_ENV

logger = logging.getLogger(__name__)

HEALTH_MARKER = ".osmosis-health-check"
HEALTH_MARKER_TEXT = "osmosis-health-check"
_TRIES = 3
_FIRST_PAUSE_S = 0.5


def default_artifact_root() -> Path:
    """`_OSMOSIS_ROLLOUT_ARTIFACT_ROOT`, else `~/.osmosis`."""
    configured = os.environ.get(ROLLOUT_ARTIFACT_ROOT_ENV)
    return Path(configured) if configured else Path.home() / ".osmosis"


async def prepare_artifacts_dir(root: Path, rollout_id: str) -> Path | None:
    """Make `<root>/<id>/artifacts` and prove that the place can be written, off the event loop.

    Returns:
        The directory, or None (with a warning) when the place stays unusable after three tries. It is never an error:
        an agent that needs no files runs without.
    """
    pause_s = _FIRST_PAUSE_S
    for attempt in range(1, _TRIES + 1):
        try:
            # A thread, because the root may be a network mount that hangs.
            return await asyncio.to_thread(_make, root / rollout_id)
        except OSError as exc:
            if attempt == _TRIES:
                logger.warning("rollout %s has no artifacts directory under %s: %s", rollout_id, root, exc)
                return None
        await asyncio.sleep(pause_s)
        pause_s *= 2
    return None


def _make(rollout_dir: Path) -> Path:
    artifacts_dir = rollout_dir / "artifacts"
    artifacts_dir.mkdir(parents=True, exist_ok=True)
    (rollout_dir / HEALTH_MARKER).write_text(HEALTH_MARKER_TEXT, encoding="utf-8")
    return artifacts_dir
