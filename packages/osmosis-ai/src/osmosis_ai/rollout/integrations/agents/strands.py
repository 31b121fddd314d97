"""Strands: an Agent whose model is the rollout's policy and whose messages are the rollout's sample.

Owns the placeholder model, the agent and its sample source. Connections are `policy_client`'s, the agent loop Strands'.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NoReturn

from osmosis_ai.extras import optional_imports
from osmosis_ai.rollout.context import RolloutContext, SampleSource
from osmosis_ai.rollout.types.sample import RolloutSample

with optional_imports("strands"):
    from strands import Agent
    from strands.models.model import Model
    from strands.models.openai import OpenAIModel

    from osmosis_ai.rollout.integrations.agents.policy_client import (
        open_client,
        refuse_other_placeholder,
        require_context,
        sort_parameters,
    )

__all__ = ["OsmosisRolloutModel", "OsmosisStrandsAgent"]

logger = logging.getLogger(__name__)

_MODEL_CONFIG = frozenset({"cache_config", "context_window_limit", "stream"})  # Strands' own, not request parameters
_MEDIA = ("image", "document", "video", "audio")


class OsmosisRolloutModel(Model):
    """Stands for "the policy of this rollout" until an `OsmosisStrandsAgent` is made.

    Takes request parameters by name (`temperature=0.7`, `max_tokens=512`, `top_k=20`) or in `params={...}`, as Strands'
    models do; `client_args` may hold `timeout` and `max_retries`. Parameters that the openai client does not know go
    into the request's body. The model name is a label: the policy decides what answers.
    """

    def __init__(
        self, *, params: Mapping[str, Any] | None = None, client_args: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> None:
        self.kwargs = {**(client_args or {}), **kwargs, **(params or {})}

    def resolve(self, context: RolloutContext) -> OpenAIModel:
        """The model that talks to the rollout's policy."""
        rest = {name: value for name, value in self.kwargs.items() if name not in _MODEL_CONFIG}
        known = _MODEL_CONFIG & OpenAIModel.OpenAIConfig.__annotations__.keys()  # older versions lack some
        config = {name: self.kwargs[name] for name in known & self.kwargs.keys()}
        parameters = sort_parameters(type(self).__name__, rest)
        model = _PolicyModel(model_id=parameters.model, params=parameters.as_request(), **config)
        model.bind(context, parameters.max_retries)
        return model

    def update_config(self, **model_config: Any) -> None:
        """Add request parameters."""
        self.kwargs.update(model_config)

    def get_config(self) -> dict[str, Any]:
        """The parameters as given."""
        return self.kwargs

    def stream(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse: only an `OsmosisStrandsAgent` can use the placeholder."""
        raise NotImplementedError("OsmosisRolloutModel is a placeholder: give it to OsmosisStrandsAgent inside run()")

    def structured_output(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse: only an `OsmosisStrandsAgent` can use the placeholder."""
        self.stream()


class _PolicyModel(OpenAIModel):
    """Strands' OpenAI model over the rollout's connections."""

    def bind(self, context: RolloutContext, max_retries: int) -> None:
        """Set where requests go."""
        self._context = context
        self._max_retries = max_retries

    @asynccontextmanager
    async def _get_client(self) -> AsyncGenerator[Any]:
        # Asked for each request: a synchronous agent call runs in a thread with a loop, hence a pool, of its own.
        yield open_client(self._context, max_retries=self._max_retries)

    @classmethod
    def format_request_messages(cls, messages: Any, *args: Any, **kwargs: Any) -> list[dict[str, Any]]:
        """As Strands formats them, less the reasoning: the gateway knows it and puts it back where it belongs."""
        shown: list[Any] = [_without_reasoning(message) for message in messages]
        return super().format_request_messages(shown, *args, **kwargs)

    def format_request(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """As Strands makes it, less an empty list of tools, which providers refuse."""
        request = super().format_request(*args, **kwargs)
        if not request.get("tools"):
            request.pop("tools", None)
        return request


class OsmosisStrandsAgent(Agent):
    """A Strands Agent for use inside `AgentWorkflow.run`.

    With the placeholder model it talks to the rollout's policy and registers itself as the rollout's sample source.
    Messages may be chat messages with plain text contents, such as `ctx.prompt`. Other arguments are Strands' own, but
    Strands does not retry by itself unless it is given a `retry_strategy`: the gateway has retried already.

    Raises:
        RuntimeError: The placeholder is given and no rollout runs.
        ValueError: The rollout has a sample source already.
    """

    def __init__(
        self, *args: Any, messages: Sequence[Mapping[str, Any]] | None = None, model: Any = None, **kwargs: Any
    ) -> None:
        given: dict[str, Any] = {"model": model, "messages": messages}
        for name, value in zip(given, args, strict=False):  # Strands takes these two by position
            if given[name] is not None:
                raise TypeError(f"OsmosisStrandsAgent() got {name} twice, by position and by name")
            given[name] = value
        context = None
        if isinstance(given["model"], OsmosisRolloutModel):
            context = require_context("OsmosisStrandsAgent")
            given["model"] = given["model"].resolve(context)
            kwargs.setdefault("retry_strategy", None)
        else:
            refuse_other_placeholder("OsmosisStrandsAgent", given["model"], __name__)
        blocks: Any = None if given["messages"] is None else [_with_blocks(message) for message in given["messages"]]
        super().__init__(given["model"], blocks, *args[2:], **kwargs)
        if context is not None:
            context.set_sample_source(StrandsAgentSampleSource(self))


class StrandsAgentSampleSource(SampleSource):
    """The messages of one agent, in Strands' format, and as chat messages for the trajectory."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    async def get_sample(self) -> RolloutSample:
        """The agent's messages as they stand."""
        messages = list(self.agent.messages)
        return RolloutSample(messages=messages, trajectory_messages=self._chat_messages(messages))

    async def get_preview(self, max_messages: int) -> RolloutSample | None:
        """A copy of the last messages; media are named instead of shown, reasoning is left out."""
        if max_messages < 1:
            return None
        messages: list[Any] = list(self.agent.messages)
        shown = [{**m, "content": _preview_blocks(m["content"])} for m in messages[-max_messages:]]
        return RolloutSample(
            messages=shown,
            trajectory_messages=self._chat_messages(shown),
            extra_fields={
                "_preview_truncated": len(messages) > max_messages,
                "_preview_turn": sum(message["role"] == "assistant" for message in messages),
            },
        )

    def _chat_messages(self, messages: Sequence[Any]) -> list[dict[str, Any]] | None:
        try:
            return [*_system_messages(self.agent), *chat_messages(messages)]
        except Exception as error:  # a content block of a kind that chat has no word for
            logger.warning("no trajectory: a Strands message cannot become a chat message (%s)", error)
            return None


def chat_messages(messages: Sequence[Any]) -> list[dict[str, Any]]:
    """Strands messages as OpenAI chat messages, with reasoning as `reasoning_content`."""
    chat: list[dict[str, Any]] = []
    for message in messages:
        formatted = _PolicyModel.format_request_messages([message])
        reasoning = _reasoning(message["content"])
        if reasoning:
            if not formatted:
                formatted = [{"role": message["role"], "content": ""}]
            formatted[-1]["reasoning_content"] = reasoning
        chat.extend(formatted)
    return chat


def _system_messages(agent: Agent) -> list[dict[str, Any]]:
    prompt = agent.system_prompt
    return [{"role": "system", "content": prompt}] if isinstance(prompt, str) and prompt else []


def _with_blocks(message: Mapping[str, Any]) -> dict[str, Any]:
    content = message.get("content")
    return {**message, "content": [{"text": content}]} if isinstance(content, str) else dict(message)


def _without_reasoning(message: Mapping[str, Any]) -> Mapping[str, Any]:
    if not any("reasoningContent" in block for block in message["content"]):
        return message
    return {**message, "content": [block for block in message["content"] if "reasoningContent" not in block]}


def _reasoning(content: Sequence[Mapping[str, Any]]) -> str:
    blocks = (block.get("reasoningContent", {}).get("reasoningText", {}) for block in content)
    return "".join(block.get("text", "") for block in blocks)


def _preview_blocks(content: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = []
    for block in content:
        media = next((kind for kind in _MEDIA if kind in block), None)
        if media is not None:
            shown.append({"text": f"[{media}]"})
        elif "toolResult" in block:
            result = block["toolResult"]
            shown.append({"toolResult": {**copy.copy(result), "content": _preview_blocks(result.get("content", []))}})
        elif "reasoningContent" not in block:
            shown.append(copy.deepcopy(dict(block)))
    return shown
