"""What one connection may cost: the bytes of a request's head, and the time that a silent client holds a socket.

uvicorn and its parser set no bound of their own: one endless header would fill the memory, a client that sends half a
body would keep the part of an upload for itself for ever. What a body may hold is api.requests' business.
"""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_STATUS = b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
_BODY = b"The head of this request is larger than this platform reads."
_CHUNK_FRAMING = 16  # bytes around a byte of a body: clients may send small chunks


class BoundedConnection(HttpToolsProtocol):
    """uvicorn's connection with bounds.

    Attributes:
        HEAD_BYTES: Most bytes of request line, headers and trailers. One read of the socket more is not noticed.
        HEAD_S: How long a client may take for a head, from when it connected or sent the first byte of it.
        PIPELINED: Most requests that wait for the answers of those before them.
        IDLE_S: How long it may neither send what is due nor take what it asked for.
        LOOK_S: How often that is looked at.
    """

    HEAD_BYTES: ClassVar[int] = 64 << 10
    PIPELINED: ClassVar[int] = 32
    HEAD_S: ClassVar[float] = 60.0
    IDLE_S: ClassVar[float] = 120.0
    LOOK_S: ClassVar[float] = 15.0

    _look_task: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begins to look after the connection."""
        super().connection_made(transport)
        self._in_head = True
        self._framing = 0
        self._moved_at = self._head_at = self.loop.time()
        self._untaken = 0
        self._look_task = self.loop.call_later(self.LOOK_S, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends that."""
        if self._look_task is not None:
            self._look_task.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Counts what is no body."""
        self._moved_at = self.loop.time()
        self._framing += len(data)
        super().data_received(data)
        if self._framing > self.HEAD_BYTES and not self.transport.is_closing():
            if self.cycle is None or self.cycle.response_complete:  # else it would be written into another answer
                length = b"content-length: %d\r\nconnection: close\r\n\r\n" % len(_BODY)
                self.transport.write(_STATUS + b"content-type: text/plain; charset=utf-8\r\n" + length + _BODY)
            self.transport.close()

    def on_message_begin(self) -> None:
        """A head begins; what came with its first bytes is not counted, since the message before may be among them."""
        if len(self.pipeline) >= self.PIPELINED:
            raise ValueError("too many requests wait on this connection")  # the parser makes a 400 of it
        super().on_message_begin()
        self._in_head, self._head_at, self._framing = True, self._moved_at, 0

    def on_headers_complete(self) -> None:
        """The head is there."""
        self._in_head = False
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Bytes of a body count for nothing here."""
        self._framing = max(0, self._framing - _CHUNK_FRAMING * len(body))
        super().on_body(body)

    def _look(self) -> None:
        now = self.loop.time()
        cycle: Any = self.cycle
        unsent = self.transport.get_write_buffer_size()
        untaken = unsent + _in_kernel(self.transport)
        if untaken != self._untaken:
            self._untaken, self._moved_at = untaken, now
        wants_body = cycle is not None and cycle.more_body and not cycle.response_complete and not self.flow.read_paused
        late = self._in_head and now - self._head_at > self.HEAD_S
        idle = (wants_body or unsent > 0) and now - self._moved_at > self.IDLE_S
        if late or idle:
            self.transport.abort()
        if unsent == 0 and self.transport.is_closing():
            return
        self._look_task = self.loop.call_later(self.LOOK_S, self._look)


def _in_kernel(transport: asyncio.Transport) -> int:
    """Bytes that the kernel has of us and the client has not; 0 where it does not tell.

    It takes the next ones of us a megabyte at a time, so a client that reads slowly moves nothing else for minutes.
    """
    sock = transport.get_extra_info("socket")
    try:
        return struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4)))[0]
    except OSError:
        return 0
