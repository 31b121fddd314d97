"""The record of every chat call of a rollout: request, response, usage, cost, timing, error. Pure data.

Trajectories, costs and training data are made from it. Message lists are held by reference, and messages that a call
shares with the call before are one object, so a session of n turns keeps n turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from osmosis_ai.gateway.chat_face import usage_json
from osmosis_ai.gateway.policy import ChatRequest, PolicyError, PolicyErrorKind, TokenSpan, Usage


@dataclass(frozen=True, slots=True)
class CallError:
    """Why a call failed, as the caller was told."""

    kind: PolicyErrorKind
    status: int
    type: str | None
    code: str | None
    message: str
    fatal: bool
    transient: bool

    @classmethod
    def of(cls, error: PolicyError) -> CallError:
        """The record of a policy's error."""
        return cls(
            kind=error.kind,
            status=error.status,
            type=error.type,
            code=error.provider_code,
            message=str(error),
            fatal=error.fatal,
            transient=error.transient,
        )

    def to_json(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "kind": self.kind,
            "status": self.status,
            "type": self.type,
            "code": self.code,
            "message": self.message,
            "fatal": self.fatal,
            "transient": self.transient,
        }


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One chat call.

    Attributes:
        index: Position among the rollout's calls, in the order they began.
        started_at: UTC time, ISO 8601.
        duration_s: From the parsed request to the end of the answer, waits and retries included.
        first_token_s: From the parsed request to the first piece of the answer; None when none came.
        request: What the policy got; None when the request was refused before it could be read.
        response: `{"message", "finish_reason", "model"}`, or None without a whole answer.
        usage: Token counts as the provider reported them; None when it did not.
        cost_usd: None when the price is unknown; never a guess.
        error: What the caller was told, or None.
        cancelled: The caller hung up or the rollout was closed first.
        retries: How many times the policy was asked again.
        route: `chat` or `responses`.
        tokens: Exact tokens, from an engine only.
    """

    index: int
    started_at: str
    duration_s: float
    first_token_s: float | None = None
    request: ChatRequest | None = None
    response: Mapping[str, Any] | None = None
    usage: Usage | None = None
    cost_usd: float | None = None
    error: CallError | None = None
    cancelled: bool = False
    retries: int = 0
    route: str = "chat"
    tokens: TokenSpan | None = None

    def to_json(self) -> dict[str, Any]:
        """One line of `calls.jsonl`."""
        request = self.request
        span = self.tokens
        return {
            "index": self.index,
            "route": self.route,
            "started_at": self.started_at,
            "duration_s": round(self.duration_s, 6),
            "first_token_s": None if self.first_token_s is None else round(self.first_token_s, 6),
            "request": None
            if request is None
            else {
                "messages": list(request.messages),
                "tools": None if request.tools is None else list(request.tools),
                "params": dict(request.params),
            },
            "response": None if self.response is None else dict(self.response),
            "usage": usage_json(self.usage),
            "cost_usd": self.cost_usd,
            "error": None if self.error is None else self.error.to_json(),
            "cancelled": self.cancelled,
            "retries": self.retries,
            "tokens": None
            if span is None
            else {
                "prompt_ids": list(span.prompt_ids),
                "ids": list(span.ids),
                "logprobs": list(span.logprobs),
                "version": span.version,
            },
        }


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """All calls of one rollout, in the order they began."""

    rollout_id: str
    calls: tuple[CallRecord, ...] = ()

    @property
    def prompt_tokens(self) -> int | None:
        """Sum over the calls that were counted; None when none was."""
        return _total(call.usage.prompt_tokens for call in self.calls if call.usage is not None)

    @property
    def completion_tokens(self) -> int | None:
        """Sum over the calls that were counted; None when none was."""
        return _total(call.usage.completion_tokens for call in self.calls if call.usage is not None)

    @property
    def tokens(self) -> int | None:
        """Prompt and completion tokens together; None when no call was counted."""
        return _total(call.usage.total_tokens for call in self.calls if call.usage is not None)

    @property
    def cost_usd(self) -> float | None:
        """What the answered calls cost; None when the price of any is unknown or nothing was answered."""
        costs = [c.cost_usd for c in self.calls if c.usage is not None or c.response is not None]
        known = [cost for cost in costs if cost is not None]
        return sum(known) if known and len(known) == len(costs) else None

    @property
    def last_error(self) -> CallError | None:
        """The error of the last call that has one."""
        return next((call.error for call in reversed(self.calls) if call.error is not None), None)


def share_messages(
    messages: Sequence[Mapping[str, Any]], before: Sequence[Mapping[str, Any]]
) -> Sequence[Mapping[str, Any]]:
    """The same messages, with those equal to their predecessors in `before` replaced by these very objects."""
    shared = list(messages)
    for number, (now, then) in enumerate(zip(messages, before, strict=False)):
        if now != then:
            break
        shared[number] = then
    return shared


def _total(counts: Iterable[int]) -> int | None:
    values = list(counts)
    return sum(values) if values else None
