"""The sample: what one rollout produced, and the rules for its reward and for making it safe to send."""

from __future__ import annotations

import copy
import json
import logging
import math
import operator
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

logger = logging.getLogger(__name__)

MessageDict = dict[str, Any]
"""One message of a conversation."""


def _finite_number(value: Any) -> float | None:
    """Refuse what merely converts to a number: a reward is meant, not coerced."""
    if value is None:
        return None
    foreign = type(value).__name__ in ("bool", "bool_") or isinstance(value, (str, bytes))  # bool_: NumPy's
    if foreign or not (hasattr(value, "__float__") or hasattr(value, "__index__")):
        raise ValueError(f"a reward is a finite number or None, not {type(value).__name__}")
    try:
        number = float(value)
    except (OverflowError, TypeError, ValueError) as exc:
        raise ValueError(f"a reward is a finite number or None: {exc}") from None
    if not math.isfinite(number):
        raise ValueError(f"a reward is a finite number or None, not {number}")
    return number


class RolloutSample(BaseModel):
    """What one rollout produced. Assignments are validated, so a reward is finite or absent at any time."""

    model_config = ConfigDict(validate_assignment=True, arbitrary_types_allowed=True)

    messages: Sequence[Mapping[str, Any]] = Field(default_factory=list)
    """The history in the agent framework's own format."""
    trajectory_messages: Sequence[Mapping[str, Any]] | None = None
    """Chat messages to write the trajectory from: omitted means a deep copy of `messages`, an explicit None means no
    trajectory. Never sent on the wire."""
    label: str | None = None
    """The dataset row's ground truth."""
    reward: Annotated[float | None, BeforeValidator(_finite_number)] = None
    """The grader's finite number; None is "no reward", which is never zero."""
    remove_sample: bool = False
    """Exclude the sample: counted as skipped."""
    metrics: dict[str, Any] = Field(default_factory=dict)
    """Numbers to keep with the sample."""
    extra_fields: dict[str, Any] = Field(default_factory=dict)
    """Anything else to keep with the sample."""

    @model_validator(mode="after")
    def _copy_messages_for_the_trajectory(self) -> RolloutSample:
        # Runs at construction and after each assignment; once either field was set by hand there is nothing to do.
        if "trajectory_messages" not in self.model_fields_set:
            copied = _deep_copy_or_none(self.messages)
            self.__dict__["trajectory_messages"] = copied
            self.__pydantic_fields_set__.add("trajectory_messages")
        return self

    def json_safe_copy(self) -> RolloutSample:
        """A copy whose `metrics` and `extra_fields` are plain JSON; messages are shared, not scanned.

        Foreign numeric scalars become int or float, tuples become lists, numeric keys become strings. Non-finite
        numbers, objects JSON cannot hold and other keys are dropped, with one warning that lists them.
        """
        dropped: list[str] = []
        metrics = _json_safe(self.metrics, "metrics", dropped)
        extra_fields = _json_safe(self.extra_fields, "extra_fields", dropped)
        if dropped:
            shown = ", ".join(dropped[:10]) + (f" and {len(dropped) - 10} more" if len(dropped) > 10 else "")
            logger.warning("dropped from a sample, because JSON cannot hold it: %s", shown)
        return self.model_copy(update={"metrics": metrics, "extra_fields": extra_fields})


def _deep_copy_or_none(messages: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]] | None:
    try:
        return copy.deepcopy(messages)
    except Exception as exc:
        logger.warning("no trajectory: the messages cannot be copied (%s: %s)", type(exc).__name__, exc)
        return None


_DROP = object()


def json_safe_number(value: Any) -> int | float | None:
    """A foreign numeric scalar (NumPy, torch, Decimal) as int or float; None when it is no finite number."""
    for convert in (operator.index, float):
        try:
            number = convert(value)
        except Exception:  # noqa: S112 - a foreign __index__ or __float__ may raise anything: then it is no number
            continue
        return number if _finite(number) else None
    return None


def _finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # an int that no double, and so no other reader of JSON, can hold
        return False


def _json_safe(value: Any, path: str, dropped: list[str], seen: tuple[int, ...] = ()) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value) if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, (int, float)):
        if _finite(value):
            return int(value) if isinstance(value, int) else float(value)
        dropped.append(f"{path} ({value})" if isinstance(value, float) else f"{path} (too large)")
        return _DROP
    if id(value) in seen:
        dropped.append(f"{path} (refers to itself)")
        return _DROP
    if isinstance(value, Mapping):
        safe: dict[str, Any] = {}
        for key, item in value.items():
            name = _json_safe_key(key)
            if name is None:
                dropped.append(f"{path}[{key!r}] (key)")
                continue
            kept = _json_safe(item, f"{path}.{name}", dropped, (*seen, id(value)))
            if kept is not _DROP:
                safe[name] = kept
        return safe
    if isinstance(value, (list, tuple)):
        items = (_json_safe(item, f"{path}[{i}]", dropped, (*seen, id(value))) for i, item in enumerate(value))
        return [item for item in items if item is not _DROP]
    number = json_safe_number(value)
    if number is not None:
        return number
    dropped.append(f"{path} ({type(value).__name__})")
    return _DROP


def _json_safe_key(key: object) -> str | None:
    if isinstance(key, str):
        return key.encode("utf-8", "replace").decode("utf-8")
    if isinstance(key, bool):
        return None
    number = key if isinstance(key, (int, float)) else json_safe_number(key)
    return None if number is None else json.dumps(number)
