"""Reading what OpenAI-compatible providers answer: completions, chunks, usage, errors. Pure; trusts nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from osmosis_ai.gateway.policy import ChatDelta, PolicyError, PolicyErrorKind, Usage

_NOT_OURS = frozenset({"annotations", "audio", "function_call", "provider_specific_fields", "token_ids", "logprobs"})
_KINDS: Mapping[int, PolicyErrorKind] = {
    401: "authentication",
    402: "quota",
    403: "authentication",
    404: "not_found",
    408: "timeout",
    409: "unavailable",
    425: "unavailable",
    429: "rate_limit",
}
_QUOTA_CODES = frozenset(
    {"insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "quota_exceeded", "insufficient_balance"}
)


def read_usage(usage: Any) -> Usage | None:
    """A provider's usage object; None when it is absent or makes no sense."""
    if not isinstance(usage, dict):
        return None
    prompt, completion = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
    if prompt is None and completion is None:
        return None
    prompt_details = usage.get("prompt_tokens_details")
    completion_details = usage.get("completion_tokens_details")
    cached = _count(prompt_details.get("cached_tokens")) if isinstance(prompt_details, dict) else None
    if cached is None:
        cached = _count(usage.get("prompt_cache_hit_tokens"))
    thought = _count(completion_details.get("reasoning_tokens")) if isinstance(completion_details, dict) else None
    return Usage(prompt or 0, completion or 0, cached, thought)


def read_cost(usage: Any) -> float | None:
    """The price that a provider puts into its usage object."""
    cost = usage.get("cost") if isinstance(usage, dict) else None
    if isinstance(cost, bool) or not isinstance(cost, int | float) or not math.isfinite(cost) or cost < 0:
        return None
    return float(cost)


def read_completion(reply: Any, *, reports_cost: bool = False) -> ChatDelta:
    """A whole chat completion as one piece.

    Raises:
        PolicyError: An error object with status 200, or kind protocol: no choices, no message.
    """
    if not isinstance(reply, dict):
        raise PolicyError("the provider's answer is not a JSON object", kind="protocol")
    choice = _choice(reply)
    if choice is None:
        raise PolicyError("the provider's answer has no choices", kind="protocol")
    message = choice.get("message")
    if not isinstance(message, dict):
        raise PolicyError("the provider's answer has a choice without a message", kind="protocol")
    usage = reply.get("usage")
    delta = _delta(message)
    if calls := delta.get("tool_calls"):
        delta["tool_calls"] = [{**call, "index": number} for number, call in enumerate(calls)]
    return ChatDelta(
        delta,
        finish_reason=choice.get("finish_reason") or "stop",
        usage=read_usage(usage),
        cost_usd=read_cost(usage) if reports_cost else None,
    )


def read_chunk(chunk: Any, *, reports_cost: bool = False) -> ChatDelta | None:
    """A stream chunk as a piece; None when it says nothing.

    Raises:
        PolicyError: An error object, or kind protocol.
    """
    if not isinstance(chunk, dict):
        raise PolicyError("the provider's stream has a chunk that is not a JSON object", kind="protocol")
    choice = _choice(chunk)
    usage = chunk.get("usage")
    if choice is None:
        if not isinstance(usage, dict):
            return None
        return ChatDelta(usage=read_usage(usage), cost_usd=read_cost(usage) if reports_cost else None)
    message = choice.get("delta")
    return ChatDelta(
        _delta(message) if isinstance(message, dict) else {},
        finish_reason=choice.get("finish_reason"),
        usage=read_usage(usage),
        cost_usd=read_cost(usage) if reports_cost else None,
    )


def read_error(status: int, text: str, headers: Mapping[str, str]) -> PolicyError:
    """An HTTP error reply as a policy error: the provider's own words where it has some."""
    try:
        body = json.loads(text)
    except ValueError:
        body = None
    message, kind_name, code = _error_words(body)
    if not message:
        page = "an HTML page" if "<html" in text[:2000].lower() else (text[:300].strip() or "no text")
        message = f"the provider answered {status} with {page}"
    return provider_error(message, status, type=kind_name, code=code, retry_after_s=retry_after_s(headers))


