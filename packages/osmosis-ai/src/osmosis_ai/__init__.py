"""Osmosis: build, evaluate and train LLM agents. Importing this loads no framework."""

from typing import TYPE_CHECKING

from osmosis_ai.consts import PACKAGE_VERSION as __version__
from osmosis_ai.extras import lazy_exports

if TYPE_CHECKING:
    from osmosis_ai.eval.rubric import (
        MissingAPIKeyError,
        ModelNotFoundError,
        ProviderRequestError,
        RubricResult,
        evaluate_rubric,  # noqa: F401 - resolvable, but not in __all__: a star import must not load a provider client
    )

__all__ = ["MissingAPIKeyError", "ModelNotFoundError", "ProviderRequestError", "RubricResult", "__version__"]

__getattr__, _names = lazy_exports(
    __name__,
    dict.fromkeys(
        ("MissingAPIKeyError", "ModelNotFoundError", "ProviderRequestError", "RubricResult", "evaluate_rubric"),
        "osmosis_ai.eval.rubric",
    ),
)


def __dir__() -> list[str]:
    return sorted({*globals(), *_names()})
