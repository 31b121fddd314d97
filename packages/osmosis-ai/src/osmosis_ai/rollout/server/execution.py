"""Running admitted rollouts: from the request to the published result, and cancelling them.

Owns the execution tasks. Every path out of one publishes exactly one result, the first one stays.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from osmosis_ai.rollout.backend.artifacts import default_artifact_root
from osmosis_ai.rollout.backend.base import ExecutionBackend
from osmosis_ai.rollout.backend.containment import contain
from osmosis_ai.rollout.context import RolloutContext, RolloutProgress
from osmosis_ai.rollout.server.registry import RolloutRecord, RolloutRegistry, failure_body
from osmosis_ai.rollout.server.results import result_body
from osmosis_ai.rollout.types.execution import ExecutionOutcome, ExecutionRequest, ExecutionResult
from osmosis_ai.rollout.types.protocol import CancelDisposition, CancelRolloutsRequest, RolloutInitRequest
from osmosis_ai.rollout.types.status import RolloutErrorCategory, RolloutStatus
from osmosis_ai.rollout.utils.errors import category_of, message_of, traceback_tail

logger = logging.getLogger(__name__)

_FINAL_DISPOSITIONS = ("cancelled_queued", "cancelled_running")


class StatusListener(Protocol):
    """Hears every status of every rollout (the ownership log)."""

    def __call__(self, rollout_id: str, status: RolloutStatus, metadata: dict[str, Any] | None) -> None:
        """Must not block and must not raise."""
        ...


class RolloutExecutor:
    """Executes rollouts with a backend.

    Args:
        backend: What runs the agent and the grader.
        process_id: Identifies this server process to the rollouts.
        lease_timeout_s: See `RolloutRegistry`.
        retention_s: See `RolloutRegistry`.
        on_status: Hears every status.
        preview_path: Where a rollout's live previews go; None for none.
    """

    def __init__(
        self,
        backend: ExecutionBackend,
        *,
        process_id: str,
        lease_timeout_s: float,
        retention_s: float,
        on_status: StatusListener | None = None,
        preview_path: Callable[[str], Path | None] = lambda rollout_id: None,
    ) -> None:
        self.backend = backend
        self.registry = RolloutRegistry(
            lease_timeout_s=lease_timeout_s, retention_s=retention_s, on_lease_lost=self._lease_lost
        )
        self._process_id = process_id
        self._on_status = on_status
        self._preview_path = preview_path
        self._artifact_root = default_artifact_root()
        self._chores: set[asyncio.Task[None]] = set()

    def start(self, request: RolloutInitRequest) -> str:
        """Admit a rollout and start its execution; returns the lease token."""
        record, token = self.registry.admit(request.rollout_id)
        if self._on_status is not None:
            self._on_status(record.rollout_id, RolloutStatus.QUEUED, request.metadata)
        record.task = asyncio.create_task(self._execute(record, request), name=f"rollout-{request.rollout_id}")
        record.task.add_done_callback(lambda task: self._ended(record, request, task))
        return token

    async def cancel(self, request: CancelRolloutsRequest) -> dict[str, CancelDisposition]:
        """Cancel rollouts; the backend is asked first. Unknown and finished ones are `not_found`."""
        selected = list(request.ids or ())
        for rollout_id in (record.rollout_id for record in self.registry.executing()):
            if request.all or (request.prefix is not None and rollout_id.startswith(request.prefix)):
                selected.append(rollout_id)
        said = await self._ask_backend(request)
        dispositions: dict[str, CancelDisposition] = {}
        for rollout_id in dict.fromkeys([*selected, *said]):
            disposition = said.get(rollout_id)
            if disposition in _FINAL_DISPOSITIONS:
                dispositions[rollout_id] = disposition
                if (record := self.registry.find(rollout_id)) is not None:
                    record.cancel_requested = True
            elif disposition == "not_found" and self._backend_saw_it_end(rollout_id):
                dispositions[rollout_id] = "not_found"
            else:
                dispositions[rollout_id] = self._cancel_task(rollout_id)
        return dispositions

    async def drain(self, *, patience_s: float, cancel_wait_s: float, force_wait_s: float) -> None:
        """Let rollouts finish, then cancel them, then cancel them by force; each for so many seconds at most."""
        if await self._all_ended(patience_s):
            return
        logger.info("cancelling %d rollouts that are still running", len(self.registry.executing()))
        await self.cancel(CancelRolloutsRequest(all=True))
        if await self._all_ended(cancel_wait_s):
            return
        for record in self.registry.executing():
            assert record.task is not None
            record.task.cancel()
        if not await self._all_ended(force_wait_s):
            logger.warning("%d rollouts did not end", len(self.registry.executing()))

    async def _execute(self, record: RolloutRecord, request: RolloutInitRequest) -> None:
        def note(status: RolloutStatus) -> None:
            record.set_status(status)
            if self._on_status is not None:
                self._on_status(record.rollout_id, status, request.metadata)

        context = RolloutContext(
            chat_completions_url=request.chat_completions_url,
            api_key=request.llm_api_key,
            rollout_id=request.rollout_id,
            progress=RolloutProgress(on_status=note),
            process_id=self._process_id,
            preview_path=self._preview_path(request.rollout_id),
        )
        execution = ExecutionRequest.model_construct(  # the request has been validated by the same rules
            id=request.rollout_id,
            prompt=request.initial_messages,
            label=request.label,
            metadata=request.metadata,
            agent_timeout_sec=request.agent_timeout_sec,
            grader_timeout_sec=request.grader_timeout_sec,
            grade=request.grade,
        )
        try:
            with context:
                if context.preview_path is None:
                    outcome = await contain(self.backend.execute(execution), "the backend")
                else:
                    from osmosis_ai.rollout.preview import previewed

                    async with previewed(context, record, label=request.label):
                        outcome = await contain(self.backend.execute(execution), "the backend")
        except asyncio.CancelledError:
            status = RolloutStatus.CANCELLED
            self._publish(record, status, failure_body(record.rollout_id, status, "cancelled", None))
            raise
        except Exception as exc:
            logger.exception("rollout %s: the backend failed", record.rollout_id)
            outcome = _backend_failure(exc, request)
        record.settled = True
        await self._save_trajectory(outcome, request)
        self._publish(record, outcome.result.status, result_body(record.rollout_id, outcome))

    async def _save_trajectory(self, outcome: ExecutionOutcome, request: RolloutInitRequest) -> None:
        saved = outcome.result_to_save
        diagnostics = outcome.result.extra_fields or saved.extra_fields
        if (saved.sample is None or not saved.sample.trajectory_messages) and not diagnostics:
            return
        from osmosis_ai.rollout.trajectory.save import save_trajectory

        if saved.sample is not None and outcome.result.status is not RolloutStatus.SUCCESS:
            saved = saved.model_copy(update={"sample": saved.sample.model_copy(update={"reward": None})})
        # A thread, because the disk may be slow; the result is published only when the file is there.
        await asyncio.to_thread(
            save_trajectory,
            rollout_id=request.rollout_id,
            result=saved,
            request_label=request.label,
            request_metadata=request.metadata,
            request_extra_fields=request.extra_fields,
            artifact_root=self._artifact_root,
            diagnostics=diagnostics,
        )

    def _publish(self, record: RolloutRecord, status: RolloutStatus, body: bytes) -> None:
        if record.finish(status, body):
            self.registry.retain(record)

    def _ended(self, record: RolloutRecord, request: RolloutInitRequest, task: asyncio.Task[None]) -> None:
        """Whatever became of the task, there is a result afterwards and the id is free for the retention."""
        if task.cancelled():  # before it could run: nobody wrote a word yet
            status, body = RolloutStatus.CANCELLED, failure_body(record.rollout_id, RolloutStatus.CANCELLED, None, None)
            self._publish(record, status, body)
        elif (exc := task.exception()) is not None:
            logger.error("rollout %s: the task crashed", record.rollout_id, exc_info=exc)
            category = RolloutErrorCategory.INTERNAL_ERROR
            status = RolloutStatus.FAILURE
            body = failure_body(record.rollout_id, status, "rollout task crashed", category, "infrastructure")
            self._publish(record, status, body)
        self.registry.forget_execution(record)
        if self._on_status is not None:
            self._on_status(record.rollout_id, record.status, request.metadata)

    def _lease_lost(self, record: RolloutRecord) -> None:
        if record.settled:
            return
        category = RolloutErrorCategory.LEASE_EXPIRED
        body = failure_body(
            record.rollout_id, RolloutStatus.FAILURE, "polling lease expired", category, "infrastructure"
        )
        self._publish(record, RolloutStatus.FAILURE, body)
        chore = asyncio.create_task(self._cancel_quietly(record.rollout_id))
        self._chores.add(chore)
        chore.add_done_callback(self._chores.discard)

    async def _cancel_quietly(self, rollout_id: str) -> None:
        await self.cancel(CancelRolloutsRequest(ids=[rollout_id]))

    async def _ask_backend(self, request: CancelRolloutsRequest) -> dict[str, str]:
        try:
            said: Any = self.backend.cancel_rollouts(ids=request.ids, prefix=request.prefix, all=request.all)
            if inspect.isawaitable(said):
                said = await said
            return dict(said or {})
        except Exception:
            logger.exception("the backend cannot cancel; the server cancels its own tasks")
            return {}

    def _backend_saw_it_end(self, rollout_id: str) -> bool:
        try:
            known = self.backend.rollout_status(rollout_id)
        except Exception:
            logger.exception("the backend does not tell the status of rollout %s", rollout_id)
            return False
        status = (known or {}).get("status")
        return status in (RolloutStatus.SUCCESS, RolloutStatus.FAILURE, RolloutStatus.CANCELLED)

    def _cancel_task(self, rollout_id: str) -> CancelDisposition:
        record = self.registry.find(rollout_id)
        if record is None or record.settled or record.task is None or record.task.done():
            return "not_found"
        if not record.cancel_requested:
            record.cancel_requested = True
            record.task.cancel()
        return "cancelled_queued" if record.status is RolloutStatus.QUEUED else "cancelled_running"

    async def _all_ended(self, timeout_s: float) -> bool:
        tasks = [record.task for record in self.registry.executing() if record.task is not None]
        if not tasks:
            return True
        _, pending = await asyncio.wait(tasks, timeout=timeout_s)
        return not pending


def _backend_failure(exc: Exception, request: RolloutInitRequest) -> ExecutionOutcome:
    secrets = (request.llm_api_key,)
    text = message_of(exc, secrets=secrets) if str(exc).strip() else "Internal server error"
    result = ExecutionResult(
        status=RolloutStatus.FAILURE,
        err_message=text,
        err_category=category_of(exc),
        err_fault="infrastructure",
        err_traceback=traceback_tail(exc, secrets=secrets),
    )
    return ExecutionOutcome(workflow=result)
