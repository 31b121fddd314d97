"""What is kept of each rollout beside its verdict: rollout_trials/<id>/calls.jsonl, and its trajectory.

Runs on one thread of its own, in the order of the walk: copying artifacts and waiting for disks must not stop the event
loop. Nothing here is the truth; what cannot be written is logged and the run goes on.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from osmosis_ai.rollout.trajectory.atif import format_trajectory, load_trajectory
from osmosis_ai.rollout.trajectory.converter import trajectory_document
from osmosis_ai.rollout.trajectory.report import LlmCallMetrics, SampleReport, apply_report
from osmosis_ai.rollout.types import RolloutSample

if TYPE_CHECKING:
    from osmosis_ai.evaluation.projection import Projection
    from osmosis_ai.evaluation.verdict import Verdict, WorkItem
    from osmosis_ai.gateway.record import SessionRecord
    from osmosis_ai.rollout.types import RolloutResultResponse

CALLS = "calls.jsonl"


class TrialFiles:
    """The `Keeper` of a run directory.

    Args:
        root: `<run>/rollout_trials`.
        projection: Told of each verdict after the trial's own files are written.
        warn: Takes a line for logs.txt.
    """

    def __init__(self, root: Path, projection: Projection, warn: Callable[[str], None]) -> None:
        self._root = root
        self._projection = projection
        self._warn = warn
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="trials")

    async def rollout_ended(
        self, item: WorkItem, rollout_id: str, calls: SessionRecord, result: RolloutResultResponse | None
    ) -> None:
        """Write the calls, and complete or make the trajectory."""
        if calls.calls:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._thread, self._write, item, rollout_id, calls)

    def verdict_recorded(self, verdict: Verdict) -> None:
        """Have the derived files follow; does not wait for them."""
        self._thread.submit(self._project, verdict)

    async def close(self) -> None:
        """Wait until everything is written."""
        await asyncio.get_running_loop().run_in_executor(None, self._thread.shutdown)

    def _project(self, verdict: Verdict) -> None:
        try:
            self._projection.verdict(verdict)
            self._projection.refresh()
        except Exception as error:
            self._warn(f"the derived files of row {verdict.row_index} are behind: {type(error).__name__}: {error}")

    def _write(self, item: WorkItem, rollout_id: str, calls: SessionRecord) -> None:
        folder = self._root / rollout_id
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lines = [json.dumps(line, ensure_ascii=False, separators=(",", ":")) for line in call_lines(calls)]
            text = "\n".join([*lines, ""])
            (folder / CALLS).write_bytes(text.encode("utf-8", "backslashreplace"))
            document = load_trajectory(folder / "trajectory.json") or trajectory_of_calls(item, calls)
            if document is None:
                return
            document = apply_report(document, _report(calls))
            temporary = folder / ".trajectory.json.calls.tmp"
            temporary.write_bytes(format_trajectory(document).encode())
            temporary.replace(folder / "trajectory.json")
        except Exception as error:
            self._warn(f"the calls of rollout {rollout_id} are not kept: {type(error).__name__}: {error}")


def call_lines(calls: SessionRecord) -> Iterator[dict[str, Any]]:
    """The lines of calls.jsonl: each call's record, its messages only once.

    `request.messages_before` says how many of the previous call's messages come first; a long conversation is stored
    in its length, not its square.
    """
    before: Sequence[Any] = ()
    for call in calls.calls:
        line = call.to_json()
        if call.request is not None:
            messages = call.request.messages
            same = 0
            for now, then in zip(messages, before, strict=False):
                if now is not then:
                    break
                same += 1
            if same:
                line["request"] |= {"messages_before": same, "messages": list(messages[same:])}
            before = messages
        yield line


def trajectory_of_calls(item: WorkItem, calls: SessionRecord) -> dict[str, Any] | None:
    """The trajectory of a rollout that left none (its agent failed), as far as its chat calls show it."""
    last = next((call for call in reversed(calls.calls) if call.request is not None), None)
    if last is None or last.request is None:
        return None
    messages = [dict(message) for message in last.request.messages]
    if last.response is not None:
        messages.append(dict(last.response["message"]))
    if not messages:
        return None
    sample = RolloutSample(messages=[], trajectory_messages=messages, label=item.label)
    return trajectory_document(
        sample,
        rollout_id=calls.rollout_id,
        request_label=item.label,
        request_metadata=item.metadata,
        request_extra_fields={"row_index": item.row_index, "run_index": item.run_index},
    )


def _report(calls: SessionRecord) -> SampleReport:
    answered = [call for call in calls.calls if call.response is not None]
    metrics = [
        LlmCallMetrics.model_construct(
            prompt_tokens=call.usage.prompt_tokens if call.usage else None,
            completion_tokens=call.usage.completion_tokens if call.usage else None,
            cached_tokens=call.usage.cached_prompt_tokens if call.usage else None,
            cost_usd=call.cost_usd,
        )
        for call in answered
    ]
    model = answered[-1].response.get("model") if answered and answered[-1].response else None
    return SampleReport.model_construct(model_name=model, llm_call_metrics=metrics)
