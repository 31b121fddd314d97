"""LocalBackend: the agent and the grader run in this process, on this event loop."""

from __future__ import annotations

import asyncio
import copy
import importlib
import logging
import time
from operator import attrgetter
from pathlib import Path
from typing import Any

from osmosis_ai.rollout.agent_workflow import AgentWorkflow
from osmosis_ai.rollout.backend.artifacts import default_artifact_root, prepare_artifacts_dir
from osmosis_ai.rollout.backend.base import ExecutionBackend
from osmosis_ai.rollout.backend.containment import Bounded, run_bounded
from osmosis_ai.rollout.context import AgentWorkflowContext, GraderContext, RolloutContext, get_rollout_context
from osmosis_ai.rollout.grader import Grader
from osmosis_ai.rollout.types.config import AgentWorkflowConfig, GraderConfig
from osmosis_ai.rollout.types.execution import (
    ExecutionOutcome,
    ExecutionRequest,
    ExecutionResult,
    ExecutionTimings,
    RolloutFault,
)
from osmosis_ai.rollout.types.output import coerce_output
from osmosis_ai.rollout.types.sample import RolloutSample
from osmosis_ai.rollout.types.status import RolloutErrorCategory, RolloutStatus
from osmosis_ai.rollout.utils.errors import category_of, message_of, traceback_tail

logger = logging.getLogger(__name__)

DEFAULT_MAX_CONCURRENT = 4


