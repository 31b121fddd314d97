"""Worker processes killed with SIGKILL at named places, and a PostgreSQL that stops: every job ends, and ends once."""

import os
import signal
import time

import pytest
from job_kinds import WorkerProcess
from osmosis_platform.db.repositories.jobs import JobRepository
from osmosis_platform.db.tables.jobs import jobs
from osmosis_platform.domain.job import PLATFORM
from osmosis_platform.errors import UnavailableError
from osmosis_platform.jobs.queue import enqueue

LEASE_S = 1.0


@pytest.fixture
def start(database_url, services):
    started = []

    def start(**options):
        process = WorkerProcess(database_url, services.settings.data_dir, lease_s=LEASE_S, **options)
        started.append(process)
        return process

    yield start
    [process.stop(signal.SIGKILL) for process in started]


def put(services, kind, payload=None, **options):
    with services.database.write() as work:
        return enqueue(work, PLATFORM, kind, payload or {}, **options)


def get(services, job_id):
    with services.database.read() as work:
        return JobRepository(work).get(PLATFORM, job_id)


def until(condition, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.03)
    return found


def end_of(services, job_id):
    def look():
        try:
            job = get(services, job_id)
        except UnavailableError:
            return None
        return job if job.finished_at is not None else None

    return until(look)


PLACES = {  # place: how many leases the job has had when it is finished
    "job.in-claim": 1,
    "job.after-claim": 2,
    "job.before-handler": 2,
    "job.before-commit:2": 2,
    "job.after-handler": 2,
    "job.in-end": 2,
    "job.after-end": 1,
}


@pytest.mark.parametrize("place", PLACES)
def test_a_job_survives_the_death_of_its_worker_at(place, services, start, tmp_path):
    file = tmp_path / "steps"
    job_id = put(services, "test.steps", {"count": 3, "file": str(file)})
    doomed = start(crash_at=place)
    assert doomed.process.wait(30) == -signal.SIGKILL
    start()
    job = end_of(services, job_id)
    assert (job.status, job.epoch, job.result) == ("finished", PLACES[place], {"steps": 3})
    assert job.crashes == PLACES[place] - 1
    assert job.progress == {"done": 3, "epoch": job.epoch}
    epochs = [int(line.split()[0]) for line in file.read_text().splitlines()]
    assert epochs == sorted(epochs)
    assert epochs.count(job.epoch) == 3


def test_a_job_moves_on_within_its_lease_when_its_worker_dies(services, start, tmp_path):
    job_id = put(services, "test.steps", {"count": 10_000, "pause_s": 0.02, "file": str(tmp_path / "steps")})
    doomed = start()
    until(lambda: (get(services, job_id).progress or {}).get("done", 0) > 2)
    start()
    time.sleep(LEASE_S)  # the second one is up and has seen the lease beat
    assert get(services, job_id).epoch == 1
    doomed.stop(signal.SIGKILL)
    killed = time.monotonic()
    until(lambda: get(services, job_id).epoch == 2)
    assert time.monotonic() - killed < LEASE_S + 5  # of a machine that does other things too


def test_a_worker_that_was_stopped_and_goes_on_writes_nothing_under_its_old_epoch(services, start, tmp_path):
    file = tmp_path / "steps"
    job_id = put(services, "test.steps", {"count": 80, "pause_s": 0.03, "file": str(file)})
    stalled = start()
    until(lambda: (get(services, job_id).progress or {}).get("done", 0) > 2)
    stalled.process.send_signal(signal.SIGSTOP)
    start()
    until(lambda: get(services, job_id).epoch == 2 and get(services, job_id).progress["epoch"] == 2)
    stalled.process.send_signal(signal.SIGCONT)
    job = end_of(services, job_id)
    assert (job.status, job.epoch) == ("finished", 2)
    epochs = [int(line.split()[0]) for line in file.read_text().splitlines()]
    # a step that was committed before the stop may write its line after it; no step of epoch 1 is committed after that
    assert epochs[epochs.index(2) :].count(1) <= 1


def test_a_job_that_kills_its_workers_is_a_poison_and_others_go_on(services, start):
    poison = put(services, "test.crash", max_crashes=2)
    fine = put(services, "test.echo")
    with services.database.write() as work:
        work.execute(jobs.update().where(jobs.c.id == poison).values(priority=1))

    def settled():
        if all(process.process.poll() is not None for process in running):
            running.append(start())
        return get(services, poison).finished_at and get(services, fine).finished_at

    running = [start()]
    until(settled)
    job = get(services, poison)
    assert (job.status, job.error.code, job.crashes) == ("failed", "CRASHED", 2)
    assert (get(services, fine).status, get(services, fine).crashes) == ("finished", 0)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_neighbours_of_a_poison_are_not_blamed_for_it(services, start):
    """Jobs that share each of its workers to the end would be failed with it if they were counted."""
    poison = put(services, "test.crash", {"after_s": 0.5}, max_crashes=1)
    victims = [put(services, "test.steps", {"count": 60, "pause_s": 0.02, "file": os.devnull}, max_crashes=1)]
    running = [start()]

    def settled():
        if all(process.process.poll() is not None for process in running):
            running.append(start())
        return all(get(services, job_id).finished_at for job_id in (poison, *victims))

    until(settled, 60)
    job = get(services, poison)
    assert (job.status, job.error.code, job.crashes) == ("failed", "CRASHED", 1)
    assert [get(services, job_id).status for job_id in victims] == ["finished"]
    assert len(running) == 4  # twice together, then each alone; the poison's last death is the third


def test_sigterm_gives_a_job_back_and_ends_cleanly(services, start):
    job_id = put(services, "test.wait")
    worker = start()
    until(lambda: get(services, job_id).status == "running")
    assert worker.stop() == 0
    job = get(services, job_id)
    assert (job.status, job.crashes) == ("queued", 0)


@pytest.mark.parametrize("mode", ["fast", "immediate"])
@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_job_goes_on_after_postgresql_was_away(mode, services, start, postgres, tmp_path):
    job_id = put(services, "test.steps", {"count": 60, "pause_s": 0.02, "file": str(tmp_path / "steps")})
    start()
    until(lambda: (get(services, job_id).progress or {}).get("done", 0) > 2)
    postgres.stop(mode)
    try:
        time.sleep(LEASE_S / 2)
        with pytest.raises(UnavailableError):
            get(services, job_id)
    finally:
        postgres.start()
    job = end_of(services, job_id)
    assert (job.status, job.result) == ("finished", {"steps": 60})
    assert job.crashes == 0
    assert job.failures <= 1  # the server may go within a transaction of the job: that try ends, the next one does it
