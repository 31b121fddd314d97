"""The public names of the local model bridge, over `osmosis_ai.gateway`. Both resolve when they are first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from osmosis_ai.gateway.bridge import LiteLLMBridge, LlmBridgeListener

__all__ = ["LiteLLMBridge", "LlmBridgeListener"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from osmosis_ai.extras import optional_imports

    with optional_imports("eval"):
        import uvicorn  # noqa: F401  the extra is there or it is not; nothing half-works

        from osmosis_ai.gateway import bridge
    return getattr(bridge, name)


def __dir__() -> list[str]:
    return sorted(__all__)
