"""Making an ATIF document from a sample: one message, one step; a tool's answer goes to the step that asked."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from osmosis_ai.consts import PACKAGE_VERSION
from osmosis_ai.rollout.trajectory.atif import SCHEMA_VERSION
from osmosis_ai.rollout.trajectory.report import SampleReport, apply_report
from osmosis_ai.rollout.types.sample import RolloutSample, json_safe_number

if TYPE_CHECKING:
    from osmosis_ai.rollout.trajectory.schema import Trajectory

AGENT_NAME = "osmosis-rollout-sdk"

_SOURCES = {"system": "system", "developer": "system", "user": "user", "assistant": "agent"}


def convert_sample_to_trajectory(
    sample: RolloutSample,
    *,
    rollout_id: str,
    request_label: str | None = None,
    request_metadata: dict[str, Any] | None = None,
    request_extra_fields: dict[str, Any] | None = None,
    report: SampleReport | None = None,
    default_model_name: str | None = None,
    unmatched_sample_reports: Mapping[str, SampleReport] | None = None,
) -> Trajectory:
    """The sample's trajectory as a validated model.

    Args:
        sample: What the rollout produced; its `trajectory_messages` are converted, else its `messages`.
        rollout_id: Names the trajectory and its session.
        request_label: The row's label, used when the sample has none of its own.
        request_metadata: The row's metadata.
        request_extra_fields: What the rollout's request carried besides.
        report: The rollout's model calls, laid over the steps.
        default_model_name: The model when the report names none.
        unmatched_sample_reports: Reports that belong to no sample, kept for whoever looks.

    Raises:
        ValueError: The messages cannot make a valid trajectory (there are none).
    """
    from osmosis_ai.rollout.trajectory.schema import Trajectory

    document = trajectory_document(
        sample,
        rollout_id=rollout_id,
        request_label=request_label,
        request_metadata=request_metadata,
        request_extra_fields=request_extra_fields,
    )
    if default_model_name:
        document["agent"]["model_name"] = default_model_name
    if report is not None:
        document = apply_report(document, report)
    if unmatched_sample_reports:
        document["extra"]["osmosis"]["unmatched_sample_reports"] = {
            key: other.model_dump(exclude_none=True) for key, other in unmatched_sample_reports.items()
        }
    return Trajectory.model_validate(document)


def trajectory_document(
    sample: RolloutSample,
    *,
    rollout_id: str,
    request_label: str | None = None,
    request_metadata: Mapping[str, Any] | None = None,
    request_extra_fields: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The sample's trajectory as a plain JSON document (ATIF 1.7)."""
    messages = sample.trajectory_messages if sample.trajectory_messages is not None else sample.messages
    steps = steps_from_messages(messages)
    facts = {
        "rollout_id": rollout_id,
        "label": sample.label if sample.label is not None else request_label,
        "reward": sample.reward,
        "sample_metrics": sample.metrics or None,
        "sample_extra_fields": sample.extra_fields or None,
        "request_metadata": request_metadata,
        "request_extra_fields": request_extra_fields,
    }
    return {
        "schema_version": SCHEMA_VERSION,
        "session_id": rollout_id,
        "trajectory_id": rollout_id,
        "agent": {"name": AGENT_NAME, "version": PACKAGE_VERSION},
        "steps": steps,
        "final_metrics": {"total_steps": len(steps)},
        "extra": {"osmosis": {key: json_value(value) for key, value in facts.items() if value is not None}},
    }


def steps_from_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The ATIF steps of chat messages."""
    steps: list[dict[str, Any]] = []
    for message in messages:
        role = str(message.get("role") or "")
        if role in ("tool", "function"):
            _observe(steps, message, role)
            continue
        step: dict[str, Any] = {"step_id": len(steps) + 1}
        if timestamp := _timestamp(message):
            step["timestamp"] = timestamp
        source = step["source"] = _SOURCES.get(role, "user")
        model_name = message.get("model") or message.get("model_name")
        if source == "agent" and isinstance(model_name, str):
            step["model_name"] = model_name
        step["message"] = content_text(message.get("content"))
        extra: dict[str, Any] = {} if role in _SOURCES else {"original_role": role}
        where = step if source == "agent" else extra  # what only agents have is kept beside the step
        reasoning = message.get("reasoning_content") or message.get("reasoning")
        if reasoning is not None and reasoning != "":
            where["reasoning_content"] = content_text(reasoning)
        if calls := _tool_calls(message):
            where["tool_calls"] = calls
        if source == "agent" and (metrics := _metrics(message)):
            step["metrics"] = metrics
            step["llm_call_count"] = 1
        if extra:
            step["extra"] = extra
        steps.append(step)
    return steps


def content_text(content: Any) -> str:
    """A message's content as text: text parts joined by newlines, anything else as JSON."""
    if content is None:
        return ""
    if isinstance(content, str):
        return clean_text(content)
    if isinstance(content, (list, tuple)):
        texts = [_part_text(part) for part in content]
        if texts and None not in texts:
            return clean_text("\n".join(text for text in texts if text is not None))
    return json.dumps(json_value(content), ensure_ascii=False)


