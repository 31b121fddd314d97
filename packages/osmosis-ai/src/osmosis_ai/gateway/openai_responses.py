"""OpenAI's own endpoint speaks the Responses API: chat requests as its bodies, its answers as chat pieces. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from osmosis_ai.gateway.chat_wire import provider_error
from osmosis_ai.gateway.policy import ChatDelta, ChatRequest, PolicyError, Usage

REASONING_ITEM = "openai.reasoning_item"
"""Type of the `reasoning_details` entries that carry a Responses reasoning item from one turn to the next."""

_RENAMED = ("max_tokens", "max_completion_tokens", "reasoning_effort", "response_format", "tool_choice", "verbosity")
_CHAT_ONLY = ("stop", "seed", "logit_bias", "presence_penalty", "frequency_penalty", "logprobs", "functions")


def request_body(model: str, request: ChatRequest, *, keep_reasoning: bool = False) -> dict[str, Any]:
    """The Responses body of a chat request.

    Args:
        model: The provider's name of the model.
        request: The chat request.
        keep_reasoning: Ask for the model's encrypted thinking, so that the next turn can build on it unstored.

    Raises:
        PolicyError: Kind bad_request: two fields say different things, or a field the API does not have.
    """
    params = dict(request.params)
    body: dict[str, Any] = {"model": model, "input": input_items(request.messages)}
    if request.tools is not None:
        body["tools"] = [_tool(tool) for tool in request.tools]
    if request.stream:
        body["stream"] = True
    renamed = {name: params.pop(name, None) for name in _RENAMED}
    unknown = sorted(name for name in _CHAT_ONLY if params.get(name) or (name == "seed" and params.get(name) == 0))
    if unknown:
        _refuse(f"OpenAI's Responses API, which serves this model, has no {', '.join(unknown)}: leave it out")
    for name in _CHAT_ONLY:
        params.pop(name, None)
    limits = {v for v in (renamed["max_tokens"], renamed["max_completion_tokens"]) if v is not None}
    if params.get("max_output_tokens") is not None:
        limits.add(params.pop("max_output_tokens"))
    if len(limits) > 1:
        _refuse("max_tokens, max_completion_tokens and max_output_tokens say different things: send one of them")
    if limits:
        body["max_output_tokens"] = limits.pop()
    if renamed["reasoning_effort"] is not None:
        reasoning = params.pop("reasoning", None) or {}
        if (
            not isinstance(reasoning, dict)
            or reasoning.get("effort", renamed["reasoning_effort"]) != (renamed["reasoning_effort"])
        ):
            _refuse("reasoning_effort and reasoning.effort say different things: send one of them")
        body["reasoning"] = {**reasoning, "effort": renamed["reasoning_effort"]}
    text = params.pop("text", None) or {}
    if renamed["response_format"] is not None:
        shape = _text_format(renamed["response_format"])
        if not isinstance(text, dict) or text.get("format", shape) != shape:
            _refuse("response_format and text.format say different things: send one of them")
        text = {**text, "format": shape}
    if renamed["verbosity"] is not None:
        text = {**text, "verbosity": renamed["verbosity"]}
    if text:
        body["text"] = text
    choice = renamed["tool_choice"]
    if choice is not None:
        function = choice.get("function") if isinstance(choice, dict) else None
        body["tool_choice"] = (
            {"type": "function", "name": function.get("name")} if isinstance(function, dict) else choice
        )
    body["store"] = params.pop("store", None) or False
    body.update(params)
    if keep_reasoning and not body["store"]:
        body.setdefault("include", ["reasoning.encrypted_content"])
    return body


def input_items(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Chat messages as input items."""
    items: list[dict[str, Any]] = []
    for message in messages:
        role = message.get("role")
        content = message.get("content")
        if role in ("tool", "function"):
            output = content if isinstance(content, str) else "".join(_text_parts(content))
            items.append({"type": "function_call_output", "call_id": message.get("tool_call_id"), "output": output})
            continue
        if role == "assistant":
            for detail in message.get("reasoning_details") or ():
                if isinstance(detail, dict) and detail.get("type") == REASONING_ITEM:
                    items.append(detail["item"])
            text = content if isinstance(content, str) else "".join(_text_parts(content))
            if text:
                items.append({"role": "assistant", "content": text})
            for call in message.get("tool_calls") or ():
                function = call.get("function") or {}
                items.append(
                    {
                        "type": "function_call",
                        "call_id": call.get("id"),
                        "name": function.get("name"),
                        "arguments": function.get("arguments") or "",
                    }
                )
            continue
        items.append({"role": role, "content": content if isinstance(content, str) else _input_parts(content)})
    return items


def read_response(reply: Any) -> ChatDelta:
    """A whole response as one piece.

    Raises:
        PolicyError: The response failed, or kind protocol.
    """
    if not isinstance(reply, dict):
        raise PolicyError("the provider's answer is not a JSON object", kind="protocol")
    _check_status(reply)
    output = reply.get("output")
    if not isinstance(output, list):
        raise PolicyError("the provider's response has no output", kind="protocol")
    delta: dict[str, Any] = {"role": "assistant"}
    for item in output:
        if isinstance(item, dict):
            _add_item(delta, item)
    return ChatDelta(delta, finish_reason=_finish_reason(reply, delta), usage=read_usage(reply.get("usage")))


