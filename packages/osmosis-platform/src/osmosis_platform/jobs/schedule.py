"""Kinds of jobs that come by themselves: once in each period, whoever of the workers notices first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from osmosis_platform.db.repositories.leases import LeaseRepository
from osmosis_platform.domain.job import PLATFORM
from osmosis_platform.jobs.queue import enqueue

if TYPE_CHECKING:
    from osmosis_platform.services import Services


@dataclass(frozen=True, slots=True)
class Periodic:
    """How often a kind comes.

    Attributes:
        every_s: Its period.
        setting: The setting that holds the period instead, if an administrator may choose it.
    """

    every_s: float
    setting: str | None = None

    def period_s(self, services: Services) -> float:
        """The period here."""
        return float(getattr(services.settings, self.setting)) if self.setting else self.every_s


# One line for each kind; its handler is in jobs/handler.py: KINDS, its workspace is `platform`, its payload is empty.
SCHEDULE: dict[str, Periodic] = {
    "jobs.sweep": Periodic(3600.0),
    "identity.sweep": Periodic(3600.0),
    "datasets.sweep": Periodic(3600.0),
    "workspaces.sweep": Periodic(3600.0),
    "repository.poll": Periodic(300.0, setting="git_poll_s"),
    "logs.seal": Periodic(60.0),
}


def enqueue_due(services: Services, schedule: Mapping[str, Periodic] = SCHEDULE) -> list[str]:
    """Puts the periodic jobs that are due into the queue; which. One that still runs is not put there twice."""
    periods = {kind: entry.period_s(services) for kind, entry in schedule.items()}
    with services.database.read() as work:
        due = LeaseRepository(work).due_periods(periods)
    begun = []
    for kind in due:
        with services.database.write() as work:
            if LeaseRepository(work).begin_period(kind, periods[kind]):
                enqueue(work, PLATFORM, kind, {}, unique_key="schedule:" + kind)
                begun.append(kind)
    return begun
