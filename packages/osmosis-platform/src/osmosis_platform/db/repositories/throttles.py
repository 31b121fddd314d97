"""Counters of attempts in fixed windows, shared by every process of the platform."""

from __future__ import annotations

from datetime import timedelta

import sqlalchemy as sa

from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.inserts import insert
from osmosis_platform.db.tables.identity import throttles


class ThrottleRepository:
    """Attempts, by what is counted, for example `user-code:203.0.113.9`."""

    GLOBAL = "attempts are counted before anybody is known"

    def __init__(self, work: UnitOfWork) -> None:
        self._work = work

    def hit(self, key: str, window_s: float) -> int:
        """Counts an attempt.

        Args:
            key: What is counted.
            window_s: When counting starts anew; a window that starts in the future (the clock jumped) is over too.

        Returns:
            Attempts in the window, this one included.
        """
        now = self._work.clock()
        is_over = sa.or_(
            throttles.c.window_started_at <= now - timedelta(seconds=window_s), throttles.c.window_started_at > now
        )
        started = throttles.c.window_started_at
        statement = insert(self._work, throttles).values(key=key, window_started_at=now, count=1)
        count = self._work.execute(
            statement.on_conflict_do_update(
                index_elements=[throttles.c.key],
                set_={
                    "count": sa.case((is_over, 1), else_=throttles.c.count + 1),
                    "window_started_at": sa.case((is_over, statement.excluded.window_started_at), else_=started),
                },
            ).returning(throttles.c.count)
        )
        return count.scalar_one()

    def count(self, key: str, window_s: float) -> int:
        """Attempts in the window so far."""
        now = self._work.clock()
        query = sa.select(throttles.c.count).where(
            throttles.c.key == key,
            throttles.c.window_started_at > now - timedelta(seconds=window_s),
            throttles.c.window_started_at <= now,
        )
        return self._work.execute(query).scalar_one_or_none() or 0

    def forget(self, key: str) -> None:
        """Starts to count anew."""
        self._work.execute(sa.delete(throttles).where(throttles.c.key == key))

    def drop_older(self, age_s: float) -> int:
        """Forgets what was counted long ago."""
        limit = self._work.clock() - timedelta(seconds=age_s)
        return self._work.execute(sa.delete(throttles).where(throttles.c.window_started_at <= limit)).rowcount
