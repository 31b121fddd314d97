"""Error text fit to show: one line, bounded, without the values of secret variables. Pure; knows no provider."""

from __future__ import annotations

import re
from collections.abc import Mapping

from osmosis_ai.redaction import Redactor, named_secret_values

MAX_MESSAGE_CHARS = 1000

_SPACE = re.compile(r"\s+")


class Scrubber:
    """Makes lines of error texts, without the values of environment variables whose name says they are secret.

    Args:
        environ: Variables; those whose name contains KEY, TOKEN, SECRET or PASSWORD and whose value has at least
            eight characters are cut out.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._redactor = Redactor(named_secret_values(environ))

    def line(self, text: str) -> str:
        """The text on one line of at most 1,000 characters, secrets replaced."""
        text = _SPACE.sub(" ", self._redactor.text(text)).strip()
        return text if len(text) <= MAX_MESSAGE_CHARS else text[: MAX_MESSAGE_CHARS - 1] + "…"
