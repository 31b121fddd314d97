"""How an agent framework reaches the rollout's policy: an OpenAI client bound to the active rollout context.

Owns the client, its connections and the sorting of model parameters. What the frameworks make of it is in `strands` and
`openai_agents`; what answers is the gateway's affair.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import httpx
import openai
from openai.resources.chat.completions import AsyncCompletions

from osmosis_ai.rollout.context import RolloutContext, get_rollout_context

DEFAULT_MODEL_NAME = "osmosis-rollout"
"""What requests call the model. The policy decides what answers; the name is only echoed."""

_RESERVED = frozenset({"api_base", "api_key", "base_url", "messages"})  # the rollout's own
_MODEL_NAMES = frozenset({"model", "model_id"})
_RETRY_NAMES = frozenset({"max_retries", "num_retries"})
# Switches of LiteLLM's own client, which never left the process: rollouts written for it may carry them.
_LITELLM_SWITCHES = frozenset(
    {"additional_drop_params", "allowed_openai_params", "caching", "custom_llm_provider", "drop_params"}
    | {"input_cost_per_token", "logger_fn", "modify_params", "output_cost_per_token", "use_litellm_proxy", "verbose"}
)
_TIMEOUT = httpx.Timeout(600, connect=10)
# Idle connections are dropped before any server or load balancer would drop them: nothing here retries.
_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=2)
_LOOPBACK: Mapping[str, None] = {f"all://{host}": None for host in ("127.0.0.1", "localhost", "[::1]")}


@dataclass(frozen=True)
class ModelParameters:
    """The keyword arguments of a placeholder model, sorted by where they go.

    Attributes:
        request: Parameters that the openai client knows (`temperature`, `max_tokens`, `timeout`, `extra_headers`, ...).
        extra_body: Everything else, sent as fields of the request's body (`top_k`, `min_p`, ...).
        model: The name requests carry.
        max_retries: Retries of the client; 0 by default, because the gateway retries.
    """

    request: dict[str, Any] = field(default_factory=dict)
    extra_body: dict[str, Any] = field(default_factory=dict)
    model: str = DEFAULT_MODEL_NAME
    max_retries: int = 0

    def as_request(self) -> dict[str, Any]:
        """All of it as keyword arguments of the client's `create`."""
        return {**self.request, "extra_body": dict(self.extra_body)} if self.extra_body else dict(self.request)


def sort_parameters(owner: str, arguments: Mapping[str, Any]) -> ModelParameters:
    """Sort keyword arguments of `owner` into known and unknown request parameters.

    Raises:
        TypeError: An argument belongs to the rollout (address, key, messages) or `extra_body` is no mapping.
    """
    reserved = sorted(_RESERVED & arguments.keys())
    if reserved:
        raise TypeError(
            f"{owner}({reserved[0]}=...): the rollout gives its model's address, key and messages; remove {reserved[0]}"
        )
    extra = arguments.get("extra_body") or {}
    if not isinstance(extra, Mapping):
        raise TypeError(f"{owner}(extra_body=...): must be a mapping of body fields, not {type(extra).__name__}")
    request: dict[str, Any] = {}
    unknown: dict[str, Any] = {}
    model, max_retries = DEFAULT_MODEL_NAME, 0
    for name, value in arguments.items():
        if name in _MODEL_NAMES:
            model = str(value)
        elif name in _RETRY_NAMES:
            max_retries = int(value or 0)
        elif name in _LITELLM_SWITCHES or name == "extra_body":
            continue
        elif name in known_parameters():
            request[name] = value
        else:
            unknown[name] = value
    return ModelParameters(request, {**unknown, **extra}, model, max_retries)


@cache
def known_parameters() -> frozenset[str]:
    """The names that the openai client's `chat.completions.create` takes."""
    return frozenset(inspect.signature(AsyncCompletions.create).parameters) - {"self"}


def require_context(owner: str) -> RolloutContext:
    """The active rollout.

    Raises:
        RuntimeError: There is none: the object was made at import time instead of inside `AgentWorkflow.run`.
    """
    context = get_rollout_context()
    if context is None:
        raise RuntimeError(
            f"{owner} needs a rollout: its model exists only while one runs. Create it inside AgentWorkflow.run(), "
            "not when the module is imported"
        )
    return context


def refuse_other_placeholder(owner: str, model: object, module: str) -> None:
    """Refuse the placeholder of the other framework: both have one name, so that one import hides the other.

    Raises:
        TypeError: The model is a placeholder that comes from another module than `module`.
    """
    found = type(model)
    if found.__name__ == "OsmosisRolloutModel" and found.__module__ != module:
        raise TypeError(f"{owner} got the placeholder of {found.__module__}: import OsmosisRolloutModel from {module}")


def open_client(context: RolloutContext, *, max_retries: int = 0) -> openai.AsyncOpenAI:
    """A client for the rollout's policy, over the connections of the running event loop."""
    return openai.AsyncOpenAI(
        base_url=context.chat_completions_url,
        api_key=context.api_key or "none",
        max_retries=max_retries,
        timeout=_TIMEOUT,
        http_client=_connections(),
    )


_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = WeakKeyDictionary()


def _connections() -> httpx.AsyncClient:
    """One connection pool an event loop: making one costs 20 ms of TLS set-up, so rollouts share it."""
    loop = asyncio.get_running_loop()
    pool = _pools.get(loop)
    if pool is None:
        pool = _pools[loop] = httpx.AsyncClient(
            timeout=_TIMEOUT, limits=_LIMITS, mounts=_LOOPBACK, follow_redirects=False
        )
    return pool
