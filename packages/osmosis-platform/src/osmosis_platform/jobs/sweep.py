"""The periodic job that forgets jobs which ended long ago, workers which have gone, and values of runs that never ended."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from osmosis_platform.db.repositories.leases import LeaseRepository
from osmosis_platform.jobs.handler import JobContext
from osmosis_platform.secrets import provided

KEPT = timedelta(days=30)
SILENT = timedelta(hours=1)


def run(context: JobContext) -> Mapping[str, Any]:
    """Deletes what nobody asks for any more."""
    with context.write() as work:
        now = work.clock()
        return {
            "jobs": LeaseRepository(work).sweep(ended_before=now - KEPT, workers_before=now - SILENT),
            "run_values": provided.sweep(work),
        }
