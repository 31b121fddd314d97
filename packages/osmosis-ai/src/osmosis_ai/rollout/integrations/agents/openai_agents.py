"""OpenAI Agents SDK: an Agent whose model is the rollout's policy and a Session whose items are the rollout's sample.

Owns the placeholder, the model, the agent, the session and its sample source. Connections are `policy_client`'s, the
agent loop is the SDK's. Importing it keeps the SDK's tracing from exporting to OpenAI, unless tracing is configured.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import fields, replace
from typing import Any, NoReturn, cast
from uuid import uuid4

from osmosis_ai.extras import optional_imports
from osmosis_ai.rollout.context import RolloutContext, SampleSource, get_rollout_context
from osmosis_ai.rollout.types.sample import RolloutSample

with optional_imports("openai-agents"):
    from agents import Agent, ModelBehaviorError, ModelResponse, ModelSettings, Usage
    from agents.items import TResponseInputItem, TResponseStreamEvent
    from agents.memory.session import SessionABC
    from agents.models.chatcmpl_converter import Converter
    from agents.models.interface import Model
    from agents.models.openai_chatcompletions import OpenAIChatCompletionsModel

    from osmosis_ai.rollout.integrations.agents.agents_tracing import keep_traces_at_home
    from osmosis_ai.rollout.integrations.agents.policy_client import (
        known_parameters,
        open_client,
        refuse_other_placeholder,
        require_context,
        sort_parameters,
    )

__all__ = [
    "OsmosisAgent",
    "OsmosisLitellmModel",
    "OsmosisMemorySession",
    "OsmosisRolloutModel",
    "SessionSampleSource",
]

logger = logging.getLogger(__name__)

_MODEL_OPTIONS = frozenset(
    {"buffer_streamed_tool_calls", "should_replay_reasoning_content", "strict_feature_validation"}
)  # arguments of the SDK's model itself, not request parameters
_SETTINGS = frozenset(field.name for field in fields(ModelSettings)) - {"extra_args"}
_MEDIA = {"input_image": "image", "input_file": "file", "input_audio": "audio", "image_url": "image", "file": "file"}


keep_traces_at_home()


class OsmosisRolloutModel(Model):
    """Stands for "the policy of this rollout" until an `OsmosisAgent` is made.

    Takes request parameters by name (`temperature=0.7`, `max_tokens=512`, `top_k=20`); the agent's `ModelSettings` win
    over them. Parameters that the openai client does not know go into the request's body. The model name is a label:
    the policy decides what answers.
    """

    def __init__(self, **kwargs: Any) -> None:
        self.kwargs = kwargs

    async def get_response(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse: only an `OsmosisAgent` can use the placeholder."""
        raise NotImplementedError("OsmosisRolloutModel is a placeholder: give it to OsmosisAgent inside run()")

    def stream_response(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse: only an `OsmosisAgent` can use the placeholder."""
        raise NotImplementedError("OsmosisRolloutModel is a placeholder: give it to OsmosisAgent inside run()")


class OsmosisLitellmModel(OpenAIChatCompletionsModel):
    """The rollout's policy as a model of the Agents SDK; always asked in streaming mode.

    The name is the published one; no LiteLLM is involved.

    Raises:
        RuntimeError: No rollout runs.
    """

    def __init__(self, **kwargs: Any) -> None:
        self._context: RolloutContext = require_context(type(self).__name__)
        options = {name: kwargs[name] for name in _MODEL_OPTIONS & kwargs.keys()}
        rest = {name: value for name, value in kwargs.items() if name not in options}
        rest.update(rest.pop("extra_args", None) or {})
        stated = {name: rest.pop(name) for name in _SETTINGS & rest.keys() - {"extra_body"}}
        parameters = sort_parameters(type(self).__name__, rest)
        self._defaults = ModelSettings(
            include_usage=True, extra_body=parameters.extra_body or None, extra_args=parameters.request or None
        ).resolve(ModelSettings(**stated))
        client = open_client(self._context, max_retries=parameters.max_retries)
        super().__init__(parameters.model, client, **options)

    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],
        model_settings: ModelSettings,
        *args: Any,
        **kwargs: Any,
    ) -> ModelResponse:
        """The whole answer, put together from the stream.

        Raises:
            RuntimeError: The rollout has no sample source.
            ModelBehaviorError: The stream ended before the answer did.
        """
        events = self.stream_response(system_instructions, input, model_settings, *args, **kwargs)
        async with aclosing(events):
            async for event in events:
                if event.type == "response.completed":
                    response = event.response
                    return ModelResponse(response.output, _usage(response.usage), response_id=None)
        raise ModelBehaviorError("the model's stream ended without a complete answer")

    async def stream_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],
        model_settings: ModelSettings,
        *args: Any,
        **kwargs: Any,
    ) -> AsyncGenerator[TResponseStreamEvent]:
        """The answer's events as they come.

        Raises:
            RuntimeError: The rollout has no sample source.
        """
        if self._context.sample_source is None:
            raise RuntimeError(
                "the rollout would end without a sample: pass session=OsmosisMemorySession(), created inside run(), to "
                "Runner.run()"
            )
        settings = _sorted_settings(self._defaults, model_settings)
        source = super().stream_response(system_instructions, input, settings, *args, **kwargs)
        async with aclosing(cast("AsyncGenerator[TResponseStreamEvent]", source)) as events:
            async for event in events:
                yield event


def _sorted_settings(defaults: ModelSettings, settings: ModelSettings) -> ModelSettings:
    """The call's settings over the model's, with parameters unknown to the openai client moved into the body."""
    merged = defaults.resolve(settings)
    body = {**_mapping(defaults.extra_body), **_mapping(settings.extra_body)}
    arguments: dict[str, Any] = {}
    for name, value in (merged.extra_args or {}).items():
        (arguments if name in known_parameters() else body)[name] = value
    return replace(merged, extra_body=body or None, extra_args=arguments or None)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _usage(usage: Any) -> Usage:
    if usage is None:
        return Usage(requests=1)
    return Usage(
        requests=1,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.total_tokens,
        input_tokens_details=usage.input_tokens_details,
        output_tokens_details=usage.output_tokens_details,
    )


class OsmosisAgent(Agent):
    """An Agent of the SDK for use inside `AgentWorkflow.run`; the placeholder model becomes the rollout's policy.

    Every other argument is the SDK's own, other models are left alone.

    Raises:
        RuntimeError: The placeholder is given and no rollout runs.
    """

    def __init__(self, *args: Any, model: Any = None, **kwargs: Any) -> None:
        if isinstance(model, OsmosisRolloutModel):
            require_context("OsmosisAgent")
            model = OsmosisLitellmModel(**model.kwargs)
        else:
            refuse_other_placeholder("OsmosisAgent", model, __name__)
        super().__init__(*args, model=model, **kwargs)


class OsmosisMemorySession(SessionABC):
    """A conversation in memory. Made while a rollout runs, it is that rollout's sample source and serves no other.

    Raises:
        ValueError: The rollout has a sample source already.
    """

    def __init__(self) -> None:
        self.session_id = uuid4().hex
        self._items: list[TResponseInputItem] = []
        self._context = get_rollout_context()
        if self._context is not None:
            self._context.set_sample_source(SessionSampleSource(self))

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """All items, or the last `limit`."""
        self._check_rollout()
        if limit is None:
            return copy.copy(self._items)
        return self._items[-limit:] if limit > 0 else []

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append items."""
        self._check_rollout()
        self._items.extend(items)

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove and return the last item; None when there is none."""
        self._check_rollout()
        return self._items.pop() if self._items else None

    async def clear_session(self) -> None:
        """Forget everything."""
        self._check_rollout()
        self._items.clear()

    def _check_rollout(self) -> None:
        current = get_rollout_context()
        if current is not None and current is not self._context:
            raise RuntimeError(
                "this OsmosisMemorySession belongs to another rollout: create one inside each AgentWorkflow.run()"
            )


class SessionSampleSource(SampleSource):
    """The items of one session as the sample, and as chat messages for the trajectory."""

    def __init__(self, session: OsmosisMemorySession) -> None:
        self.session = session

    async def get_sample(self) -> RolloutSample:
        """The session's items as they stand."""
        items = list(self.session._items)
        return RolloutSample(messages=_plain(items), trajectory_messages=_chat_messages(items))

    async def get_preview(self, max_messages: int) -> RolloutSample | None:
        """A copy of the last items; media are named instead of shown, reasoning is left out."""
        if max_messages < 1:
            return None
        items = _plain(self.session._items)
        shown = [_preview_item(item) for item in items[-max_messages:] if item.get("type") != "reasoning"]
        return RolloutSample(
            messages=shown,
            trajectory_messages=_chat_messages(shown),
            extra_fields={"_preview_truncated": len(items) > max_messages, "_preview_turn": len(_thoughts(items))},
        )


def _plain(items: Sequence[Any]) -> list[dict[str, Any]]:
    return [item.model_dump(exclude_unset=True) if hasattr(item, "model_dump") else dict(item) for item in items]


def _chat_messages(items: Sequence[Any]) -> list[dict[str, Any]] | None:
    """The items as chat messages, with reasoning as `reasoning_content`, which the SDK's converter leaves out."""
    try:
        chat = [dict(m) for m in Converter.items_to_messages(list(items), preserve_tool_output_all_content=True)]
    except Exception as error:  # an item of a kind that chat has no word for
        logger.warning("no trajectory: a session item cannot become a chat message (%s)", error)
        return None
    thoughts = _thoughts(_plain(items))
    answers = [message for message in chat if message["role"] == "assistant"]
    if len(answers) == len(thoughts):
        for answer, thought in zip(answers, thoughts, strict=True):
            if thought:
                answer["reasoning_content"] = thought
    return chat


def _thoughts(items: Sequence[Mapping[str, Any]]) -> list[str]:
    """The reasoning of each of the model's turns: its messages, calls and reasoning up to anything else."""
    turns: list[str] = []
    answering = False
    for item in items:
        of_model = item.get("role") == "assistant" or item.get("type") in ("function_call", "reasoning")
        if of_model and not answering:
            turns.append("")
        if item.get("type") == "reasoning":
            turns[-1] += "".join(part.get("text", "") for part in item.get("content") or item.get("summary") or ())
        answering = of_model
    return turns


def _preview_item(item: Mapping[str, Any]) -> dict[str, Any]:
    shown = copy.deepcopy(dict(item))
    for key in ("content", "output"):
        if isinstance(shown.get(key), list):
            text = "output_text" if shown.get("role") == "assistant" else "input_text"
            shown[key] = [_preview_part(part, text) for part in shown[key]]
    return shown


def _preview_part(part: Any, text_type: str) -> Any:
    media = _MEDIA.get(part.get("type", "")) if isinstance(part, Mapping) else None
    return part if media is None else {"type": text_type, "text": f"[{media}]"}
