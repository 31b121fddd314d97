"""The public face of the rubric engine, `osmosis_ai.evaluation.rubric`. Importing it loads no HTTP client."""

from osmosis_ai.evaluation.rubric import (
    MissingAPIKeyError,
    ModelNotFoundError,
    ProviderRequestError,
    RubricJudge,
    RubricResult,
    evaluate_rubric,
)

__all__ = [
    "MissingAPIKeyError",
    "ModelNotFoundError",
    "ProviderRequestError",
    "RubricJudge",
    "RubricResult",
    "evaluate_rubric",
]
