"""The lines of events.jsonl (a verdict as the published package reads it, our own keys on top), and what memory keeps.

Writing and forcing them to the disk is `journal`'s; here is only what a line says.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from osmosis_ai.errors import ValidationError
from osmosis_ai.evaluation.jsontext import encode_json
from osmosis_ai.evaluation.verdict import Failure, Fault, ItemKey, Outcome, Timings, Verdict

events_name = "events.jsonl"
attempts_name = "attempts.jsonl"
index_name = "index.jsonl"
_kept_message_chars = 300

# Whose side a failure of a published record is on; anything else is the agent's.
_published_faults = {
    "rollout_protocol_error": Fault.INFRASTRUCTURE,
    "lease_expired": Fault.INFRASTRUCTURE,
    "http_error": Fault.INFRASTRUCTURE,
    "internal_error": Fault.INFRASTRUCTURE,
}


@dataclass(frozen=True, slots=True)
class Entry:
    """What is kept in memory of a recorded verdict; the whole of it is in the journal.

    Attributes:
        failure: Without the traceback, the message cut to 300 characters; equal failures are one object.
        resumed: Whether an earlier invocation recorded it.
    """

    row_index: int
    run_index: int
    rollout_id: str
    outcome: Outcome
    source_row_index: int | None = None
    reward: float | None = None
    tokens: int | None = None
    cost_usd: float | None = None
    duration_ms: float | None = None
    failure: Failure | None = None
    resumed: bool = False

    @property
    def key(self) -> ItemKey:
        """The journal's key."""
        return (self.row_index, self.run_index)

    @property
    def error_type(self) -> str | None:
        """The published word for why it failed."""
        return self.failure.code if self.failure else None


def verdict_line(verdict: Verdict) -> bytes:
    """The line of events.jsonl for a verdict: the published keys and ours, sorted, no spaces."""
    failure = verdict.failure
    record: dict[str, Any] = {
        "row_index": verdict.row_index,
        "run_index": verdict.run_index,
        "rollout_id": verdict.rollout_id,
        "status": verdict.outcome.value,
        "source_row_index": verdict.source_row_index,
        "reward": verdict.reward,
        "tokens": verdict.tokens,
        "duration_ms": verdict.duration_ms if verdict.duration_ms is not None else 0,
        "error_type": failure.code if failure else None,
        "prompt_tokens": verdict.prompt_tokens,
        "completion_tokens": verdict.completion_tokens,
        "cost_usd": verdict.cost_usd,
        "attempts": verdict.attempts,
        "metrics": dict(verdict.metrics) or None,
    }
    if failure is not None:
        error = {"fault": failure.fault.value, "message": failure.message, "traceback_tail": failure.traceback_tail}
        record["error"] = {key: value for key, value in error.items() if value is not None}
    if verdict.timings is not None:
        record["timings"] = {key: value for key, value in asdict(verdict.timings).items() if value is not None}
    return json_line({key: value for key, value in record.items() if value is not None})


def read_events(path: Path) -> Iterator[tuple[int, Verdict]]:
    """Stream the verdicts of an events.jsonl with their line numbers; a last line without its newline is left out.

    Raises:
        ValidationError: A complete line is no verdict.
        OSError: The file cannot be read.
    """
    with path.open("rb", buffering=1 << 20) as stream:
        for number, line in enumerate(stream, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                yield number, parse_verdict(json.loads(line))
            except (ValueError, TypeError, RecursionError, OverflowError) as error:
                raise ValidationError(
                    f"{path}, line {number}: not the record of a work item ({error}). The file was changed or damaged: "
                    "remove that line to run its item again, or start over with --fresh.",
                    details={"file": str(path), "line": number},
                ) from error


def parse_verdict(record: Any) -> Verdict:
    """Read a parsed line; unknown keys are ignored.

    Raises:
        ValueError: A required key is missing or a value has the wrong type.
    """
    if not isinstance(record, dict):
        raise ValueError("it is no JSON object")
    rollout_id = record.get("rollout_id")
    if not isinstance(rollout_id, str) or not rollout_id or rollout_id in (".", "..") or "/" in rollout_id:
        raise ValueError("rollout_id is no path segment")
    try:
        outcome = Outcome(record.get("status"))
    except ValueError:
        raise ValueError(f"status is {record.get('status')!r}") from None
    metrics = record.get("metrics")
    timings = record.get("timings")
    return Verdict(
        row_index=_integer(record, "row_index", required=True) or 0,
        run_index=_integer(record, "run_index", required=True) or 0,
        rollout_id=rollout_id,
        outcome=outcome,
        source_row_index=_integer(record, "source_row_index"),
        reward=_number(record, "reward"),
        failure=_failure(record) if outcome is Outcome.FAILED else None,
        tokens=_integer(record, "tokens"),
        prompt_tokens=_integer(record, "prompt_tokens"),
        completion_tokens=_integer(record, "completion_tokens"),
        cost_usd=_number(record, "cost_usd"),
        duration_ms=_number(record, "duration_ms"),
        timings=_timings(timings) if isinstance(timings, dict) else None,
        attempts=_integer(record, "attempts") or 1,
        metrics={name: value for name in metrics if (value := _number(metrics, name)) is not None}
        if isinstance(metrics, dict)
        else {},
    )


def entry_of(verdict: Verdict, *, resumed: bool, failures: dict[Failure, Failure]) -> Entry:
    """What memory keeps of a verdict; `failures` gathers equal failures into one object."""
    failure = verdict.failure
    if failure is not None:
        brief = Failure(failure.fault, failure.code, failure.message[:_kept_message_chars])
        failure = failures.setdefault(brief, brief)
    return Entry(
        verdict.row_index,
        verdict.run_index,
        verdict.rollout_id,
        verdict.outcome,
        verdict.source_row_index,
        verdict.reward,
        verdict.tokens,
        verdict.cost_usd,
        verdict.duration_ms,
        failure,
        resumed,
    )


def _failure(record: Mapping[str, Any]) -> Failure:
    code = record.get("error_type")
    error = record.get("error")
    facts = error if isinstance(error, dict) else {}
    fault = facts.get("fault")
    tail = facts.get("traceback_tail")
    return Failure(
        # A published record does not say whose side the failure is on; its one unmistakable word is the timeout's.
        Fault(fault)
        if fault in set(Fault)
        else Fault.INFRASTRUCTURE
        if code == "rollout_protocol_error"
        else Fault.AGENT,
        code if isinstance(code, str) and code else "unknown",
        str(facts.get("message", "")),
        tail if isinstance(tail, str) else None,
    )


def _timings(record: Mapping[str, Any]) -> Timings:
    return Timings(
        _number(record, "total_s") or 0.0,
        _number(record, "queued_s"),
        _number(record, "agent_s"),
        _number(record, "grader_s"),
    )


def _integer(record: Mapping[str, Any], key: str, *, required: bool = False) -> int | None:
    value = record.get(key)
    if value is None and not required:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{key} is {value!r}")
    return value


def _number(record: Mapping[str, Any], key: str) -> float | None:
    value = record.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{key} is {value!r}")
    return value


def json_line(record: Mapping[str, Any]) -> bytes:
    """A journal line: sorted keys, no spaces, non-ASCII kept, NaN refused."""
    text = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return encode_json(text) + b"\n"
