"""Putting in, claiming, ending and cancelling jobs, on both databases."""

import threading
from datetime import timedelta

import pytest
from osmosis_platform.db.database import Database
from osmosis_platform.db.repositories.jobs import JobRepository
from osmosis_platform.db.repositories.leases import LeaseRepository
from osmosis_platform.db.tables.jobs import jobs as JOBS
from osmosis_platform.domain.job import Failure, JobStatus, Verdict
from osmosis_platform.errors import MissingError, TakenError
from osmosis_platform.jobs.lease import LeaseWatch, take_over
from osmosis_platform.jobs.queue import enqueue, request_cancel

A, B = "ws_" + "a" * 26, "ws_" + "b" * 26


def put(database, workspace=A, kind="test.a", payload=None, **options):
    with database.write() as work:
        return enqueue(work, workspace, kind, payload or {}, **options)


def claim(database, limit=1, owner="worker", lease_s=15.0, queues=("cpu",)):
    with database.write() as work:
        return LeaseRepository(work).claim(queues, owner, lease_s=lease_s, limit=limit)


def get(database, job_id, workspace=A):
    with database.read() as work:
        return JobRepository(work).get(workspace, job_id)


def finish(database, job, result=None):
    with database.write() as work:
        return LeaseRepository(work).finish(job.id, job.epoch, result)


def test_a_job_is_claimed_once_and_finished(database):
    job_id = put(database, payload={"rows": 3}, subject_id="ds_x")
    [job] = claim(database, limit=5)
    assert (job.id, job.epoch, job.payload, job.subject_id) == (job_id, 1, {"rows": 3}, "ds_x")
    assert claim(database) == []
    assert finish(database, job, {"ok": True})
    after = get(database, job_id)
    assert (after.status, after.result, after.owner) == ("finished", {"ok": True}, None)
    assert not finish(database, job), "an end is final"


def test_a_job_of_a_transaction_that_fails_does_not_exist(database):
    with pytest.raises(RuntimeError), database.write() as work:
        enqueue(work, A, "test.a", {})
        raise RuntimeError
    assert claim(database) == []


def test_an_unknown_kind_is_refused(database):
    with pytest.raises(ValueError, match=r"test\.unknown"):
        put(database, kind="test.unknown")


def test_a_unique_key_gives_the_open_job_until_it_ends(database):
    first = put(database, unique_key="ds_1")
    assert put(database, unique_key="ds_1") == first
    assert put(database, workspace=B, unique_key="ds_1") != first, "keys belong to their workspace"
    jobs = claim(database, limit=2)
    assert put(database, unique_key="ds_1") == first
    [finish(database, job) for job in jobs]
    assert put(database, unique_key="ds_1") != first