def provider_error(
    message: str, status: int, *, type: str | None = None, code: str | None = None, retry_after_s: float | None = None
) -> PolicyError:
    """The policy error of a provider's status."""
    kind: PolicyErrorKind = _KINDS.get(status) or ("bad_request" if 400 <= status < 500 else "unavailable")
    if code in _QUOTA_CODES or type in _QUOTA_CODES:
        kind = "quota"
    elif code == "model_not_found":
        kind = "not_found"
    elif status == 403 and ("moderation" in message.lower() or "flagged" in message.lower()):
        kind = "bad_request"  # this text is refused, not this account
    return PolicyError(
        message,
        kind=kind,
        status=status if 400 <= status < 500 else 502,
        type=type,
        provider_code=code,
        retry_after_s=retry_after_s if status in (429, 503, 529, 409, 408, 500, 502, 504) else None,
    )


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds from `retry-after-ms` or `Retry-After`, which is a number or an HTTP date; None without a sane one."""
    for name, scale in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        text = headers.get(name)
        if text is None:
            continue
        try:
            seconds = float(text) / scale
        except ValueError:
            try:
                when = parsedate_to_datetime(text)
            except ValueError:
                continue
            if when.tzinfo is None:
                when = when.replace(tzinfo=UTC)
            seconds = (when - datetime.now(UTC)).total_seconds()
        if math.isfinite(seconds):
            return max(0.0, seconds)
    return None


def _choice(reply: Mapping[str, Any]) -> dict[str, Any] | None:
    """The first choice, or None; an error object is raised wherever it hides."""
    choices = reply.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else None
    error = reply.get("error") or (choice or {}).get("error")
    if error:
        message, kind, code = _error_words({"error": error})
        status = int(code) if code is not None and code.isdigit() and 400 <= int(code) < 600 else 502
        raise provider_error(message or "the provider reported an error", status, type=kind, code=code)
    return choice


def _delta(message: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a message or delta that belong to a conversation, odd shapes mended."""
    delta: dict[str, Any] = {k: v for k, v in message.items() if v is not None and k not in _NOT_OURS}
    content = delta.get("content")
    if isinstance(content, list):  # some providers answer in parts; thinking parts are reasoning
        text = [p.get("text") for p in content if isinstance(p, dict) and isinstance(p.get("text"), str)]
        thinking = [t for p in content if isinstance(p, dict) and p.get("type") == "thinking" for t in _texts(p)]
        delta["content"] = "".join(t for t in text if t)
        if thinking:
            delta["reasoning_content"] = "".join(thinking)
    elif content is not None and not isinstance(content, str):
        delta["content"] = str(content)
    calls = delta.pop("tool_calls", None)
    if isinstance(calls, list):
        fragments = [{**c, "function": _object(c.get("function"))} for c in calls if isinstance(c, dict)]
        if fragments:
            delta["tool_calls"] = fragments
    return delta


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _texts(part: Mapping[str, Any]) -> list[str]:
    inner = part.get("thinking")
    if isinstance(inner, str):
        return [inner]
    return [p["text"] for p in inner or () if isinstance(p, dict) and isinstance(p.get("text"), str)]


def _error_words(body: Any) -> tuple[str, str | None, str | None]:
    """(message, type, code) of an error body in any of the shapes providers use."""
    if isinstance(body, list) and body:
        body = body[0]
    if not isinstance(body, dict):
        return ("", None, None)
    error = body.get("error") or body.get("errors") or body
    if isinstance(error, str):
        return (str(body.get("message") or error), None, _word(body.get("code")))
    if isinstance(error, list) and error:
        error = error[0]
    if not isinstance(error, dict):
        return ("", None, None)
    message = error.get("message") or error.get("detail") or error.get("msg") or body.get("detail") or ""
    if not isinstance(message, str):
        message = json.dumps(message, ensure_ascii=False)
    metadata = error.get("metadata")
    if isinstance(metadata, dict) and isinstance(metadata.get("raw"), str):  # OpenRouter: the upstream's own words
        message = f"{message}: {metadata['raw']}"
    return (message, _word(error.get("type")), _word(error.get("code")))


def _word(value: Any) -> str | None:
    return str(value)[:100] if isinstance(value, str | int) and not isinstance(value, bool) and value != "" else None


def _count(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        return None
    return int(value)
