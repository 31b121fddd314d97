"""Redacting one text that comes in pieces: what may be the beginning of a value waits for what follows."""

from __future__ import annotations

import codecs

from osmosis_ai.redaction.redactor import Redactor


class RedactingStream:
    """Takes pieces of a text, cut anywhere, and gives it back without the redactor's values.

    No more is kept back than may be the beginning of a value, so at most the longest form; a piece that ends with a line
    comes back at once unless a value goes over lines. One thread uses a stream; its redactor may learn further values.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def feed(self, piece: str) -> str:
        """What can be given on after this piece."""
        given, self._rest = self._redactor.settled(self._rest + piece)
        return given

    def feed_bytes(self, piece: bytes) -> str:
        """As `feed`, for UTF-8 that may be cut within a character; what is not UTF-8 is replaced."""
        return self.feed(self._decoder.decode(piece))

    def finish(self) -> str:
        """What was kept back; the text is over."""
        given, self._rest = self._redactor.settled(self._rest + self._decoder.decode(b"", final=True), over=True)
        return given