def test_many_submits_of_one_key_make_one_job(database_url, database):
    found = []

    def submit():
        own = Database(database_url)
        found.append(put(own, unique_key="once"))
        own.close()

    threads = [threading.Thread(target=submit) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(found) == 4
    assert len(set(found)) == 1


def test_priority_orders_a_workspace_and_queues_are_apart(database):
    low, high = put(database), put(database, priority=5)
    put(database, queue="gpu")
    assert [job.id for job in claim(database, limit=9)] == [high, low]


def test_a_workspace_with_many_jobs_does_not_keep_out_one_with_few(database):
    for _ in range(5):
        put(database, priority=9)
    put(database, workspace=B)
    order = []
    for _ in range(4):
        [job] = claim(database)
        order.append(job.workspace_id)
        finish(database, job)
    assert order.count(B) == 1
    assert B in order[:2]


def test_limits_hold_by_kind_and_for_every_workspace(database):
    with database.write() as work:
        LeaseRepository(work).set_limit(A, "test.a", 2)
        LeaseRepository(work).set_limit("*", "*", 3)
    for workspace in (A, B):
        for kind in ("test.a", "test.b"):
            [put(database, workspace=workspace, kind=kind) for _ in range(4)]
    claimed = claim(database, limit=20)
    of_a = [job for job in claimed if job.workspace_id == A]
    assert len([job for job in of_a if job.kind == "test.a"]) <= 2
    assert len(of_a) == 3
    assert len(claimed) == 6
    finish(database, of_a[0])
    assert len(claim(database, limit=20)) == 1
    with database.write() as work:
        LeaseRepository(work).set_limit("*", "*", None)
    assert len(claim(database, limit=20)) >= 6


def test_claims_that_race_take_every_job_once_within_the_limit(database_url, database):
    with database.write() as work:
        LeaseRepository(work).set_limit(A, "test.a", 5)
    [put(database) for _ in range(12)]
    taken, gate = [], threading.Barrier(4)

    def work():
        own = Database(database_url)
        gate.wait()
        for _ in range(4):
            taken.extend(job.id for job in claim(own, owner=threading.current_thread().name))
        own.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(taken) == len(set(taken)) == 5


def test_a_queued_job_is_cancelled_at_once_and_a_running_one_is_asked(database):
    queued, running = put(database), put(database, priority=1)
    [job] = claim(database)
    with database.write() as work:
        request_cancel(work, A, queued)
        request_cancel(work, A, queued)
        request_cancel(work, A, running)
        assert LeaseRepository(work).beat(job.id, job.epoch, lease_s=15) == (True, True)
    assert get(database, queued).status == "cancelled"
    assert get(database, running).status == "running"
    finish(database, job)
    with pytest.raises(TakenError, match="finished"), database.write() as work:
        request_cancel(work, A, running)
    with pytest.raises(MissingError), database.write() as work:
        request_cancel(work, B, queued)


def test_a_job_waits_for_its_time_and_not_for_a_clock_that_went_back(database):
    ahead = timedelta(days=0)
    real = database.clock
    database.clock = lambda: real() + ahead
    put(database, not_before=real() + timedelta(hours=1))
    assert claim(database) == []
    ahead = timedelta(hours=2)
    [job] = claim(database)
    with database.write() as work:
        verdict = Verdict(JobStatus.QUEUED, 1, 0, 300.0, Failure("AWAY", "x", retryable=True))
        assert LeaseRepository(work).settle(job.id, job.epoch, verdict)
    assert claim(database) == []
    ahead = timedelta(0)
    assert [again.epoch for again in claim(database)] == [2]
    assert get(database, job.id).error.code == "AWAY"


def watch_at(times):
    return LeaseWatch(lambda: times[0])


def look(database, watch, times, at):
    times[0] = at
    return take_over(database, watch)


def test_a_silent_lease_moves_on_and_its_old_holder_writes_nothing(database):
    put(database)
    [old] = claim(database, lease_s=4.0)
    times = [0.0]
    watch = watch_at(times)
    assert [look(database, watch, times, at) for at in range(6)] == [0, 0, 0, 0, 1, 0]
    assert get(database, old.id).status == "queued"
    [new] = claim(database)
    assert (new.id, new.epoch, new.crashes) == (old.id, 2, 1)
    with database.write() as work:
        leases = LeaseRepository(work)
        assert not leases.hold(old.id, old.epoch)
        assert not leases.set_progress(old.id, old.epoch, {"done": 1})
        assert not leases.finish(old.id, old.epoch, {})
        assert not leases.release(old.id, old.epoch)
        assert leases.beat(old.id, old.epoch, lease_s=4) == (False, False)
        assert leases.hold(new.id, new.epoch)


@pytest.mark.parametrize("jump", [timedelta(days=-3), timedelta(days=3)])
def test_a_clock_that_jumps_neither_freezes_the_queue_nor_robs_a_holder(database, jump):
    real, ahead = database.clock, timedelta(0)
    database.clock = lambda: real() + ahead
    put(database)
    put(database)
    alive, dead = claim(database, limit=2, lease_s=4.0)
    times = [0.0]
    watch = watch_at(times)
    look(database, watch, times, 0)
    ahead = jump
    lost = 0
    for at in range(1, 8):
        with database.write() as work:
            assert LeaseRepository(work).beat(alive.id, alive.epoch, lease_s=4.0)[0]
        lost += look(database, watch, times, at)
    assert lost == 1
    assert get(database, dead.id).status == "queued"
    assert [job.id for job in claim(database, limit=5)] == [dead.id]


def test_an_observer_that_was_stopped_does_not_take_its_absence_for_silence(database):
    put(database)
    claim(database, lease_s=4.0)
    times = [0.0]
    watch = watch_at(times)
    look(database, watch, times, 0)
    assert look(database, watch, times, 3600) == 0


def test_three_lost_leases_make_a_poison(database):
    job_id = put(database)
    for _ in range(3):
        with database.write() as work:  # a second loss waits a while
            work.execute(JOBS.update().values(not_before=work.clock()))
        assert claim(database, lease_s=1.0)
        times = [0.0]
        watch = watch_at(times)
        assert sum(look(database, watch, times, at) for at in range(6)) == 1
    after = get(database, job_id)
    assert (after.status, after.error.code, after.crashes) == ("failed", "CRASHED", 3)
    assert claim(database) == []


def lose_all(database, lease_s=1.0):
    times = [0.0]
    watch = watch_at(times)
    return sum(look(database, watch, times, at) for at in range(6))


def claim_suspect(database, owner="worker"):
    with database.write() as work:
        return LeaseRepository(work).claim_suspect(["cpu"], owner, lease_s=1.0)


def test_who_merely_shared_a_worker_that_died_is_not_blamed(database):
    neighbour, poison = put(database), put(database)
    for _ in range(2):  # once may have been a power cut, so the second time goes as the first
        assert len(claim(database, limit=2, lease_s=1.0)) == 2
        assert claim_suspect(database) is None
        assert lose_all(database) == 2
    assert [get(database, job_id).crashes for job_id in (neighbour, poison)] == [0, 0]
    assert claim(database, limit=2) == [], "suspects are not given to whoever runs others"
    assert claim_suspect(database).id == neighbour
    with database.write() as work:
        LeaseRepository(work).finish(neighbour, 3, None)
    for crashes in (1, 2, 3):
        with database.write() as work:
            work.execute(JOBS.update().values(not_before=work.clock()))
        assert claim_suspect(database).id == poison
        assert lose_all(database) == 1
        assert get(database, poison).crashes == crashes
    assert (get(database, poison).status, get(database, poison).error.code) == ("failed", "CRASHED")
    assert get(database, neighbour).crashes == 0


def test_neighbours_whose_time_runs_out_later_are_lost_with_the_first(database):
    real, ahead = database.clock, timedelta(0)
    database.clock = lambda: real() + ahead
    first, second = put(database), put(database)
    claim(database, lease_s=4.0)
    times = [0.0]
    watch = watch_at(times)
    look(database, watch, times, 0)
    ahead = timedelta(seconds=1)
    claim(database, lease_s=4.0)
    found = []
    for at in range(1, 6):
        ahead = timedelta(seconds=at)
        found.append(look(database, watch, times, at))
    assert 2 in found
    assert [get(database, job_id).crashes for job_id in (first, second)] == [0, 0]


def test_another_workers_jobs_are_not_lost_with_it(database):
    put(database), put(database)
    [dead], [alive] = claim(database, owner="dead", lease_s=1.0), claim(database, owner="alive", lease_s=60.0)
    assert lose_all(database) == 1
    assert (get(database, dead.id).crashes, get(database, alive.id).status) == (1, "running")


def test_a_job_whose_worker_survived_it_is_no_suspect_any_more(database):
    suspect, other = put(database), put(database)
    for _ in range(2):
        claim(database, limit=2, lease_s=1.0)
        lose_all(database)
    job = claim_suspect(database)
    assert job.id == suspect
    with database.write() as work:
        verdict = Verdict(JobStatus.QUEUED, 1, 0, failure=Failure("AWAY", "away", retryable=True))
        assert LeaseRepository(work).settle(job.id, job.epoch, verdict)
    assert [job.id for job in claim(database, limit=2)] == [suspect]
    assert get(database, other).status == "queued"


def test_busy_workers_make_room_for_a_suspect_that_waits_for_long(database):
    real, ahead = database.clock, timedelta(0)
    database.clock = lambda: real() + ahead
    put(database), put(database)
    for _ in range(2):
        claim(database, limit=2, lease_s=1.0)
        lose_all(database)

    def overdue():
        with database.read() as work:
            return LeaseRepository(work).is_suspect_overdue(["cpu"])

    assert not overdue()
    ahead = timedelta(seconds=31)
    assert overdue()


def test_a_period_begins_once_whoever_asks_and_does_not_freeze_when_the_clock_goes_back(database):
    real, ahead = database.clock, timedelta(0)
    database.clock = lambda: real() + ahead

    def begin():
        with database.write() as work:
            return LeaseRepository(work).begin_period("test.a", 60)

    assert [begin(), begin()] == [True, False]
    ahead = timedelta(seconds=61)
    assert [begin(), begin()] == [True, False]
    ahead = timedelta(days=-1)
    assert [begin(), begin()] == [True, False]
