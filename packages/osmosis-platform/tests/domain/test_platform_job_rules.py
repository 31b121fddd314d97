"""The rules of jobs without a database: turns, limits, backoff, lost leases, poison."""

from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st
from osmosis_platform.domain.job import (
    CRASHED,
    Failure,
    JobStatus,
    Limits,
    after_failure,
    after_lost_lease,
    backoff_s,
    is_lost,
    next_turn,
)

NOW = datetime(2026, 11, 30, tzinfo=UTC)
OUTAGE = Failure("UNAVAILABLE", "The store does not answer.", retryable=True)
BAD_INPUT = Failure("DATASET_INVALID", "Column x is missing.", "user")


def failed(failure, **changes):
    facts = {"failures": 0, "crashes": 0, "max_failures": 3, "cancel_requested": False, "jitter": 0.5}
    return after_failure(failure, **facts | changes)


def lost(**changes):
    facts = {"failures": 0, "crashes": 0, "max_crashes": 3, "cancel_requested": False, "jitter": 0.5, "shared": False}
    return after_lost_lease("dataset.process", **facts | changes)


def test_a_failure_that_may_pass_is_tried_three_times_in_all():
    assert [failed(OUTAGE, failures=count).status for count in (0, 1, 2)] == ["queued", "queued", "failed"]


def test_a_failure_that_cannot_pass_is_final_at_once():
    verdict = failed(BAD_INPUT)
    assert (verdict.status, verdict.failure) == (JobStatus.FAILED, BAD_INPUT)


def test_backoff_doubles_to_five_minutes_and_half_of_it_is_chance():
    assert [backoff_s(tries, 1.0) for tries in (1, 2, 3, 9, 1000)] == [2, 4, 8, 300, 300]
    assert backoff_s(2, 0.0) == 2


def test_the_third_lost_lease_makes_a_poison():
    assert [lost(crashes=count).status for count in (0, 1, 2)] == ["queued", "queued", "failed"]
    assert lost(crashes=2).failure.code == CRASHED


def test_a_lease_that_was_lost_beside_others_counts_against_nobody():
    verdict = lost(crashes=2, shared=True)
    assert (verdict.status, verdict.crashes, verdict.delay_s) == (JobStatus.QUEUED, 2, 0.0)


def test_a_cancelled_job_is_not_tried_again():
    assert failed(OUTAGE, cancel_requested=True).status == "cancelled"
    assert lost(cancel_requested=True).status == "cancelled"


def test_a_lease_is_lost_after_its_time_or_after_silence_whatever_the_clock_says():
    def judge(until_s, unchanged_s):
        return is_lost(lease_until=NOW + timedelta(seconds=until_s), lease_s=15.0, now=NOW, unchanged_s=unchanged_s)

    assert not judge(10, 5)
    assert judge(-1, 8)
    assert not judge(-3600, 4), "the clock went forward: a holder that still beats keeps its lease"
    assert judge(3600, 15), "the clock went back: silence counts all the same"


workspaces, kinds = st.sampled_from(["ws_a", "ws_b", "ws_c"]), st.sampled_from(["dataset.process", "repository.sync"])


@settings(derandomize=True, max_examples=200)
@given(
    waiting=st.sets(st.tuples(workspaces, kinds)),
    running=st.dictionaries(st.tuples(workspaces, kinds), st.integers(0, 4)),
    limits=st.dictionaries(st.tuples(workspaces | st.just("*"), kinds | st.just("*")), st.integers(0, 5), max_size=4),
    turns=st.dictionaries(workspaces, st.integers(0, 9)),
)
def test_the_next_turn_is_a_workspace_that_waits_within_its_limits_and_runs_least(waiting, running, limits, turns):
    chosen = next_turn(waiting, running, Limits(limits), turns)
    may = {pair for pair in waiting if Limits(limits).allow(*pair, running)}
    if chosen is None:
        assert not may
        return
    workspace, allowed = chosen
    assert {(workspace, kind) for kind in allowed} == {pair for pair in may if pair[0] == workspace}

    def busy(owner):
        return sum(count for (of, _), count in running.items() if of == owner)

    assert all((busy(workspace), turns.get(workspace, 0)) <= (busy(o), turns.get(o, 0)) for o, _ in may)


def test_a_row_of_a_workspace_stands_before_the_row_of_all():
    limits = Limits({("*", "dataset.process"): 1, ("ws_a", "dataset.process"): 2, ("*", "*"): 3})
    assert limits.allow("ws_a", "dataset.process", {("ws_a", "dataset.process"): 1})
    assert not limits.allow("ws_b", "dataset.process", {("ws_b", "dataset.process"): 1})
    assert not limits.allow("ws_b", "dataset.process", {("ws_b", "repository.sync"): 3})
    assert limits.allow("ws_b", "dataset.process", {("ws_a", "dataset.process"): 9})
