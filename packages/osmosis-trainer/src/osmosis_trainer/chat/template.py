"""Chat messages to model text: normalises OpenAI messages and renders a Hugging Face chat template.

Leaves token ids to `chat.tokens` and reading the model's answers to `chat.parse`. The environment is the one that
transformers uses for `apply_chat_template` (sandboxed Jinja, trimmed blocks, `tojson` without ASCII escapes), so a
template renders the same text in both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2.exceptions import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from osmosis_ai.errors import ValidationError
from osmosis_ai.gateway.policy import PolicyError

type Message = Mapping[str, Any]

_ROLES = ("system", "developer", "user", "assistant", "tool")


def canonical_arguments(arguments: Any) -> str:
    """Give tool-call arguments one spelling: JSON as `json.dumps` writes it; text that is no JSON stays verbatim."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            return arguments
    return json.dumps({} if arguments is None else arguments, ensure_ascii=False)


def normalise(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Reduce OpenAI chat messages to what a template reads: role, text, tool calls with canonical arguments.

    Two requests that mean the same (content as a string or as text parts, arguments spelled with other spaces, extra
    fields a framework adds) become equal, which is how a later turn finds the tokens of the earlier ones.

    Raises:
        PolicyError: (bad_request) An unknown role, content that is not text, or a malformed tool call.
    """
    return [_normalise(index, message) for index, message in enumerate(messages)]


def _normalise(index: int, message: Message) -> dict[str, Any]:
    role = message.get("role")
    if role not in _ROLES:
        raise _bad(index, f"has the role {role!r}; known are {', '.join(_ROLES)}")
    out: dict[str, Any] = {"role": "system" if role == "developer" else role, "content": _text(index, message)}
    if role == "assistant" and isinstance(thinking := message.get("reasoning_content"), str) and thinking:
        out["reasoning_content"] = thinking
    if role == "assistant" and message.get("tool_calls"):
        out["tool_calls"] = [_call(index, call) for call in message["tool_calls"]]
    return out


def _text(index: int, message: Message) -> str:
    content = message.get("content")
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        raise _bad(index, f"has content of type {type(content).__name__}; give text or a list of text parts")
    pieces: list[str] = []
    for part in content:
        text = part if isinstance(part, str) else part.get("text") if isinstance(part, Mapping) else None
        if not isinstance(text, str):
            kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
            raise _bad(index, f"has a part of type {kind!r}; this model reads text only")
        pieces.append(text)
    return "".join(pieces)


def _call(index: int, call: Any) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise _bad(index, "has a tool call without a function name")
    arguments = canonical_arguments(function.get("arguments"))
    return {"type": "function", "function": {"name": function["name"], "arguments": arguments}}


def _bad(index: int, what: str) -> PolicyError:
    return PolicyError(f"Message {index} {what}.", kind="bad_request", status=400)


class ChatTemplate:
    """A compiled Hugging Face chat template.

    Args:
        source: The Jinja text (`chat_template.jinja` of a model folder).
        special: Special tokens that the text may name, as `bos_token`.

    Raises:
        ValidationError: The text is no template.
    """

    def __init__(self, source: str, special: Mapping[str, str] | None = None) -> None:
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.filters["tojson"] = _tojson
        try:
            self._template = environment.from_string(source, globals={"raise_exception": _raise, **(special or {})})
        except TemplateError as error:
            raise ValidationError(f"The chat template cannot be read: {error}.") from error

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        add_generation_prompt: bool = False,
    ) -> str:
        """Render messages (from `normalise`) and tool schemas; a lone surrogate, which has no UTF-8, becomes "?".

        Raises:
            PolicyError: (bad_request) The template refuses the messages or a tool schema is malformed.
        """
        try:
            text = self._template.render(
                messages=messages, tools=list(tools) if tools else None, add_generation_prompt=add_generation_prompt
            )
        except (TemplateError, TypeError, AttributeError) as error:
            raise PolicyError(
                f"The chat template cannot render this request: {error}.", kind="bad_request", status=400
            ) from error
        return text.encode("utf-8", "replace").decode("utf-8")


def _tojson(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise(message: str) -> str:
    raise TemplateError(message)
