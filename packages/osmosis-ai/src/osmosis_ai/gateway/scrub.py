"""Error text fit to show: one line, bounded, without the values of secret variables. Pure; knows no provider."""

from __future__ import annotations

import re
from collections.abc import Mapping

MAX_MESSAGE_CHARS = 1000
MIN_SECRET_CHARS = 8
REDACTED = "[REDACTED]"

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)
_SPACE = re.compile(r"\s+")


class Scrubber:
    """Replaces the values of environment variables whose name says they are secret.

    Args:
        environ: Variables; those whose name contains KEY, TOKEN, SECRET or PASSWORD and whose value has at least
            eight characters are replaced.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        values = {v for k, v in environ.items() if len(v) >= MIN_SECRET_CHARS and _SECRET_NAME.search(k)}
        self._values = sorted(values, key=len, reverse=True)

    def line(self, text: str) -> str:
        """The text on one line of at most 1,000 characters, secrets replaced."""
        for value in self._values:
            if value in text:
                text = text.replace(value, REDACTED)
        text = _SPACE.sub(" ", text).strip()
        return text if len(text) <= MAX_MESSAGE_CHARS else text[: MAX_MESSAGE_CHARS - 1] + "…"
