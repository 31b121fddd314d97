"""The data of a walk: its bounds, the switch that stops it, what it came to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from osmosis_ai.errors import OsmosisError

DEFAULT_DEADLINE_S = 3600.0
DEADLINE_MARGIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of a walk.

    Attributes:
        concurrency: Rollouts at once; None takes the server's capacity.
        agent_timeout_s: Of the agent, enforced by the server.
        grader_timeout_s: Of the grader, enforced by the server.
        tries: Tries at an item, the first included, before an infrastructure fault counts as its end.
        failures_in_a_row: Items that may use up their tries one after the other before dispatch halts.
        max_cost_usd: Dispatch stops once the calls of this walk cost so much.
        retry_delay_s: Before the second try; four times as long before each further one.
    """

    concurrency: int | None = None
    agent_timeout_s: float | None = None
    grader_timeout_s: float | None = None
    tries: int = 3
    failures_in_a_row: int = 10
    max_cost_usd: float | None = None
    retry_delay_s: float = 0.5

    @property
    def deadline_s(self) -> float:
        """How long one try may take from its admission."""
        if self.agent_timeout_s is None or self.grader_timeout_s is None:
            return DEFAULT_DEADLINE_S
        return self.agent_timeout_s + self.grader_timeout_s + DEADLINE_MARGIN_S

    def in_flight(self, capacity: int | None) -> int:
        """How many rollouts to have in flight on a server of this capacity."""
        if self.concurrency is None:
            return capacity or 1
        return min(self.concurrency, capacity) if capacity else self.concurrency


class Stop(IntEnum):
    """How urgently the user wants the walk to end; it only rises."""

    NO = 0
    DRAIN = 1
    NOW = 2


class StopSwitch:
    """What the signal handlers turn and the walk obeys."""

    def __init__(self) -> None:
        self.level = Stop.NO
        self._listeners: list[Callable[[], None]] = []

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever the level rises."""
        self._listeners.append(listener)

    def rise(self) -> Stop:
        """One step more urgent."""
        self.level = Stop(min(self.level + 1, Stop.NOW))
        for listener in self._listeners:
            listener()
        return self.level


class Interrupted(OsmosisError):
    """The user asked twice to stop; nothing in flight was waited for."""

    code = "INTERRUPTED"


@dataclass(slots=True)
class RunOutcome:
    """What a walk did.

    Attributes:
        dispatched: Items that were begun.
        recorded: Verdicts that were recorded.
        cancelled: Items that were begun and left pending.
        duration_ms: Of the walk; whoever runs it fills it in.
        halt_reason: Why dispatch stopped before the items ran out, in words; None when it did not.
        halt_code: `interrupted`, `max_cost`, a failure code such as `policy_authentication`, or `storage`.
        error: Set when the halt is an error of the run itself (journal, dataset, pool, a fault of ours).
        spent_usd: What the calls cost whose price is known.
    """

    dispatched: int = 0
    recorded: int = 0
    cancelled: int = 0
    duration_ms: float = 0.0
    halt_reason: str | None = None
    halt_code: str | None = None
    error: BaseException | None = None
    spent_usd: float = 0.0
