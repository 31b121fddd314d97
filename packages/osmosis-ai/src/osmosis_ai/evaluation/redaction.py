"""Cutting secret values out of text that is stored or shown. It finds values it was given, nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

replacement = "[REDACTED]"
_ambient_min_chars = 8
_key_owners = (
    "OPENAI ANTHROPIC XAI GEMINI GOOGLE OPENROUTER CEREBRAS AZURE TOGETHER FIREWORKS GROQ MISTRAL COHERE DEEPSEEK "
    "HUGGINGFACE WANDB DAYTONA CURSOR MSWEA"
).split()
ambient_names: tuple[str, ...] = (
    *(f"{owner}_API_KEY" for owner in _key_owners),
    "HF_TOKEN",
    "OSMOSIS_TOKEN",
    "OSMOSIS_API_KEY",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
)
"""Environment variables whose values are credentials, whoever set them."""


def ambient_secret_values(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The credentials in an environment: values of at least 8 characters of the known names."""
    return tuple(value for name in ambient_names if len(value := environ.get(name, "")) >= _ambient_min_chars)


class Redactor:
    """Replaces every occurrence of the given values by `[REDACTED]`, the longest first, in one pass.

    Each value is also found as JSON writes it (escaped quotes, backslashes and newlines).
    """

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        self.add(*values)

    def add(self, *values: str) -> None:
        """Redact these values too, from now on; empty ones are ignored."""
        for value in filter(None, values):
            self._values.update((value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]))
        longest_first = sorted(self._values, key=lambda value: (-len(value), value))
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def text(self, text: str) -> str:
        """The text without the values."""
        return text if self._pattern is None else self._pattern.sub(replacement, text)
