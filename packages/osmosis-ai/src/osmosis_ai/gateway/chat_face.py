"""How an answer looks on the chat completions route: one JSON object, or server-sent chunks. Pure."""

from __future__ import annotations

import json
import secrets
import time
from typing import Any

from osmosis_ai.gateway.assembly import Assembly
from osmosis_ai.gateway.policy import PolicyError, Usage

PING = b": ping\n\n"
DONE = b"data: [DONE]\n\n"

_ERROR_TYPES = {
    "authentication": "authentication_error",
    "quota": "insufficient_quota",
    "not_found": "not_found_error",
    "bad_request": "invalid_request_error",
    "rate_limit": "rate_limit_error",
    "timeout": "timeout_error",
}


def compact_json(value: Any) -> bytes:
    """A value as UTF-8 JSON without spaces. A lone surrogate of a model's answer becomes U+FFFD."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def error_body(error: PolicyError) -> dict[str, Any]:
    """The error object of both routes: `{"error": {"message", "type", "code"}, "detail"}`."""
    message = str(error) or error.kind
    kind = error.type or _ERROR_TYPES.get(error.kind, "api_error")
    return {"error": {"message": message, "type": kind, "code": error.provider_code or error.kind}, "detail": message}


def error_status(error: PolicyError) -> int:
    """The HTTP status of an error: a 4xx as it is, everything else 502."""
    return error.status if 400 <= error.status < 500 else 502


def error_event(error: PolicyError) -> bytes:
    """An error inside a stream."""
    return b"event: error\ndata: " + compact_json(error_body(error)) + b"\n\n"


def usage_json(usage: Usage | None) -> dict[str, Any] | None:
    """Usage in chat completions words; None stays None."""
    if usage is None:
        return None
    counts: dict[str, Any] = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
    }
    if usage.cached_prompt_tokens is not None:
        counts["prompt_tokens_details"] = {"cached_tokens": usage.cached_prompt_tokens}
    if usage.reasoning_tokens is not None:
        counts["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return counts


class ChatFace:
    """One reply of the chat route.

    Args:
        model: Echoed in the reply.
        include_usage: Whether the caller asked for a usage chunk of its own.
    """

    def __init__(self, model: str, *, include_usage: bool = False) -> None:
        self._include_usage = include_usage
        self._base = {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": model,
        }

    def whole(self, assembly: Assembly) -> bytes:
        """The JSON reply."""
        choice = {"index": 0, "message": assembly.message(), "finish_reason": assembly.finish_reason}
        reply = {**self._base, "object": "chat.completion", "choices": [choice], "usage": usage_json(assembly.usage)}
        return compact_json(reply)

    def opening(self) -> bytes:
        """What a stream starts with, before the model said anything."""
        return PING

    def piece(self, delta: dict[str, Any]) -> bytes:
        """One chunk of a stream."""
        return self._chunk({"index": 0, "delta": delta, "finish_reason": None})

    def closing(self, assembly: Assembly) -> bytes:
        """The end of a stream: finish reason and usage in the last chunk, the usage chunk if asked, [DONE]."""
        delta: dict[str, Any] = {} if assembly.role_sent else {"role": "assistant", "content": ""}
        usage = usage_json(assembly.usage)
        counted = {} if usage is None else {"usage": usage}
        end = self._chunk({"index": 0, "delta": delta, "finish_reason": assembly.finish_reason}, **counted)
        if self._include_usage and usage is not None:
            end += b"data: " + compact_json({**self._base, "choices": [], "usage": usage}) + b"\n\n"
        return end + DONE

    def failure(self, error: PolicyError) -> bytes:
        """The end of a stream that failed."""
        return error_event(error) + DONE

    def _chunk(self, choice: dict[str, Any], **extra: Any) -> bytes:
        return b"data: " + compact_json({**self._base, "choices": [choice], **extra}) + b"\n\n"