def clean_text(text: str) -> str:
    """The text with lone surrogates replaced: they cannot be written as UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def json_value(value: Any) -> Any:
    """The value as plain JSON; a number that is not finite becomes null, anything foreign its text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {clean_text(str(key)): json_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [json_value(item) for item in value]
    number = json_safe_number(value)
    if number is not None or hasattr(value, "__float__"):
        return number
    return clean_text(str(value))


def _part_text(part: Any) -> str | None:
    text = part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else None
    return text if isinstance(text, str) else None


def _observe(steps: list[dict[str, Any]], message: Mapping[str, Any], role: str) -> None:
    result: dict[str, Any] = {}
    call_id = message.get("tool_call_id")
    asked = steps[-1] if steps and steps[-1]["source"] == "agent" else None
    known = {call["tool_call_id"] for call in (asked or {}).get("tool_calls", ())}
    if call_id in known:
        result["source_call_id"] = call_id
    result["content"] = content_text(message.get("content"))
    if call_id not in known and call_id is not None:
        result["extra"] = {"tool_call_id": json_value(call_id)}
    if asked is None:
        step: dict[str, Any] = {"step_id": len(steps) + 1}
        if timestamp := _timestamp(message):
            step["timestamp"] = timestamp
        step |= {"source": "system", "message": "", "observation": {"results": [result]}}
        step["extra"] = {"original_role": role}
        steps.append(step)
    else:
        asked.setdefault("observation", {"results": []})["results"].append(result)


def _tool_calls(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    calls = []
    raw = message.get("tool_calls")
    if not isinstance(raw, (list, tuple)):
        return []
    for number, call in enumerate(raw):
        if not isinstance(call, Mapping):
            continue
        function = call.get("function")
        function = function if isinstance(function, Mapping) else call
        calls.append(
            {
                "tool_call_id": clean_text(str(call.get("id") or call.get("call_id") or f"call_{number}")),
                "function_name": clean_text(str(function.get("name") or "unknown")),
                "arguments": _arguments(function.get("arguments")),
            }
        )
    return calls


def _arguments(raw: Any) -> dict[str, Any]:
    if isinstance(raw, Mapping):
        return json_value(raw)
    if raw is None or raw == "":
        return {}
    if isinstance(raw, str):
        try:
            parsed = json.loads(raw)
        except (ValueError, RecursionError):
            parsed = None
        if isinstance(parsed, dict):
            return json_value(parsed)
    return {"_raw": json_value(raw)}


def _timestamp(message: Mapping[str, Any]) -> str | None:
    extra = message.get("extra")
    candidates = [message.get(key) for key in ("created_at", "timestamp", "completed_at")]
    candidates.append(extra.get("timestamp") if isinstance(extra, Mapping) else None)
    for value in candidates:
        try:
            if isinstance(value, str):
                return datetime.fromisoformat(value).isoformat()
            if isinstance(value, datetime):
                return value.isoformat()
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                return datetime.fromtimestamp(value, UTC).isoformat()
        except (ValueError, OverflowError, OSError):
            continue
    return None


def _metrics(message: Mapping[str, Any]) -> dict[str, Any] | None:
    usage = message.get("usage")
    if not isinstance(usage, Mapping):
        extra = message.get("extra")
        response = extra.get("response") if isinstance(extra, Mapping) else None
        usage = response.get("usage") if isinstance(response, Mapping) else None
    if not isinstance(usage, Mapping):
        return None
    metrics: dict[str, Any] = {}
    for name, chat, responses in (
        ("prompt_tokens",) * 2 + ("input_tokens",),
        ("completion_tokens",) * 2 + ("output_tokens",),
    ):
        count = _count(usage.get(chat))
        count = _count(usage.get(responses)) if count is None else count
        if count is not None:
            metrics[name] = count
    for parts in (usage.get("prompt_tokens_details"), usage.get("input_tokens_details")):
        if isinstance(parts, Mapping) and (cached := _count(parts.get("cached_tokens"))) is not None:
            metrics["cached_tokens"] = cached
    details = {key: json_value(value) for key, value in usage.items() if isinstance(value, Mapping)}
    if details:
        metrics["extra"] = details  # cached, reasoning and audio tokens as the provider names them
    cost = usage.get("cost")
    if isinstance(cost, (int, float)) and not isinstance(cost, bool) and math.isfinite(cost):
        metrics["cost_usd"] = float(cost)
    return metrics or None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
