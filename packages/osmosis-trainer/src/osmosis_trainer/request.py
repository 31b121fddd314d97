"""What a chat call asks of the engine: OpenAI's parameters, checked once and turned into ours."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from osmosis_ai.gateway.policy import ChatRequest, PolicyError

from osmosis_trainer.engine.sampling import SamplingParams


@dataclass(frozen=True, slots=True)
class CallParams:
    """The parameters of one call.

    Attributes:
        sampling: How tokens are drawn.
        max_tokens: Longest answer asked for; None leaves it to the context.
        stops: Texts that end the answer.
        seed: Given by the caller: equal requests then get equal answers.
        tools: The tools the model is shown; none when `tool_choice` is "none".
        forced: How the answer must begin, for `tool_choice` "required" or a named function; it ends where a token does.
    """

    sampling: SamplingParams
    max_tokens: int | None
    stops: tuple[str, ...]
    seed: int | None
    tools: Sequence[Mapping[str, Any]] | None
    forced: str


def read_params(request: ChatRequest) -> CallParams:
    """Check a call's parameters; those that mean nothing to this engine (logprobs, penalties, ...) are passed over.

    Raises:
        PolicyError: (bad_request) A value is out of range or of the wrong type; the parameter is named.
    """
    params = request.params
    sampling = SamplingParams(
        temperature=_number(params, "temperature", 1.0, low=0.0, high=100.0),
        top_p=_number(params, "top_p", 1.0, low=0.0, high=1.0),
        top_k=max(0, _integer(params, "top_k", low=-1) or 0),
        min_p=_number(params, "min_p", 0.0, low=0.0, high=1.0),
    )
    limits = [_integer(params, name, low=1) for name in ("max_completion_tokens", "max_tokens")]
    tools, forced = _tools(request)
    return CallParams(
        sampling,
        max_tokens=min((limit for limit in limits if limit is not None), default=None),
        stops=_stops(params.get("stop")),
        seed=_integer(params, "seed"),
        tools=tools,
        forced=forced,
    )


def _tools(request: ChatRequest) -> tuple[Sequence[Mapping[str, Any]] | None, str]:
    choice = request.params.get("tool_choice")
    if not request.tools or choice == "none":
        return None, ""
    if choice in (None, "auto"):
        return request.tools, ""
    if choice == "required":
        return request.tools, '<tool_call>\n{"name":'
    function = choice.get("function", choice) if isinstance(choice, Mapping) else {}
    name = function.get("name")
    offered = [tool.get("function", tool).get("name") for tool in request.tools]
    if name not in offered:
        raise _bad("tool_choice", choice, f'"none", "auto", "required" or one of the functions {offered}')
    return request.tools, f'<tool_call>\n{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments":'


def _stops(value: Any) -> tuple[str, ...]:
    stops = [value] if isinstance(value, str) else value or []
    if not isinstance(stops, list | tuple) or not all(isinstance(stop, str) for stop in stops):
        raise _bad("stop", value, "a text or a list of texts")
    return tuple(stop for stop in stops if stop)


def _number(params: Mapping[str, Any], name: str, default: float, *, low: float, high: float) -> float:
    value = params.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise _bad(name, value, f"a number from {low:g} to {high:g}")
    return float(value)


def _integer(params: Mapping[str, Any], name: str, *, low: int | None = None) -> int | None:
    value = params.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or (low is not None and value < low):
        raise _bad(name, value, "an integer" if low is None else f"an integer from {low}")
    return value


def _bad(name: str, value: Any, wanted: str) -> PolicyError:
    return PolicyError(f"{name} is {value!r}; it must be {wanted}.", kind="bad_request", status=400)
