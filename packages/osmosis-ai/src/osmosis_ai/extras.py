"""The missing-extra rule: an optional package that is not installed is answered with the command that installs it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

EXTRA_MODULES: Mapping[str, frozenset[str]] = {
    "server": frozenset({"click", "fastapi", "opentelemetry", "urllib3", "uvicorn"}),
    "strands": frozenset(
        {"aiohttp", "click", "fsspec", "jwt", "litellm", "mcp", "multidict", "openai", "orjson", "strands", "urllib3"}
    ),
    "openai-agents": frozenset(
        {"agents", "aiohttp", "click", "fsspec", "jwt", "litellm", "mcp", "multidict", "openai", "orjson", "urllib3"}
    ),
    "harbor": frozenset(
        {
            "aiohttp",
            "click",
            "fsspec",
            "harbor",
            "jwt",
            "litellm",
            "multidict",
            "orjson",
            "platformdirs",
            "toml",
            "urllib3",
            "yaml",
        }
    ),
    "rubric": frozenset({"aiohttp", "click", "fsspec", "litellm", "multidict", "orjson", "urllib3"}),
    "parquet": frozenset({"pyarrow"}),
    "eval": frozenset(
        {
            "aiohttp",
            "click",
            "fastapi",
            "fsspec",
            "litellm",
            "multidict",
            "opentelemetry",
            "pyarrow",
            "urllib3",
            "uvicorn",
        }
    ),
    "local": frozenset({"osmosis_trainer"}),
}
"""Top-level modules that each extra owns."""

FEATURES: Mapping[str, str] = {
    "server": "The rollout server",
    "strands": "The Strands integration",
    "openai-agents": "The OpenAI Agents integration",
    "harbor": "The Harbor backend",
    "rubric": "Rubric evaluation",
    "parquet": "Reading Parquet datasets",
    "eval": "Local evaluation",
    "local": "The embedded policy",
}
"""What a message calls the feature that needs the extra."""


@contextmanager
def optional_imports(extra: str, feature: str | None = None) -> Generator[None]:
    """Turn the ModuleNotFoundError of the extra's own modules into one that says how to install it.

    Args:
        extra: A key of `EXTRA_MODULES`.
        feature: What to call the feature, instead of the extra's usual words.

    Raises:
        ModuleNotFoundError: With `name` and `path` of the original; modules that the extra does not own raise
            unchanged.
    """
    try:
        yield
    except ModuleNotFoundError as exc:
        if exc.name is None or exc.name.partition(".")[0] not in EXTRA_MODULES[extra]:
            raise
        raise ModuleNotFoundError(
            f"{feature or FEATURES[extra]} needs the module {exc.name!r}, which is not installed. "
            f'Install it with: pip install "osmosis-ai[{extra}]"',
            name=exc.name,
            path=exc.path,
        ) from exc


def lazy_exports(
    facade: str, exports: Mapping[str, str], *, extra: str | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a facade whose names are imported when they are first used.

    Args:
        facade: The facade's `__name__`.
        exports: Public name to the module that defines it.
        extra: The extra whose modules may be missing.
    """

    def __getattr__(name: str) -> Any:
        module_name = exports.get(name)
        if module_name is None:
            raise AttributeError(f"module {facade!r} has no attribute {name!r}")
        if extra is None:
            return getattr(importlib.import_module(module_name), name)
        with optional_imports(extra):
            return getattr(importlib.import_module(module_name), name)

    def __dir__() -> list[str]:
        return sorted(exports)

    return __getattr__, __dir__
