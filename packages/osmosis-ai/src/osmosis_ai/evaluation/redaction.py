"""Cutting secret values out of text that is stored or shown: values it was given, and the keys of rollouts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from osmosis_ai.consts import ROLLOUT_KEY_PREFIX

replacement = "[REDACTED]"
_ambient_min_chars = 8
_rollout_key = re.escape(ROLLOUT_KEY_PREFIX) + "[0-9a-f]{64}"
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

    Each value is also found as JSON writes it (escaped quotes, backslashes and newlines). The keys of rollouts are
    found by their shape: a run opens one for every attempt.
    """

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values: set[str] = set()
        self._pattern = re.compile(_rollout_key)
        self.add(*values)

    def add(self, *values: str) -> None:
        """Redact these values too, from now on; empty ones are ignored."""
        for value in filter(None, values):
            self._values.update((value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]))
        longest_first = sorted(self._values, key=lambda value: (-len(value), value))
        self._pattern = re.compile("|".join((_rollout_key, *map(re.escape, longest_first))))

    def text(self, text: str) -> str:
        """The text without the values."""
        return self._pattern.sub(replacement, text)
