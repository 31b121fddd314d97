"""A mapping whose entries expire a fixed time after they were put in: where finished results wait to be read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator


class TTLCache[K, V]:
    """Entries live for `ttl_s` seconds. Expired ones are dropped on any access, oldest first, in constant work each.

    Args:
        ttl_s: Seconds an entry lives; 0 keeps nothing.
        clock: A monotonic clock in seconds.
    """

    def __init__(self, ttl_s: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._ttl_s = ttl_s
        self._clock = clock
        self._entries: dict[K, tuple[float, V]] = {}

    def put(self, key: K, value: V) -> None:
        """Store the value; the time of an entry that was there starts anew."""
        self.purge()
        self._entries.pop(key, None)
        self._entries[key] = (self._clock() + self._ttl_s, value)

    def get(self, key: K) -> V | None:
        """The value, or None when there is none or it has expired."""
        self.purge()
        entry = self._entries.get(key)
        return None if entry is None else entry[1]

    def discard(self, key: K) -> None:
        """Forget the entry, if there is one."""
        self._entries.pop(key, None)

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()

    def purge(self) -> None:
        """Drop what has expired. Entries lie in the order of their expiry, because all live equally long."""
        now = self._clock()
        while self._entries:
            key = next(iter(self._entries))
            if self._entries[key][0] > now:
                return
            del self._entries[key]

    def __contains__(self, key: K) -> bool:
        return self.get(key) is not None

    def __iter__(self) -> Iterator[K]:
        self.purge()
        return iter(list(self._entries))

    def __len__(self) -> int:
        self.purge()
        return len(self._entries)
