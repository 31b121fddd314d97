"""Reading server-sent events: bytes in any slices, events out. Pure."""

from __future__ import annotations

from dataclasses import dataclass

MAX_EVENT_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Event:
    """One event; `name` is empty for plain messages."""

    name: str
    data: str


class EventReader:
    """Puts events together from slices of a stream; comments and unknown fields are skipped.

    Raises:
        ValueError: From `feed`, when one event exceeds 16 MiB.
    """

    def __init__(self) -> None:
        self._buffer = b""
        self._name = ""
        self._data: list[str] = []
        self._size = 0

    def feed(self, data: bytes) -> list[Event]:
        """Take a slice; give the events it completes."""
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        if len(self._buffer) > MAX_EVENT_BYTES:
            raise ValueError("a server-sent event exceeds 16 MiB")
        events: list[Event] = []
        for line in lines:
            self._line(line.rstrip(b"\r"), events)
        return events

    def close(self) -> list[Event]:
        """The stream is over; give an event whose last line had no end."""
        events: list[Event] = []
        if self._buffer:
            self._line(self._buffer.rstrip(b"\r"), events)
            self._buffer = b""
        self._line(b"", events)
        return events

    def _line(self, line: bytes, events: list[Event]) -> None:
        if not line:
            if self._data:
                events.append(Event(self._name, "\n".join(self._data)))
            self._name, self._data, self._size = "", [], 0
        elif line.startswith(b"data:"):
            self._size += len(line)
            if self._size > MAX_EVENT_BYTES:
                raise ValueError("a server-sent event exceeds 16 MiB")
            self._data.append(line[5:].removeprefix(b" ").decode("utf-8", "replace"))
        elif line.startswith(b"event:"):
            self._name = line[6:].strip().decode("utf-8", "replace")