class StreamReader:
    """Response events as chat pieces."""

    def __init__(self) -> None:
        self._calls: dict[int, int] = {}

    def read(self, event: Any) -> Iterable[ChatDelta]:
        """The pieces of one event.

        Raises:
            PolicyError: The stream reports an error or a failed response.
        """
        if not isinstance(event, dict):
            raise PolicyError("the provider's stream has an event that is not a JSON object", kind="protocol")
        position = event.get("output_index")
        match event.get("type"):
            case "response.output_text.delta":
                return (ChatDelta({"content": event.get("delta")}),)
            case "response.refusal.delta":
                return (ChatDelta({"refusal": event.get("delta")}),)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                return (ChatDelta({"reasoning_content": event.get("delta")}),)
            case "response.output_item.added":
                item = event.get("item") or {}
                if item.get("type") == "function_call" and isinstance(position, int):
                    index = self._calls[position] = len(self._calls)
                    function = {"name": item.get("name"), "arguments": ""}
                    call = {"index": index, "id": item.get("call_id"), "type": "function", "function": function}
                    return (ChatDelta({"tool_calls": [call]}),)
            case "response.function_call_arguments.delta":
                if isinstance(position, int) and position in self._calls:
                    function = {"arguments": event.get("delta")}
                    return (ChatDelta({"tool_calls": [{"index": self._calls[position], "function": function}]}),)
            case "response.output_item.done":
                item = event.get("item") or {}
                if item.get("type") == "reasoning" and item.get("encrypted_content"):
                    return (ChatDelta({"reasoning_details": [{"type": REASONING_ITEM, "item": _kept(item)}]}),)
            case "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled":
                response = event.get("response") or {}
                _check_status(response)
                calls = {"tool_calls": True} if self._calls else {}
                return (ChatDelta({}, _finish_reason(response, calls), read_usage(response.get("usage"))),)
            case "error":
                error = event.get("error") or event
                raise provider_error(
                    str(error.get("message") or "the provider reported an error"), 502, code=error.get("code")
                )
        return ()


def read_usage(usage: Any) -> Usage | None:
    """Usage in Responses words; None when absent."""
    if not isinstance(usage, dict) or not isinstance(usage.get("input_tokens"), int):
        return None
    cached, thought = (usage.get(name) or {} for name in ("input_tokens_details", "output_tokens_details"))
    output = usage.get("output_tokens") or 0
    return Usage(usage["input_tokens"], output, cached.get("cached_tokens"), thought.get("reasoning_tokens"))


def _add_item(delta: dict[str, Any], item: Mapping[str, Any]) -> None:
    match item.get("type"):
        case "message":
            for part in item.get("content") or ():
                name = "refusal" if part.get("type") == "refusal" else "content"
                text = part.get("refusal") if name == "refusal" else part.get("text")
                delta[name] = (delta.get(name) or "") + (text or "")
        case "function_call":
            calls = delta.setdefault("tool_calls", [])
            function = {"name": item.get("name"), "arguments": item.get("arguments")}
            calls.append({"index": len(calls), "id": item.get("call_id"), "type": "function", "function": function})
        case "reasoning":
            parts = item.get("summary") or item.get("content") or ()
            text = "".join(part.get("text") or "" for part in parts)
            if text:
                delta["reasoning_content"] = (delta.get("reasoning_content") or "") + text
            if item.get("encrypted_content"):
                delta.setdefault("reasoning_details", []).append({"type": REASONING_ITEM, "item": _kept(item)})


def _kept(item: Mapping[str, Any]) -> dict[str, Any]:
    """A reasoning item as it may be sent back without being stored."""
    return {k: item[k] for k in ("type", "id", "summary", "encrypted_content") if k in item}


def _check_status(response: Mapping[str, Any]) -> None:
    error = response.get("error")
    status = response.get("status")
    if error or status not in ("completed", "incomplete", None):
        words = error if isinstance(error, dict) else {}
        message = words.get("message") or f"the response ended with status {status}"
        code = words.get("code")
        rate_limited = code == "rate_limit_exceeded"
        raise provider_error(str(message), 429 if rate_limited else 502, code=None if code is None else str(code))


def _finish_reason(response: Mapping[str, Any], delta: Mapping[str, Any]) -> str:
    if response.get("status") == "incomplete":
        reason = (response.get("incomplete_details") or {}).get("reason")
        if reason == "content_filter":
            return "content_filter"
        if reason in ("max_output_tokens", None):
            return "length"
        raise PolicyError(f"the response is incomplete: {reason}", kind="unavailable")
    return "tool_calls" if delta.get("tool_calls") else "stop"


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = tool.get("function")
    if tool.get("type") != "function" or not isinstance(function, dict):
        return dict(tool)
    flat = {"type": "function", **{k: v for k, v in function.items() if v is not None}}
    flat.setdefault("strict", False)  # chat's default; the Responses API's is true
    return flat


def _text_format(shape: Any) -> Any:
    if isinstance(shape, dict) and isinstance(shape.get("json_schema"), dict):
        return {"type": "json_schema", **shape["json_schema"]}
    return shape


def _input_parts(content: Any) -> Any:
    if not isinstance(content, list):
        return content or ""
    parts: list[dict[str, Any]] = []
    for part in content:
        match part.get("type"):
            case "text":
                parts.append({"type": "input_text", "text": part.get("text")})
            case "image_url":
                image = part.get("image_url")
                image = image if isinstance(image, dict) else {"url": image}
                parts.append(
                    {"type": "input_image", "image_url": image.get("url"), "detail": image.get("detail") or "auto"}
                )
            case "file":
                parts.append({"type": "input_file", **(part.get("file") or {})})
            case _:
                parts.append(part)
    return parts


def _text_parts(content: Any) -> list[str]:
    if not isinstance(content, list):
        return []
    return [part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)]


def _refuse(message: str) -> NoReturn:
    raise PolicyError(message, kind="bad_request", status=400, type="invalid_request_error")
