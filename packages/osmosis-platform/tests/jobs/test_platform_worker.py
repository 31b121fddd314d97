"""Workers in this process: outcomes of handlers, cancels, drains, periods; nothing a handler does ends its worker."""

import threading
import time
from contextlib import contextmanager

import pytest
from osmosis_platform.db.repositories.jobs import JobRepository
from osmosis_platform.db.repositories.leases import LeaseRepository
from osmosis_platform.domain.job import PLATFORM
from osmosis_platform.errors import UnavailableError
from osmosis_platform.jobs import handler
from osmosis_platform.jobs.handler import JobContext, LeaseLostError
from osmosis_platform.jobs.queue import enqueue, request_cancel
from osmosis_platform.jobs.schedule import Periodic, enqueue_due
from osmosis_platform.jobs.worker import Worker


def put(services, kind, payload=None, **options):
    with services.database.write() as work:
        return enqueue(work, PLATFORM, kind, payload or {}, **options)


def get(services, job_id):
    with services.database.read() as work:
        return JobRepository(work).get(PLATFORM, job_id)


def cancel(services, job_id):
    with services.database.write() as work:
        request_cancel(work, PLATFORM, job_id)


def until(condition, seconds=15.0):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
    return found


@contextmanager
def working(services, **options):
    stop = threading.Event()
    facts = {"slots": 2, "lease_s": 1.0, "poll_s": 0.05, "drain_s": 1.0, "schedule": {}} | options
    thread = threading.Thread(target=Worker(services, **facts).run, args=(stop,))
    thread.start()
    try:
        yield stop
    finally:
        stop.set()
        thread.join(20)
        assert not thread.is_alive()


def end_of(services, job_id):
    return until(lambda: (job := get(services, job_id)).finished_at is not None and job)


def test_a_result_is_kept(services):
    with working(services):
        job = end_of(services, put(services, "test.echo", {"x": 1}))
    assert (job.status, job.result, job.owner) == ("finished", {"x": 1}, None)


def test_a_failure_that_may_pass_is_tried_again_later(services, monkeypatch):
    monkeypatch.setattr("osmosis_platform.domain.job._FIRST_BACKOFF_S", 0.1)
    with working(services):
        passes = end_of(services, put(services, "test.fail", {"retryable": True, "succeed_at": 2}))
        fails = end_of(services, put(services, "test.fail", {"retryable": True}))
        at_once = end_of(services, put(services, "test.fail", {"retryable": False}))
    assert (passes.status, passes.failures, passes.epoch) == ("finished", 2, 3)
    assert (fails.status, fails.failures, fails.error.code, fails.error.fault) == ("failed", 3, "TEST_FAILED", "user")
    assert (at_once.status, at_once.failures, at_once.epoch) == ("failed", 1, 1)


def test_no_error_of_a_handler_ends_its_worker(services):
    with working(services):
        broken = end_of(services, put(services, "test.exit", max_failures=1))
        handler.KINDS["test.absent"] = "no_such_module:run"
        absent = end_of(services, put(services, "test.absent", max_failures=1))
        handler.KINDS["test.gone"] = "x:y"
        gone = put(services, "test.gone", max_failures=1)
        del handler.KINDS["test.gone"]
        gone = end_of(services, gone)
        fine = end_of(services, put(services, "test.echo"))
    assert [job.error.code for job in (broken, absent, gone)] == ["INTERNAL", "INTERNAL", "KIND_UNKNOWN"]
    assert fine.status == "finished"


def test_a_running_job_sees_its_cancel_within_a_heartbeat(services):
    with working(services):
        job_id = put(services, "test.wait")
        until(lambda: get(services, job_id).status == "running")
        cancel(services, job_id)
        started = time.monotonic()
        job = end_of(services, job_id)
    assert job.status == "cancelled"
    assert time.monotonic() - started < 1.5
    cancel(services, job_id)


def test_a_stop_lets_jobs_end_and_gives_the_others_back(services):
    with working(services):
        short = put(services, "test.steps", {"count": 3, "pause_s": 0.1, "file": "/dev/null"})
        long = put(services, "test.wait")
        until(lambda: get(services, long).status == get(services, short).status == "running")
    assert get(services, short).status == "finished"
    job = get(services, long)
    assert (job.status, job.crashes, job.failures, job.owner) == ("queued", 0, 0, None)
    with services.database.read() as work:
        assert LeaseRepository(work).leases() == []


def test_a_stop_does_not_wait_for_a_handler_that_listens_to_nobody(services):
    with working(services):
        job_id = put(services, "test.stubborn")
        until(lambda: get(services, job_id).status == "running")
        started = time.monotonic()
    assert time.monotonic() - started < 5
    assert get(services, job_id).status == "queued"


def test_writes_of_a_lost_lease_are_refused_and_leave_nothing(services):
    job_id = put(services, "test.echo")
    with services.database.write() as work:
        leases = LeaseRepository(work)
        [old] = leases.claim(["cpu"], "old", lease_s=15, limit=1)
        leases.release(old.id, old.epoch)
        [new] = leases.claim(["cpu"], "new", lease_s=15, limit=1)
    context = JobContext(services, old)
    with pytest.raises(LeaseLostError), context.write() as work:
        raise AssertionError("the block must not run")
    with pytest.raises(LeaseLostError):
        context.progress({"done": 1})
    with pytest.raises(LeaseLostError):
        context.check()
    JobContext(services, new).progress({"done": 2})
    assert get(services, job_id).progress == {"done": 2}


def test_a_failing_ending_does_not_keep_a_job_open(services, monkeypatch):
    seen = []
    monkeypatch.setitem(handler.ENDINGS, "test.echo", "endings:good")
    monkeypatch.setitem(handler.ENDINGS, "test.fail", "endings:bad")

    def bad(_work, _job):
        raise RuntimeError

    endings = {"endings:good": lambda _work, job: seen.append(job.status), "endings:bad": bad}
    real = handler._imported
    monkeypatch.setattr(handler, "_imported", lambda place: endings.get(place) or real(place))
    with working(services):
        end_of(services, put(services, "test.echo"))
        assert end_of(services, put(services, "test.fail", {"retryable": False})).status == "failed"
    waiting = put(services, "test.echo")
    cancel(services, waiting)
    assert seen == ["finished", "cancelled"]


def test_a_periodic_kind_comes_once_in_a_period_whoever_asks(services, monkeypatch):
    schedule = {"test.echo": Periodic(60.0)}
    begun, gate = [], threading.Barrier(4)

    def ask():
        gate.wait()
        begun.extend(enqueue_due(services, schedule))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert begun == ["test.echo"]


def test_a_database_that_is_away_is_waited_for(services, monkeypatch):
    away = threading.Event()
    real = services.database.write

    @contextmanager
    def flaky(*, durable=True):
        if away.is_set():
            raise UnavailableError("The database does not answer now.")
        with real(durable=durable) as work:
            yield work

    monkeypatch.setattr(services.database, "write", flaky)
    with working(services, lease_s=2.0):
        job_id = put(services, "test.steps", {"count": 20, "pause_s": 0.02, "file": "/dev/null"})
        until(lambda: (get(services, job_id).progress or {}).get("done", 0) > 3)
        away.set()
        time.sleep(1.0)
        away.clear()
        job = end_of(services, job_id)
    assert (job.status, job.epoch, job.failures, job.crashes) == ("finished", 1, 0, 0)
