"""Whose fault a rollout's end is, and what follows: the table of eval-run.md 5.1 and its seed decisions."""

import pytest
from osmosis_ai.evaluation.judgement import judge, refused
from osmosis_ai.evaluation.verdict import Fault, Outcome, WorkItem
from osmosis_ai.gateway.policy import PolicyError
from osmosis_ai.gateway.record import CallError, CallRecord, SessionRecord
from osmosis_ai.rollout.types import RolloutResultResponse, RolloutStatus

ITEM = WorkItem(0, 0, 0, ({"role": "user", "content": "hi"},), label="x")
NO_CALLS = SessionRecord("r")


def calls(*kinds: str | None, cancelled: bool = False, retries: int = 0) -> SessionRecord:
    made = []
    for index, kind in enumerate(kinds):
        error = CallError.of(PolicyError(f"it was {kind}", kind=kind)) if kind else None
        last = index == len(kinds) - 1
        answer = None if kind or (cancelled and index == len(kinds) - 1) else {"message": {}}
        made.append(
            CallRecord(index, "t", 0.1, response=answer, error=error, cancelled=cancelled and last, retries=retries)
        )
    return SessionRecord("r", tuple(made))


def end(
    status: str,
    *,
    session: SessionRecord = NO_CALLS,
    item: WorkItem = ITEM,
    last: RolloutStatus = RolloutStatus.RUNNING,
    cancelling: bool = False,
    **fields,
):
    if "reward" in fields or "remove_sample" in fields:
        sample = {"reward": fields.pop("reward", None), "remove_sample": fields.pop("remove_sample", False)}
        fields["sample"] = sample
    result = RolloutResultResponse.model_validate({"rollout_id": "r", "status": status, **fields})
    return judge(item, result, session, last_status=last, cancelling=cancelling)


@pytest.mark.parametrize("reward", [0.0, 1.0, -3.5])
def test_a_reward_grades(reward):
    judgement = end("success", reward=reward)
    assert (judgement.outcome, judgement.reward) == (Outcome.GRADED, reward)


@pytest.mark.parametrize(
    "fields", [{"reward": None}, {"remove_sample": True}, {"reward": 1.0, "remove_sample": True}, {}]
)
def test_no_reward_is_skipped_and_never_zero(fields):
    judgement = end("success", **fields)
    assert (judgement.outcome, judgement.reward, judgement.failure) == (Outcome.SKIPPED, None, None)


@pytest.mark.parametrize("fault", ["agent", "grader", "infrastructure"])
def test_the_servers_word_on_the_fault_stands(fault):
    judgement = end("failure", err_fault=fault, err_category="agent_error", err_message="m", err_traceback="tb")
    assert judgement.outcome is Outcome.FAILED and judgement.failure.fault == fault
    assert judgement.retry is (fault == "infrastructure") and judgement.failure.traceback_tail == "tb"


@pytest.mark.parametrize(
    ("last", "fault"), [("running", Fault.AGENT), ("queued", Fault.AGENT), ("grading", Fault.GRADER)]
)
def test_a_published_server_tells_it_by_its_last_status(last, fault):
    judgement = end("failure", err_category="validation_error", err_message="m", last=RolloutStatus(last))
    assert judgement.failure.fault is fault and judgement.failure.code == "validation_error"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"err_category": "timeout", "err_message": "late"}, "timeout"),
        ({"err_message": "late"}, "late"),
        ({}, "rollout_failed"),
    ],
)
def test_the_code_is_the_published_word(fields, code):
    assert end("failure", **fields).failure.code == code


def test_a_lapsed_lease_is_tried_again():
    judgement = end("failure", err_category="lease_expired", err_message="polling lease expired")
    assert judgement.failure.fault is Fault.INFRASTRUCTURE and judgement.retry


@pytest.mark.parametrize("kind", ["rate_limit", "unavailable", "timeout", "protocol"])
def test_a_failure_after_a_transient_policy_error_is_nobodys_and_tried_again(kind):
    judgement = end(
        "failure", session=calls(None, kind), err_category="agent_error", err_message="502 from the gateway"
    )
    assert judgement.failure.fault is Fault.INFRASTRUCTURE and judgement.failure.code == f"policy_{kind}"
    assert judgement.failure.message == f"it was {kind}" and judgement.retry


def test_an_error_that_the_agent_got_over_does_not_excuse_it():
    judgement = end("failure", session=calls("unavailable", None), err_category="agent_error", err_message="bug")
    assert judgement.failure.fault is Fault.AGENT and not judgement.retry


def test_an_agent_that_ran_out_of_time_while_the_policy_was_down_is_excused():
    judgement = end("failure", session=calls(None, cancelled=True, retries=3), err_category="timeout")
    assert judgement.failure.fault is Fault.INFRASTRUCTURE and judgement.retry
    judgement = end("failure", session=calls(None, cancelled=True), err_category="timeout")
    assert judgement.failure.fault is Fault.AGENT


def test_a_bad_request_is_the_agents_doing():
    judgement = end("failure", session=calls("bad_request"), err_category="agent_error", err_message="400")
    assert judgement.failure.fault is Fault.AGENT and not judgement.retry
    assert judgement.failure.message.startswith("its last model call was refused (bad_request): ")
    assert judgement.failure.message.endswith("\n400")


@pytest.mark.parametrize("kind", ["authentication", "quota", "not_found"])
@pytest.mark.parametrize("status", ["failure", "success"])
def test_a_policy_that_is_gone_for_good_halts_whatever_the_agent_made_of_it(kind, status):
    fields = {"reward": 0.0} if status == "success" else {}
    judgement = end(status, session=calls(kind), **fields)
    assert judgement.outcome is None and judgement.halt and judgement.failure.code == f"policy_{kind}"


def test_a_fatal_error_that_a_later_answer_disproves_halts_nothing():
    assert end("success", session=calls("not_found", None), reward=1.0).outcome is Outcome.GRADED


def test_a_failed_grader_is_not_excused_by_the_policy():
    judgement = end("failure", session=calls("unavailable"), err_fault="grader", err_message="m")
    assert judgement.failure.fault is Fault.GRADER


def test_a_cancellation_we_asked_for_ends_nothing():
    judgement = end("cancelled", cancelling=True)
    assert judgement.outcome is None and judgement.failure is None
    judgement = end("cancelled")
    assert judgement.retry and judgement.failure.code == "cancelled_by_server"


def test_a_row_that_cannot_be_graded_says_so():
    judgement = end("failure", item=WorkItem(0, 0, 0, ({"role": "user", "content": "hi"},)))
    assert judgement.failure.fault is Fault.USER and "ground_truth" in judgement.failure.message


@pytest.mark.parametrize(("status", "retry"), [(400, False), (409, False), (422, False), (500, True), (503, True)])
def test_a_refused_rollout(status, retry):
    judgement = refused(status, "m")
    assert judgement.retry is retry
    assert judgement.failure.code == ("server_error" if retry else "rollout_protocol_error")