class LocalBackend(ExecutionBackend):
    """Executes rollouts in this process. Never refuses one: what is over the limit queues.

    Args:
        workflow: The AgentWorkflow class, or `module:attribute`.
        workflow_config: Its configuration, or `module:attribute`. Without one 4 rollouts run at once; with one it is
            the configuration's `concurrency.max_concurrent`, where None is no limit.
        grader: The Grader class, or `module:attribute`.
        grader_config: Its configuration, or `module:attribute`.

    Raises:
        ValueError: A reference has no `:`.
        ImportError: A reference names no module, or nothing in it.
        TypeError: The workflow or the grader is not a class.
    """

    def __init__(
        self,
        *,
        workflow: type[AgentWorkflow[Any]] | str,
        workflow_config: AgentWorkflowConfig | str | None = None,
        grader: type[Grader] | str | None = None,
        grader_config: GraderConfig | str | None = None,
    ) -> None:
        self._workflow = _resolve_class(workflow, "workflow")
        self._workflow_config = _resolve(workflow_config)
        self._grader = None if grader is None else _resolve_class(grader, "grader")
        self._grader_config = _resolve(grader_config)
        self._artifact_root: Path = default_artifact_root()
        self._max_concurrent: int | None = DEFAULT_MAX_CONCURRENT
        if self._workflow_config is not None:
            self._max_concurrent = getattr(getattr(self._workflow_config, "concurrency", None), "max_concurrent", None)
        self._slots = None if self._max_concurrent is None else asyncio.Semaphore(self._max_concurrent)
        self._queued = 0
        self._running = 0

    def health(self) -> dict[str, Any]:
        """Status, the limit, and how many rollouts queue and run."""
        concurrency = {"max_concurrent": self._max_concurrent, "queued": self._queued, "running": self._running}
        return {"status": "ok", "concurrency": concurrency}

    async def execute(self, request: ExecutionRequest) -> ExecutionOutcome:
        """Wait for a slot, run the workflow, then the grader."""
        context = get_rollout_context()
        if context is None:  # called without a server: give integrations and samples a context all the same
            with RolloutContext(rollout_id=request.id) as context:
                return await self._execute(request, context)
        return await self._execute(request, context)

    async def _execute(self, request: ExecutionRequest, context: RolloutContext) -> ExecutionOutcome:
        arrived = time.monotonic()
        self._queued += 1
        try:
            if self._slots is not None:
                await self._slots.acquire()
        finally:
            self._queued -= 1
        self._running += 1
        try:
            return await self._run(request, context, queued_s=time.monotonic() - arrived)
        finally:
            self._running -= 1
            if self._slots is not None:
                self._slots.release()

    async def _run(self, request: ExecutionRequest, context: RolloutContext, *, queued_s: float) -> ExecutionOutcome:
        await context.set_status(RolloutStatus.RUNNING)
        artifacts_dir = await prepare_artifacts_dir(self._artifact_root, request.id)
        timings = ExecutionTimings(queued_s=queued_s)

        limit_s = request.agent_timeout_sec
        agent = await run_bounded(
            self._run_workflow(request, context, artifacts_dir),
            None if limit_s is None else max(0.0, limit_s - queued_s),
            who="the agent",
        )
        timings.agent_s = agent.elapsed_s
        if agent.timed_out or agent.error is not None:
            spent = f" ({queued_s:.1f}s of it spent queued)" if queued_s >= 0.1 else ""
            late = f"workflow exceeded its {limit_s:g}s deadline{spent}" if agent.timed_out else None
            return ExecutionOutcome(workflow=_failure(agent, late, "agent", context), timings=timings)
        sample = agent.value
        workflow_result = ExecutionResult(status=RolloutStatus.SUCCESS, sample=sample)
        if not request.grade:
            return ExecutionOutcome(workflow=workflow_result, timings=timings)
        if self._grader is None or (request.label is None and request.metadata is None):
            # The published answer: a failure without text. The log says why.
            missing = "no grader" if self._grader is None else "neither label nor metadata"
            logger.warning("rollout %s cannot be graded: there is %s", request.id, missing)
            ungradable = ExecutionResult(status=RolloutStatus.FAILURE, sample=sample, err_fault="grader")
            return ExecutionOutcome(workflow=workflow_result, grader=ungradable, timings=timings)

        await context.set_status(RolloutStatus.GRADING)
        limit_s = request.grader_timeout_sec
        grading = await run_bounded(self._grade(request, sample, artifacts_dir), limit_s, who="the grader")
        timings.grader_s = grading.elapsed_s
        if grading.timed_out or grading.error is not None:
            late = f"grader exceeded its {limit_s:g}s deadline" if grading.timed_out else None
            grader_result = _failure(grading, late, "grader", context)
            if sample is not None:
                sample.reward = None  # a grader that failed has not judged
                grader_result.sample = sample
        else:
            grader_result = ExecutionResult(status=RolloutStatus.SUCCESS, sample=grading.value)
        return ExecutionOutcome(workflow=workflow_result, grader=grader_result, timings=timings)

    async def _run_workflow(
        self, request: ExecutionRequest, context: RolloutContext, artifacts_dir: Path | None
    ) -> RolloutSample | None:
        config = copy.deepcopy(self._workflow_config)
        workflow = self._workflow(config)
        returned = await workflow.run(
            AgentWorkflowContext(
                prompt=request.prompt,
                config=config,
                metadata=copy.deepcopy(request.metadata),  # the grader's copy stays as the row has it
                artifacts_dir=artifacts_dir,
            )
        )
        output = coerce_output(returned)
        if output is None:
            return await context.get_sample()
        if output.messages is None:
            return None
        return RolloutSample(messages=output.messages, metrics=dict(output.metrics))

    async def _grade(
        self, request: ExecutionRequest, sample: RolloutSample | None, artifacts_dir: Path | None
    ) -> RolloutSample:
        assert self._grader is not None
        grading = GraderContext(
            label=request.label, sample=sample, metadata=request.metadata, artifacts_dir=artifacts_dir
        )
        await self._grader(self._grader_config).grade(grading)
        if grading.sample is None:
            raise ValueError("there is no sample after grading: the agent returned no messages and no sample source")
        if grading.sample.reward is None and not grading.sample.remove_sample:
            # Ungraded, which is not zero and not a failure; clients of the published version skip a removed sample.
            grading.sample.remove_sample = True
        return grading.sample


def _failure(ended: Bounded[Any], late: str | None, fault: RolloutFault, context: RolloutContext) -> ExecutionResult:
    if ended.error is None:
        return ExecutionResult(
            status=RolloutStatus.FAILURE,
            err_message=late,
            err_category=RolloutErrorCategory.TIMEOUT,
            err_fault=fault,
        )
    secrets = (context.api_key,)
    return ExecutionResult(
        status=RolloutStatus.FAILURE,
        err_message=message_of(ended.error, secrets=secrets),
        err_category=category_of(ended.error),
        err_fault=fault,
        err_traceback=traceback_tail(ended.error, secrets=secrets),
    )


def _resolve(reference: Any) -> Any:
    if not isinstance(reference, str):
        return reference
    module_name, separator, attribute = reference.partition(":")
    if not separator or not module_name or not attribute:
        raise ValueError(f"{reference!r} is no reference: write 'module:attribute'")
    module = importlib.import_module(module_name)
    try:
        return attrgetter(attribute)(module)
    except AttributeError as exc:
        raise ImportError(f"module {module_name!r} has no attribute {attribute!r}", name=module_name) from exc


def _resolve_class(reference: Any, what: str) -> Any:
    resolved = _resolve(reference)
    if not isinstance(resolved, type):
        raise TypeError(f"{what} must be a class or 'module:Class', not {type(resolved).__name__}")
    return resolved
