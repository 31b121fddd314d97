"""What is known of a rollout's model calls from outside of the rollout: counts, cost, token ids per call.

Owns the report's models and `apply_report`, a pure function that overlays a report on a document.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

if TYPE_CHECKING:
    import httpx

_METRIC_KEYS = (
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "cost_usd",
    "prompt_token_ids",
    "completion_token_ids",
    "logprobs",
    "extra",
)
_TOTALS = {
    "total_prompt_tokens": "prompt_tokens",
    "total_completion_tokens": "completion_tokens",
    "total_cached_tokens": "cached_tokens",
    "total_cost_usd": "cost_usd",
}


class LlmCallMetrics(BaseModel):
    """Tokens and cost of one model call, in the order of the calls; None is unknown, never zero."""

    model_config = ConfigDict(extra="ignore")

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = Field(default=None, allow_inf_nan=False)
    prompt_token_ids: list[int] | None = None
    completion_token_ids: list[int] | None = None
    logprobs: list[float] | None = None
    model_name: str | None = None
    extra: dict[str, Any] | None = None


class SampleReport(BaseModel):
    """All model calls behind one sample."""

    model_config = ConfigDict(extra="ignore")

    model_name: str | None = None
    llm_call_metrics: list[LlmCallMetrics] = Field(default_factory=list)
    final_metrics: dict[str, Any] | None = None
    """Totals, when whoever reports counted them; else they are summed."""


class TrajectoryReport(BaseModel):
    """The calls of a rollout, by sample; a rollout has one sample, so usually one entry."""

    model_config = ConfigDict(extra="ignore")

    model_name: str | None = None
    samples: dict[str, SampleReport] = Field(default_factory=dict)

    def for_rollout(self, rollout_id: str) -> tuple[SampleReport | None, dict[str, SampleReport]]:
        """The report of the rollout's sample (under its id, or the only one), and the ones that match nothing."""
        others = dict(self.samples)
        if rollout_id in others:
            return others.pop(rollout_id), others
        if len(others) == 1:
            return others.popitem()[1], {}
        return None, others


def report_from_response(response: httpx.Response) -> TrajectoryReport | None:
    """The report in the `trajectory` of a JSON answer; None when there is none, or it is malformed."""
    try:
        body = response.json()
        report = body.get("trajectory") if isinstance(body, dict) else None
        return None if report is None else TrajectoryReport.model_validate(report)
    except (ValueError, ValidationError):
        return None


def apply_report(document: dict[str, Any], report: SampleReport | TrajectoryReport) -> dict[str, Any]:
    """A copy of the document with the report laid over it; the given document is not changed.

    Per-call metrics go to the agent's steps only when there are as many calls as agent steps, for only then is it
    known which belongs where; otherwise they are kept as `extra.osmosis.unmatched_llm_call_metrics`. Totals go to
    `final_metrics` in either case; a total is left out when any call's count is unknown.
    """
    sample: SampleReport | None
    if isinstance(report, TrajectoryReport):
        model_name = report.model_name
        sample, unmatched = report.for_rollout(str(document.get("session_id") or ""))
    else:
        model_name, sample, unmatched = None, report, {}

    result = dict(document)
    osmosis = dict((document.get("extra") or {}).get("osmosis") or {})
    if unmatched:
        osmosis["unmatched_sample_reports"] = {
            key: other.model_dump(exclude_none=True) for key, other in unmatched.items()
        }
    if sample is not None:
        model_name = sample.model_name or model_name
        steps: list[dict[str, Any]] = list(document.get("steps") or ())
        agent_steps = [index for index, step in enumerate(steps) if step.get("source") == "agent"]
        calls = sample.llm_call_metrics
        if calls and len(calls) == len(agent_steps):
            for index, call in zip(agent_steps, calls, strict=True):
                steps[index] = _with_call(steps[index], call)
            result["steps"] = steps
            osmosis.pop("unmatched_llm_call_metrics", None)
        elif calls:
            osmosis["unmatched_llm_call_metrics"] = [call.model_dump(exclude_none=True) for call in calls]
        result["final_metrics"] = {**(document.get("final_metrics") or {}), **_totals(sample)}
    if model_name:
        result["agent"] = {**document["agent"], "model_name": model_name}
    if osmosis:
        result["extra"] = {**(document.get("extra") or {}), "osmosis": osmosis}
    return result


def _with_call(step: dict[str, Any], call: LlmCallMetrics) -> dict[str, Any]:
    metrics = {key: value for key in _METRIC_KEYS if (value := getattr(call, key)) is not None}
    step = {**step, "llm_call_count": step.get("llm_call_count") or 1}
    if metrics:
        step["metrics"] = metrics
    if call.model_name:
        step["model_name"] = call.model_name
    return step


def _totals(sample: SampleReport) -> dict[str, Any]:
    totals: dict[str, Any] = {}
    for total, key in _TOTALS.items():
        values = [getattr(call, key) for call in sample.llm_call_metrics]
        if values and None not in values:
            totals[total] = math.fsum(values) if key == "cost_usd" else sum(values)
        given = (sample.final_metrics or {}).get(total)
        if isinstance(given, (int, float)) and not isinstance(given, bool) and math.isfinite(given):
            totals[total] = given if key == "cost_usd" else int(given)
    return totals
