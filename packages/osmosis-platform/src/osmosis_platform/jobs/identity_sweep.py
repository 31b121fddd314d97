"""The periodic job that forgets sessions, logins and keys of requests that are over, and old counts of attempts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from osmosis_platform.db.repositories.device_logins import DeviceLoginRepository
from osmosis_platform.db.repositories.idempotency import IdempotencyRepository
from osmosis_platform.db.repositories.sessions import SessionRepository
from osmosis_platform.db.repositories.throttles import ThrottleRepository
from osmosis_platform.jobs.handler import JobContext

LOGINS_KEPT = timedelta(hours=1)
COUNTS_KEPT_S = 86_400.0


def run(context: JobContext) -> Mapping[str, Any]:
    """Deletes what counts for nothing any more."""
    with context.write() as work:
        return {
            "sessions": SessionRepository(work).drop_expired(),
            "device_logins": DeviceLoginRepository(work).drop_older(LOGINS_KEPT),
            "counts": ThrottleRepository(work).drop_older(COUNTS_KEPT_S),
            "keyed_requests": IdempotencyRepository(work).drop_expired(),
        }
