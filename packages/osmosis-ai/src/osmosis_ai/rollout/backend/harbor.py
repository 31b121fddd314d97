"""The Harbor backend's public path. Its names answer with the command that installs the extra `harbor`."""

from __future__ import annotations

from typing import Any

from osmosis_ai.extras import FEATURES

__all__ = ["HarborBackend", "TaskMode"]

HarborBackend: Any
TaskMode: Any


def __getattr__(name: str) -> Any:
    if name in __all__:
        raise ModuleNotFoundError(
            f"{FEATURES['harbor']} needs the module 'harbor', which is not installed. "
            'Install it with: pip install "osmosis-ai[harbor]"',
            name="harbor",
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
