"""The seam between the gateway and whatever answers a chat call.

Owns: the request a policy gets, the deltas it gives, the errors it may raise. A policy knows no HTTP server and no
rollout; the gateway knows no provider. Implementations: `gateway.provider` (OpenAI-compatible endpoints, LiteLLM) and
`osmosis_trainer` (our own engine, which also returns token ids and log-probabilities).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from osmosis_ai.errors import OsmosisError


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One chat call after the gateway's request rules.

    Attributes:
        messages: OpenAI chat messages, verbatim (broken tool-call arguments are kept as they came).
        tools: OpenAI tool schemas, or None when the caller sent none or an empty list.
        params: Every other field of the call (temperature, max_tokens, ...), `extra_body` merged in. Never holds
            `model`, `messages`, `tools`, `stream`, `stream_options` or `n`.
        rollout_id: Whose call it is; an engine keeps its session state under it.
        stream: Whether the caller reads piece by piece; when not, a policy may answer in one piece.
        item: What the rollout is a try at, by a name that is the same in every run; an engine keys its noise by it, so
            that a run can be repeated. Empty where nothing is known but the rollout's id.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    rollout_id: str = ""
    stream: bool = True
    item: str = ""


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one call. A provider that reports none gives no Usage; it is never zeroes."""

    prompt_tokens: int
    completion_tokens: int
    cached_prompt_tokens: int | None = None
    reasoning_tokens: int | None = None

    @property
    def total_tokens(self) -> int:
        """Prompt and completion tokens together."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True)
class TokenSpan:
    """Exact tokens of an engine's answer: `ids` and their log-probabilities under the sampled distribution."""

    prompt_ids: tuple[int, ...]
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    version: str


@dataclass(frozen=True, slots=True)
class ChatDelta:
    """One piece of an answer. The last piece carries `finish_reason`; usage, cost and tokens come with or after it.

    Attributes:
        delta: An OpenAI `choices[0].delta`: any of role, content, reasoning_content, refusal, and tool_calls as
            `[{"index", "id", "type", "function": {"name", "arguments"}}]` fragments.
        finish_reason: stop, length, tool_calls or content_filter, on the last piece only.
        usage: Token counts of the whole call.
        cost_usd: What the provider said the call cost; None leaves the price table to decide.
        tokens: Exact tokens, from an engine only.
    """

    delta: Mapping[str, Any] = field(default_factory=dict)
    finish_reason: str | None = None
    usage: Usage | None = None
    cost_usd: float | None = None
    tokens: TokenSpan | None = None


type PolicyErrorKind = Literal[
    "authentication",  # the key is missing, wrong or not allowed: no later call can succeed
    "quota",  # the account is out of money or budget: no later call can succeed
    "not_found",  # no such model: no later call can succeed
    "bad_request",  # this request is wrong (400, 422, context too long): the agent's doing
    "rate_limit",  # 429: wait and try again
    "unavailable",  # cannot connect, 5xx, cut stream
    "timeout",  # no answer in time
    "protocol",  # an answer that is not the protocol: HTML, no choices, broken JSON
]


class PolicyError(OsmosisError):
    """The policy could not answer.

    Args:
        message: One line, secrets removed.
        kind: What failed; decides fault, retry and whether the run halts.
        status: HTTP status for the agent's client: the provider's own 4xx, else 502.
        type: The provider's error type, when it names one.
        provider_code: The provider's error code, when it names one.
        retry_after_s: Seconds the provider asked to wait.
    """

    code = "POLICY_ERROR"

    def __init__(
        self,
        message: str = "",
        *,
        kind: PolicyErrorKind = "unavailable",
        status: int = 502,
        type: str | None = None,
        provider_code: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.kind: PolicyErrorKind = kind
        self.status = status
        self.type = type
        self.provider_code = provider_code
        self.retry_after_s = retry_after_s

    @property
    def fatal(self) -> bool:
        """Whether no later call of the run can succeed either."""
        return self.kind in ("authentication", "quota", "not_found")

    @property
    def transient(self) -> bool:
        """Whether the same call may succeed later."""
        return self.kind in ("rate_limit", "unavailable", "timeout", "protocol")


@runtime_checkable
class Policy(Protocol):
    """Whatever answers an agent's chat calls."""

    @property
    def model(self) -> str:
        """The configured model name, as the run's config gives it."""
        ...

    async def preflight(self) -> None:
        """Check cheaply that calls can succeed.

        Raises:
            PolicyError: It cannot reach, authenticate to or find the model.
        """
        ...

    def chat(self, request: ChatRequest) -> AsyncIterator[ChatDelta]:
        """Answer one call, piece by piece; closing the iterator cancels the call.

        Raises:
            PolicyError: While iterating, when no (whole) answer can be had.
        """
        ...

    async def close_session(self, rollout_id: str) -> None:
        """Forget whatever is kept between the calls of a rollout."""
        ...

    async def aclose(self) -> None:
        """Release connections and threads."""
        ...
