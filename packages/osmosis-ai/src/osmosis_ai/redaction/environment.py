"""Which variables of an environment hold credentials: by the names that are known, or by what a name says."""

from __future__ import annotations

import re
from collections.abc import Mapping

_MIN_CHARS = 8
_KEY_OWNERS = (
    "OPENAI ANTHROPIC XAI GEMINI GOOGLE OPENROUTER CEREBRAS AZURE TOGETHER FIREWORKS GROQ MISTRAL COHERE DEEPSEEK "
    "HUGGINGFACE WANDB DAYTONA CURSOR MSWEA"
).split()
AMBIENT_NAMES: tuple[str, ...] = (
    *(f"{owner}_API_KEY" for owner in _KEY_OWNERS),
    "HF_TOKEN",
    "OSMOSIS_TOKEN",
    "OSMOSIS_API_KEY",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
)
"""Environment variables whose values are credentials, whoever set them."""
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)


def ambient_secret_values(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The credentials in an environment: values of at least 8 characters of the known names."""
    return tuple(value for name in AMBIENT_NAMES if len(value := environ.get(name, "")) >= _MIN_CHARS)


def named_secret_values(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The values of at least 8 characters whose name contains KEY, TOKEN, SECRET or PASSWORD."""
    return tuple(value for name, value in environ.items() if len(value) >= _MIN_CHARS and _SECRET_NAME.search(name))
