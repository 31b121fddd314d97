"""Wakes who follows a stream: at once for writers of this process, by a cheap look at the counters for the others'."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from osmosis_platform.db.repositories.streams import StreamIndex

if TYPE_CHECKING:
    from osmosis_platform.db.database import Database, UnitOfWork

LOOK_EVERY_S = 0.1


class EventHub:
    """Followers of streams in this process. Used on one event loop.

    Attributes:
        is_over: The process shuts down: followers end, and go on elsewhere or later.
    """

    def __init__(self) -> None:
        self._followers: dict[str, set[asyncio.Event]] = {}
        self._known: dict[str, tuple[int, int]] = {}
        self._looking: asyncio.Task[None] | None = None
        self.is_over = False

    def close(self) -> None:
        """Lets every follower end at once: a shutdown waits for open answers."""
        self.is_over = True
        for bells in self._followers.values():
            for bell in bells:
                bell.set()

    def publish(self, stream_id: str) -> None:
        """Wakes the followers of a stream; nothing happens without any."""
        for bell in self._followers.get(stream_id, ()):
            bell.set()

    @asynccontextmanager
    async def follow(self, database: Database, stream_id: str) -> AsyncGenerator[asyncio.Event]:
        """An event that is set whenever the stream grew; the follower clears it and reads what is new."""
        bell = asyncio.Event()
        self._followers.setdefault(stream_id, set()).add(bell)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(database))
        try:
            yield bell
        finally:
            mine = self._followers[stream_id]
            mine.discard(bell)
            if not mine:
                del self._followers[stream_id]
                self._known.pop(stream_id, None)
            if not self._followers and self._looking is not None:
                self._looking.cancel()
                self._looking = None

    async def _look(self, database: Database) -> None:
        """One read for all followers, ten times a second, only while there are any."""
        while self._followers:
            await asyncio.sleep(LOOK_EVERY_S)
            wanted = list(self._followers)

            def read(work: UnitOfWork, wanted: list[str] = wanted) -> dict[str, tuple[int, int]]:
                return StreamIndex(work).seqs(wanted)

            try:
                found = await database.reading(read)
            except Exception:  # noqa: S112 - an outage of the database: followers learn of it at their own next read
                continue
            for stream_id, seqs in found.items():
                if self._known.get(stream_id) != seqs:
                    self._known[stream_id] = seqs
                    self.publish(stream_id)
