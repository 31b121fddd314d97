"""The input of the Responses route as the chat call it means. Pure; the answer's side is `responses_face`.

Stateless: nothing is stored between calls, so a caller sends the whole history each time (`previous_response_id` and
`conversation` are refused). Tools are functions only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from osmosis_ai.gateway.policy import ChatRequest
from osmosis_ai.gateway.rules import (
    ChatCall,
    caller_model,
    check_messages,
    check_single_choice,
    flag,
    merge_extra_body,
    refuse,
    refuse_control_fields,
)

_STATEFUL = {
    "previous_response_id": "the gateway keeps no responses: send the whole history as input",
    "conversation": "the gateway keeps no conversations: send the whole history as input",
    "background": "the gateway answers in the same request: leave background out",
}
_CONSUMED = frozenset(
    """
    model input instructions stream stream_options tools tool_choice text max_output_tokens reasoning store include
    truncation previous_response_id conversation background max_tool_calls extra_body n
    """.split()
)


def parse_responses(body: Mapping[str, Any], rollout_id: str = "") -> ChatCall:
    """A Responses body as the chat call it means.

    Raises:
        PolicyError: Kind bad_request, naming the field or item and what is allowed.
    """
    body = merge_extra_body(body)
    check_single_choice(body)
    for name, why in _STATEFUL.items():
        if body.get(name):
            refuse(f"{name} is not supported: {why}", code="unsupported_parameter")
    stream = flag(body, "stream")
    messages = input_messages(body.get("input"))
    instructions = body.get("instructions")
    if instructions is not None:
        if not isinstance(instructions, str):
            refuse("instructions must be a string")
        messages.insert(0, {"role": "system", "content": instructions})
    check_messages(messages)
    params = {name: value for name, value in body.items() if name not in _CONSUMED}
    refuse_control_fields(params)
    _translate(body, params)
    tools = _chat_tools(body.get("tools"))
    if tools is not None and body.get("tool_choice") is not None:
        params["tool_choice"] = _chat_tool_choice(body["tool_choice"])
    if tools is None:
        params.pop("parallel_tool_calls", None)
    return ChatCall(ChatRequest(messages, tools, params, rollout_id, stream), caller_model(body), stream)


def _translate(body: Mapping[str, Any], params: dict[str, Any]) -> None:
    """The fields whose chat name differs."""
    if body.get("max_output_tokens") is not None:
        params.setdefault("max_tokens", body["max_output_tokens"])
    reasoning = body.get("reasoning")
    if reasoning is not None:
        if not isinstance(reasoning, dict):
            refuse("reasoning must be an object such as {'effort': 'low'}")
        if reasoning.get("effort") is not None:
            params.setdefault("reasoning_effort", reasoning["effort"])
    text = body.get("text")
    if text is None:
        return
    if not isinstance(text, dict):
        refuse("text must be an object")
    if text.get("verbosity") is not None:
        params.setdefault("verbosity", text["verbosity"])
    shape = text.get("format") or {}
    if not isinstance(shape, dict):
        refuse("text.format must be an object")
    kind = shape.get("type", "text")
    if kind == "json_schema":
        schema = {k: shape[k] for k in ("name", "description", "schema", "strict") if shape.get(k) is not None}
        params["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif kind == "json_object":
        params["response_format"] = {"type": "json_object"}
    elif kind != "text":
        refuse(f"text.format.type must be text, json_object or json_schema, not {kind!r}")


def input_messages(items: Any) -> list[dict[str, Any]]:
    """Input items as chat messages: neighbouring calls, text and reasoning of one turn become one assistant message.

    Raises:
        PolicyError: Kind bad_request: an item of a kind that chat cannot carry.
    """
    if isinstance(items, str):
        return [{"role": "user", "content": items}]
    if not isinstance(items, list) or not items:
        refuse("input must be a string or a list of at least one item")
    messages: list[dict[str, Any]] = []
    turn: dict[str, Any] | None = None  # the assistant message being put together
    reasoning: str = ""

    def assistant() -> dict[str, Any]:
        nonlocal turn, reasoning
        if turn is None:
            turn = {"role": "assistant", "content": None}
            messages.append(turn)
        if reasoning:
            turn["reasoning_content"] = str(turn.get("reasoning_content") or "") + reasoning
            reasoning = ""
        return turn

    for number, item in enumerate(items):
        place = f"input[{number}]"
        if not isinstance(item, dict):
            refuse(f"{place} must be an object")
        kind = item.get("type") or "message"
        if kind == "message":
            role = item.get("role")
            content = _chat_content(item.get("content"), place, assistant=role == "assistant")
            if role == "assistant":
                if turn is not None and (turn.get("tool_calls") or turn.get("content")):
                    turn = None
                assistant()["content"] = content
            else:
                turn = None
                messages.append({"role": "system" if role == "developer" else role, "content": content})
        elif kind == "function_call":
            call = {
                "id": item.get("call_id") or item.get("id"),
                "type": "function",
                "function": {"name": item.get("name"), "arguments": item.get("arguments")},
            }
            assistant().setdefault("tool_calls", []).append(call)
        elif kind == "function_call_output":
            turn = None
            content = _chat_content(item.get("output"), place, assistant=True)
            messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": content})
        elif kind == "reasoning":
            if turn is not None and turn.get("tool_calls"):
                turn = None
            parts = item.get("content") or item.get("summary") or []
            reasoning += "".join(p["text"] for p in parts if isinstance(p, dict) and isinstance(p.get("text"), str))
        elif kind == "item_reference":
            refuse(f"{place} refers to a stored item, and the gateway stores none: send the item itself")
        else:
            refuse(
                f"{place} has type {kind!r}: only messages, function calls, their outputs and reasoning are supported"
            )
    return messages


def _chat_content(content: Any, place: str, *, assistant: bool) -> Any:
    """Content parts in chat words; parts of text alone become a string."""
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, list):
        refuse(f"{place}.content must be a string or a list of parts")
    parts: list[dict[str, Any]] = []
    for number, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in ("input_text", "output_text", "text", "summary_text", "reasoning_text"):
            parts.append({"type": "text", "text": part.get("text") or ""})
        elif kind == "refusal":
            parts.append({"type": "text", "text": part.get("refusal") or ""})
        elif kind == "input_image" and part.get("image_url"):
            image = {"url": part["image_url"]}
            if part.get("detail"):
                image["detail"] = part["detail"]
            parts.append({"type": "image_url", "image_url": image})
        elif kind == "input_file" and part.get("file_data"):
            file = {k: part[k] for k in ("file_data", "filename") if part.get(k)}
            parts.append({"type": "file", "file": file})
        else:
            refuse(
                f"{place}.content[{number}] has type {kind!r}: only text, images by URL and files by data are supported"
            )
    if assistant or len(parts) == 1:
        if all(part["type"] == "text" for part in parts):
            return "".join(part["text"] for part in parts)
    return parts


def _chat_tools(tools: Any) -> list[dict[str, Any]] | None:
    if tools is None:
        return None
    if not isinstance(tools, list):
        refuse("tools must be a list of objects")
    chat: list[dict[str, Any]] = []
    for number, tool in enumerate(tools):
        if not isinstance(tool, dict) or tool.get("type") != "function":
            kind = tool.get("type") if isinstance(tool, dict) else None
            refuse(f"tools[{number}] has type {kind!r}: only function tools are supported")
        fields = ("name", "description", "parameters", "strict")
        chat.append({"type": "function", "function": {k: tool[k] for k in fields if tool.get(k) is not None}})
    return chat or None


def _chat_tool_choice(choice: Any) -> Any:
    if isinstance(choice, dict):
        if choice.get("type") != "function":
            refuse(f"tool_choice of type {choice.get('type')!r} is not supported: auto, none, required or a function")
        return {"type": "function", "function": {"name": choice.get("name")}}
    return choice
