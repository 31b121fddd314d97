"""ATIF documents (Agent Trajectory Interchange Format): reading, formatting, validating.

A document is a plain dict. `validate_trajectory` checks one strictly against versions 1.0 to 1.8; the models are in
`schema` and loaded only then. Leaves making documents to `converter` and writing them to `save`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from osmosis_ai.rollout.trajectory.schema import Trajectory

SCHEMA_VERSION = "ATIF-v1.7"
"""The version we write."""
READABLE_VERSIONS = tuple(f"ATIF-v1.{minor}" for minor in range(9))
"""The versions we read."""

_NUMBER_LIST = re.compile(r"\[\s*(-?[0-9][-+.0-9eE,\s]*)\]")


def load_trajectory(path: Path) -> dict[str, Any] | None:
    """The document in the file; None when there is no file, or it is not (yet) a JSON object with steps."""
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or not isinstance(document.get("steps"), list):
        return None
    return document


def trajectory_identity(document: Any) -> str | None:
    """The rollout a document belongs to; None also when it is no JSON object.

    That is `extra.osmosis.rollout_id`, else `session_id`, else what stands before the first `/` of `trajectory_id`.
    """
    if not isinstance(document, dict):
        return None
    extra = document.get("extra")
    osmosis = extra.get("osmosis") if isinstance(extra, dict) else None
    candidates = (
        osmosis.get("rollout_id") if isinstance(osmosis, dict) else None,
        document.get("session_id"),
        str(document.get("trajectory_id") or "").partition("/")[0],
    )
    return next((value for value in candidates if isinstance(value, str) and value), None)


def total_tokens(document: dict[str, Any]) -> int | None:
    """Prompt plus completion tokens of the final metrics; None when neither is there."""
    metrics = document.get("final_metrics")
    if not isinstance(metrics, dict):
        return None
    counts = [metrics.get(key) for key in ("total_prompt_tokens", "total_completion_tokens")]
    present = [count for count in counts if isinstance(count, int) and not isinstance(count, bool)]
    return sum(present) if present else None


def validate_trajectory(document: Any) -> Trajectory:
    """Check a document strictly.

    Raises:
        ValueError: What is wrong and where: an unknown field or version, a number that is not finite, a step out of
            sequence, an agent's field on another step, an observation of an unknown call, and the like.
    """
    from osmosis_ai.rollout.trajectory.schema import Trajectory

    for path in _not_finite(document, "$"):
        raise ValueError(f"{path} is not a finite number")
    return Trajectory.model_validate(document)


def format_trajectory(document: dict[str, Any]) -> str:
    """The document as JSON text: indent 2, arrays of numbers on one line, no NaN."""
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    if "[\n" not in text:
        return text
    return "".join(_joined_number_lists(text))


def _joined_number_lists(text: str) -> Iterator[str]:
    # Only an array bracket ends a line with "[": inside of a JSON string there are no line ends.
    start = 0
    while (opening := text.find("[\n", start)) >= 0:
        match = _NUMBER_LIST.match(text, opening)
        if match is None:
            yield text[start : opening + 2]
            start = opening + 2
        else:
            yield text[start:opening]
            yield "[" + ", ".join(part.strip() for part in match[1].split(",")) + "]"
            start = match.end()
    yield text[start:]


def _not_finite(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, float):
        if not math.isfinite(value):
            yield path
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _not_finite(item, f"{path}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _not_finite(item, f"{path}[{index}]")
