"""The data of the walk: a work item that goes in, the verdict that comes out, and whose fault a failure is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

type ItemKey = tuple[int, int]
"""(row_index, run_index): position in the selection, attempt number from 0."""


class Outcome(StrEnum):
    """How a work item ended; the values are the words on disk and on the wire."""

    GRADED = "success"
    SKIPPED = "skipped"
    FAILED = "failed"


class Fault(StrEnum):
    """Whose side a failure is on."""

    AGENT = "agent"
    GRADER = "grader"
    INFRASTRUCTURE = "infrastructure"
    USER = "user"


@dataclass(frozen=True, slots=True)
class WorkItem:
    """One (row, attempt number) of a run that must end with one verdict."""

    row_index: int
    run_index: int
    source_row_index: int
    messages: Sequence[Mapping[str, Any]]
    label: str | None = None
    metadata: Mapping[str, Any] | None = None

    @property
    def key(self) -> ItemKey:
        """The journal's key."""
        return (self.row_index, self.run_index)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt failed.

    Attributes:
        fault: Whose side it is on, decided once where it was caught.
        code: The published error_type word: timeout, lease_expired, validation_error, http_error, agent_error,
            internal_error, rollout_protocol_error, or one of ours (policy_unavailable, server_died, ...).
        message: The error text, secrets redacted, whole lines.
        traceback_tail: The last frames of the traceback, when the server sent one.
    """

    fault: Fault
    code: str
    message: str = ""
    traceback_tail: str | None = None


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds of one attempt; None where the server did not say."""

    total_s: float
    queued_s: float | None = None
    agent_s: float | None = None
    grader_s: float | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The terminal record of a work item: one per key.

    Attributes:
        reward: Finite or absent; absent is never zero.
        tokens: Prompt plus completion tokens of all its calls, absent when no call was served or counted.
        cost_usd: Absent when any call's price is unknown.
        attempts: How many tries it took in this invocation, the last included.
    """

    row_index: int
    run_index: int
    rollout_id: str
    outcome: Outcome
    source_row_index: int | None = None
    reward: float | None = None
    failure: Failure | None = None
    tokens: int | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost_usd: float | None = None
    duration_ms: float | None = None
    timings: Timings | None = None
    attempts: int = 1
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def key(self) -> ItemKey:
        """The journal's key."""
        return (self.row_index, self.run_index)


@dataclass(frozen=True, slots=True)
class Attempt:
    """A try at a work item that did not end it (an infrastructure fault that is retried); kept in attempts.jsonl."""

    row_index: int
    run_index: int
    rollout_id: str
    number: int
    failure: Failure
    tokens: int | None = None
    cost_usd: float | None = None
    duration_ms: float | None = None
