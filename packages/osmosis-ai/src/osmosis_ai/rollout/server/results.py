"""The wire form of an outcome: plain JSON whatever the agent left in its sample."""

from __future__ import annotations

import json
import logging
from typing import Any

from pydantic_core import to_jsonable_python

from osmosis_ai.rollout.types.execution import ExecutionOutcome
from osmosis_ai.rollout.types.sample import RolloutSample
from osmosis_ai.rollout.types.status import RolloutStatus

logger = logging.getLogger(__name__)


def result_body(rollout_id: str, outcome: ExecutionOutcome) -> bytes:
    """The JSON bytes of the RolloutResultResponse, UTF-8, made once and served to every poll."""
    result = outcome.result
    failed = result.status is not RolloutStatus.SUCCESS
    rest = {
        "err_message": _text(result.err_message),
        "err_category": None if result.err_category is None else result.err_category.value,
        "err_fault": result.err_fault,
        "err_traceback": _text(result.err_traceback),
        "timings": None if outcome.timings is None else dict(outcome.timings),
    }
    head = {"rollout_id": rollout_id, "status": result.status.value}
    sample = None if result.sample is None else _wire_sample(result.sample, no_reward=failed)
    try:
        return _encode({**head, "sample": sample, **rest})
    except (TypeError, ValueError, RecursionError) as exc:
        assert sample is not None
        logger.warning("rollout %s: the sample cannot be sent as JSON (%s); only its reward is", rollout_id, exc)
        kept = {key: sample[key] for key in ("reward", "label", "remove_sample")}
        kept["label"] = _text(kept["label"])
        sample = {"messages": [], **kept, "metrics": {}, "extra_fields": {}}
        return _encode({**head, "sample": sample, **rest})


def _wire_sample(sample: RolloutSample, *, no_reward: bool) -> dict[str, Any]:
    safe = sample.json_safe_copy()
    return {
        "messages": sample.messages,
        "label": sample.label,
        "reward": None if no_reward or sample.remove_sample else sample.reward,
        "remove_sample": sample.remove_sample,
        "metrics": safe.metrics,
        "extra_fields": safe.extra_fields,
    }


def _encode(body: dict[str, Any]) -> bytes:
    text = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=to_jsonable_python)
    # `default` knows what frameworks put into messages: models, dates, bytes. Lone surrogates come from broken text in
    # a conversation; the rest of the text is worth more than the exception.
    return text.encode("utf-8", "replace")


def _text(text: str | None) -> str | None:
    return None if text is None else text.encode("utf-8", "replace").decode("utf-8")
