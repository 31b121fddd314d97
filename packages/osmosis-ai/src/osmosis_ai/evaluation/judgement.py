"""How a rollout ended, judged once: its outcome, and for a failure whose fault it is and whether to try again.

Pure functions from what the rollout server answered and what the gateway recorded to a `Judgement` (eval-run.md 5.1).
The runner acts on it and never looks at texts again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from osmosis_ai.evaluation.verdict import Failure, Fault, Outcome, WorkItem
from osmosis_ai.rollout.types import RolloutResultResponse, RolloutStatus

if TYPE_CHECKING:
    from osmosis_ai.gateway.record import CallError, SessionRecord


@dataclass(frozen=True, slots=True)
class Judgement:
    """The end of one try.

    Attributes:
        outcome: How the item ends with it, or None when the try ends nothing.
        reward: Of a graded outcome.
        failure: Why it failed, or ended nothing; None also for a try that was cancelled on request.
        retry: Whether the item may be tried again; without a retry left it fails.
        halt: Why no later item can succeed either; the item then stays pending.
    """

    outcome: Outcome | None
    reward: float | None = None
    failure: Failure | None = None
    retry: bool = False
    halt: str | None = None


def judge(
    item: WorkItem,
    result: RolloutResultResponse,
    calls: SessionRecord,
    *,
    last_status: RolloutStatus,
    cancelling: bool,
) -> Judgement:
    """Judge a rollout that the server answered for.

    Args:
        item: What was tried.
        result: The server's terminal answer.
        calls: What the gateway recorded.
        last_status: The status of the last answer before the terminal one.
        cancelling: Whether we asked for the cancellation.
    """
    if (fatal := _fatal_end(calls)) is not None:
        # Whatever the agent made of it: without the policy its reward says nothing.
        failure = policy_failure(fatal)
        return Judgement(None, failure=failure, halt=failure.message)
    match result.status:
        case RolloutStatus.SUCCESS:
            sample = result.sample
            if sample is None or sample.remove_sample or sample.reward is None:
                return Judgement(Outcome.SKIPPED)
            return Judgement(Outcome.GRADED, reward=sample.reward)
        case RolloutStatus.FAILURE:
            return _judge_failure(item, result, calls, last_status)
        case RolloutStatus.CANCELLED if cancelling:
            return Judgement(None)
    message = f"the rollout server answered {result.status} although nobody cancelled the rollout"
    return infrastructure("cancelled_by_server", message)


def _judge_failure(
    item: WorkItem, result: RolloutResultResponse, calls: SessionRecord, last_status: RolloutStatus
) -> Judgement:
    category = str(result.err_category) if result.err_category else None
    text = _telling(result)
    fault = _fault(result, category, last_status)
    if fault is not Fault.GRADER and (failure := _policy_trouble(calls)) is not None:
        return Judgement(Outcome.FAILED, failure=failure, retry=True)
    if fault is Fault.AGENT and not text and category is None and item.label is None and item.metadata is None:
        text = "the row has neither ground_truth nor metadata, so the grader did not run"
        fault = Fault.USER
    code = category or text or "rollout_failed"
    if fault is Fault.USER:
        code = "rollout_failed"
    text = text or "the rollout failed and its server said no more"
    last = calls.calls[-1].error if calls.calls else None
    if fault is Fault.AGENT and last is not None and last.message not in text:
        # an HTTP client's error names the status and not what the model's provider objected to
        text = f"its last model call was refused ({last.kind}): {last.message}\n{text}"
    failure = Failure(fault, code, text, result.err_traceback)
    return Judgement(Outcome.FAILED, failure=failure, retry=fault is Fault.INFRASTRUCTURE)


def _telling(result: RolloutResultResponse) -> str:
    """The error text; a bare quoted word (of a KeyError) says nothing, so it gets the exception's name before it."""
    text = (result.err_message or "").strip()
    last = (result.err_traceback or "").rstrip().rpartition("\n")[2]
    return last if text[:1] in ("'", '"') and last.endswith(f": {text}") else text


def _fault(result: RolloutResultResponse, category: str | None, last_status: RolloutStatus) -> Fault:
    if result.err_fault is not None:
        return Fault(result.err_fault)
    if category in ("lease_expired", "internal_error"):
        return Fault.INFRASTRUCTURE
    return Fault.GRADER if last_status is RolloutStatus.GRADING else Fault.AGENT


def _fatal_end(calls: SessionRecord) -> CallError | None:
    """The error after which no call of the rollout was answered and none of the run's can be."""
    for call in reversed(calls.calls):
        if call.error is not None and call.error.fatal:
            return call.error
        if call.response is not None:
            return None
    return None


def _policy_trouble(calls: SessionRecord) -> Failure | None:
    """The failure when the rollout's last call got no answer through no doing of the agent's."""
    last = calls.calls[-1] if calls.calls else None
    if last is None:
        return None
    if last.error is not None and last.error.transient:
        return policy_failure(last.error)
    if last.cancelled and last.retries:
        message = f"the rollout ended while the policy was asked again ({last.retries} times)"
        return Failure(Fault.INFRASTRUCTURE, "policy_unavailable", message)
    return None


def policy_failure(error: CallError) -> Failure:
    """The failure of a rollout whose policy did not answer."""
    return Failure(Fault.INFRASTRUCTURE, f"policy_{error.kind}", error.message)


def infrastructure(code: str, message: str) -> Judgement:
    """A try that ended without the agent's or the grader's doing: again, while tries are left."""
    return Judgement(Outcome.FAILED, failure=Failure(Fault.INFRASTRUCTURE, code, message), retry=True)


def refused(status_code: int | None, message: str) -> Judgement:
    """The server refused the rollout: again for a server's 5xx or its silence, never for a 4xx."""
    if status_code is not None and 400 <= status_code < 500 and status_code != 429:
        return Judgement(
            Outcome.FAILED, failure=Failure(Fault.INFRASTRUCTURE, "rollout_protocol_error", message), retry=False
        )
    return infrastructure("server_error", message)


def broken(message: str, traceback_tail: str) -> Judgement:
    """The runner itself failed at this item."""
    return Judgement(Outcome.FAILED, failure=Failure(Fault.INFRASTRUCTURE, "runner_error", message, traceback_tail))


@dataclass(frozen=True, slots=True)
class Loss:
    """How a rollout server was lost.

    Attributes:
        why: In words.
        hung: It no longer answered, and was ended for it.
        killed: A signal that nobody here sent ended it (the kernel out of memory, a person).
        alone: At most one rollout was on it.
        where: The traceback of a blocked server's main thread.
    """

    why: str
    hung: bool = False
    killed: bool = False
    alone: bool = False
    where: str | None = None


def judge_loss(loss: Loss, *, repeated: bool, agent_timeout_s: float | None) -> Judgement:
    """Judge a try whose server was lost under it.

    Args:
        loss: How.
        repeated: Whether this is the item's last try and earlier ones ended so too.
        agent_timeout_s: The agent's limit, for the text.
    """
    if not loss.hung:
        if loss.alone and repeated and not loss.killed:
            failure = Failure(Fault.AGENT, "server_died", f"{loss.why}, each time this item ran")
            return Judgement(Outcome.FAILED, failure=failure)
        return infrastructure("server_died", loss.why)
    if not loss.alone:
        return infrastructure("server_blocked", loss.why)
    past = f": {loss.why}" if agent_timeout_s is None else f" past its limit of {agent_timeout_s:g} s"
    message = f"it blocked the event loop of the rollout server{past}"
    return Judgement(Outcome.FAILED, failure=Failure(Fault.AGENT, "timeout", message, loss.where))
