"""Values that come with a run: sealed, opened under its lease only, gone with its end, in no line that it writes."""

from datetime import timedelta

import job_kinds
import pytest
import sqlalchemy as sa
from osmosis_platform.db.repositories.leases import LeaseRepository
from osmosis_platform.db.tables.jobs import jobs
from osmosis_platform.db.tables.secrets import run_secrets
from osmosis_platform.domain.job import JobStatus, Verdict
from osmosis_platform.errors import InvalidRequestError, TakenError
from osmosis_platform.events.log import read_page
from osmosis_platform.jobs import handler, sweep
from osmosis_platform.jobs.handler import JobContext, LeaseLostError, ended
from osmosis_platform.jobs.queue import enqueue, request_cancel
from osmosis_platform.jobs.worker import Worker
from osmosis_platform.secrets.provided import ORPHANS_KEPT, forget_run, keep_for_run, read_for_run
from osmosis_platform.secrets.vault import MasterKeyError

RUN = "run_1"
VALUES = {"KEY": "hunter2-of-run", "PEM": "ü\n"}


@pytest.fixture(autouse=True)
def kinds():
    before = dict(handler.KINDS)
    job_kinds.install()
    yield
    handler.KINDS.clear()
    handler.KINDS.update(before)


@pytest.fixture
def submit(ada, services):
    """Puts a run with values into the queue, as a submit does: both in one transaction."""

    def submit(run_id=RUN, values=VALUES, kind="test.echo"):
        with services.database.write() as work:
            keep_for_run(services.vault, work, ada.workspace_id, run_id, values)
            return enqueue(work, ada.workspace_id, kind, {}, subject_id=run_id)

    return submit


@pytest.fixture
def claim(services):
    def claim(owner="worker"):
        with services.database.write() as work:
            return LeaseRepository(work).claim(("cpu",), owner, lease_s=60, limit=1)[0]

    return claim


def kept(services):
    with services.database.read() as work:
        return sorted(set(work.execute(sa.select(run_secrets.c.run_id)).scalars()))


def settle(services, job, status):
    with services.database.write() as work:
        assert LeaseRepository(work).settle(job.id, job.epoch, Verdict(status, 0, 0))
        after = LeaseRepository(work).get(job.id)
        if status != JobStatus.QUEUED:
            ended(work, after)


def test_the_worker_that_holds_the_lease_reads_them(services, submit, claim):
    submit()
    job = claim()
    with services.database.write() as work:
        assert read_for_run(services.vault, work, job) == VALUES


def test_nobody_else_does(services, submit, claim):
    submit()
    job = claim()
    settle(services, job, JobStatus.QUEUED)
    later = claim("another")
    assert later.epoch > job.epoch
    with services.database.write() as work:
        with pytest.raises(TakenError) as caught:
            read_for_run(services.vault, work, job)
        assert caught.value.error_code == "LEASE_LOST"
        assert read_for_run(services.vault, work, later) == VALUES
    with pytest.raises(LeaseLostError):
        JobContext(services, job).provided_secrets()


def test_a_worker_reads_those_of_its_run_only(services, submit, claim):
    submit("run_other", {"KEY": "another value"})
    first = claim()
    submit()
    second = claim()
    with services.database.write() as work:
        assert read_for_run(services.vault, work, first) == {"KEY": "another value"}
        assert read_for_run(services.vault, work, second) == VALUES


@pytest.mark.parametrize("status", [JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELLED])
def test_they_are_gone_in_the_transaction_that_ends_the_run(services, submit, claim, status):
    submit()
    submit("run_other")
    settle(services, claim(), status)
    assert kept(services) == ["run_other"]


def test_a_try_that_is_to_be_repeated_keeps_them(services, submit, claim):
    submit()
    settle(services, claim(), JobStatus.QUEUED)
    assert kept(services) == [RUN]


def test_a_run_that_is_cancelled_before_it_starts_leaves_none(ada, services, submit):
    job_id = submit()
    with services.database.write() as work:
        request_cancel(work, ada.workspace_id, job_id)
    assert kept(services) == []


def test_the_sweep_removes_what_no_open_run_is_for(ada, services, submit, claim):
    submit("run_open")
    job = claim()
    with services.database.write() as work:
        keep_for_run(services.vault, work, ada.workspace_id, "run_never_queued", VALUES)
        keep_for_run(services.vault, work, ada.workspace_id, "run_ended", VALUES)
        enqueue(work, ada.workspace_id, "test.echo", {}, subject_id="run_ended")
        work.execute(jobs.update().where(jobs.c.subject_id == "run_ended").values(status="failed"))
    context = JobContext(services, job)
    assert sweep.run(context)["run_values"] == 0
    start = services.database.clock()
    services.database.clock = lambda: start + ORPHANS_KEPT + timedelta(seconds=1)
    assert sweep.run(context)["run_values"] == 4
    assert kept(services) == ["run_open"]


def test_a_bad_value_keeps_none_of_them(ada, services):
    for provided in ({"A": "fine", "b": "v"}, {"A": "fine", "B": "a\0b"}, {"A": "fine", "PATH": "/tmp"}):
        with pytest.raises(InvalidRequestError), services.database.write() as work:
            keep_for_run(services.vault, work, ada.workspace_id, RUN, provided)
    assert kept(services) == []


def test_another_workspace_removes_nothing(ada, services, submit):
    submit()
    with services.database.write() as work:
        assert forget_run(work, "ws_other", RUN) == 0
        assert forget_run(work, ada.workspace_id, RUN) == len(VALUES)


def test_they_open_for_no_other_run(services, submit, claim):
    submit()
    job = claim()
    with services.database.write() as work:
        work.execute(run_secrets.update().values(run_id="run_2"))
        work.execute(jobs.update().values(subject_id="run_2"))
        with pytest.raises(MasterKeyError):
            read_for_run(services.vault, work, LeaseRepository(work).get(job.id))


def leak(context):
    """Says the values in every way that a handler can."""
    value = context.provided_secrets()["KEY"]
    context.log("info", value, f"the key is {value}", {"key": value})
    context.event("run.said", {"key": value})
    context.progress({"key": value})
    if context.job.payload.get("fails"):
        raise RuntimeError(f"{value} is refused")
    return {"key": value}


@pytest.mark.parametrize("fails", [False, True])
def test_a_handler_that_says_them_leaves_no_trace(ada, services, submit, monkeypatch, tmp_path, fails):
    monkeypatch.setitem(handler.KINDS, "test.leak", f"{__name__}:leak")
    monkeypatch.setattr(handler, "_imported", lambda _place: leak)
    with services.database.write() as work:
        keep_for_run(services.vault, work, ada.workspace_id, RUN, VALUES)
        job_id = enqueue(work, ada.workspace_id, "test.leak", {"fails": fails}, subject_id=RUN, max_failures=1)
    stop = handler.threading.Event()
    worker = Worker(services, slots=1, lease_s=5.0, poll_s=0.02, drain_s=1.0, schedule={})
    thread = handler.threading.Thread(target=worker.run, args=(stop,))
    thread.start()
    try:
        for _ in range(1000):
            with services.database.read() as work:
                job = LeaseRepository(work).get(job_id)
            if job.finished_at is not None:
                break
            handler.time.sleep(0.02)
    finally:
        stop.set()
        thread.join(20)
    assert job.status == (JobStatus.FAILED if fails else JobStatus.FINISHED)
    line = read_page(services, ada.workspace_id, RUN, cursor=None, limit=5, direction="older").lines[0]
    assert line.message == "the key is [REDACTED]"
    assert kept(services) == []
    services.database.close()
    stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"hunter2" not in stored
