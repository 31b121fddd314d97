"""A full disk, a locked database and a clock that jumps: a clear answer, nothing acknowledged lost, and on it goes."""

import os
import sqlite3
import subprocess
import threading
import time
from contextlib import contextmanager
from datetime import timedelta

import job_kinds
import pytest
from fastapi.testclient import TestClient
from osmosis_platform.api.app import create_app
from osmosis_platform.db import database as database_module
from osmosis_platform.db import schema
from osmosis_platform.db.database import Database
from osmosis_platform.db.repositories.jobs import JobRepository
from osmosis_platform.db.repositories.memberships import MembershipRepository
from osmosis_platform.db.repositories.users import UserRepository
from osmosis_platform.db.repositories.workspaces import WorkspaceRepository
from osmosis_platform.domain.permissions import Role
from osmosis_platform.errors import StorageFullError
from osmosis_platform.identity.tokens import issue_token
from osmosis_platform.jobs import handler
from osmosis_platform.jobs.queue import PLATFORM, enqueue
from osmosis_platform.jobs.worker import Worker
from osmosis_platform.services import Services
from osmosis_platform.settings import Settings

JOBS = "/api/v1/workspaces/lab/jobs"


@pytest.fixture(autouse=True)
def kinds():
    before = dict(handler.KINDS)
    job_kinds.install()
    yield
    handler.KINDS.clear()
    handler.KINDS.update(before)


@pytest.fixture
def tiny_disk(tmp_path):
    """A file system of 6 MB."""
    place = tmp_path / "tiny"
    place.mkdir()
    if os.getuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", place]).returncode:
        pytest.skip("mounting a small file system needs root")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def open_on(directory, **facts):
    services = Services(Settings(data_dir=directory), Database(f"sqlite:///{directory / 'platform.sqlite3'}", **facts))
    schema.migrate(services.database)
    return services


def signed_in(services):
    """A client of an owner of the workspace `lab`."""
    with services.database.write() as work:
        user = UserRepository(work).add("a@example.com", name="a", password_hash=None, is_administrator=False)
        token = issue_token(work, user.id, kind="personal", name="t", scopes=["all"], expires_at=None)
        lab = WorkspaceRepository(work).add("lab", created_by=user.id)
        MembershipRepository(work).add(lab.id, user.id, Role.OWNER)
    client = TestClient(create_app(services), headers={"Authorization": f"Bearer {token.secret}"})
    assert client.get(JOBS).status_code == 200
    return client, lab.id


def put(services, workspace_id=PLATFORM, kind="test.echo", payload=None):
    with services.database.write() as work:
        return enqueue(work, workspace_id, kind, payload or {})


def job(services, job_id, workspace_id=PLATFORM):
    with services.database.read() as work:
        return JobRepository(work).get(workspace_id, job_id)


def until(condition, seconds=20.0):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
    return found


@contextmanager
def working(services, **options):
    stop = threading.Event()
    worker = Worker(services, **{"slots": 2, "lease_s": 2.0, "poll_s": 0.05, "drain_s": 1.0, "schedule": {}} | options)
    thread = threading.Thread(target=worker.run, args=(stop,))
    thread.start()
    try:
        yield
        assert thread.is_alive(), "the worker ended"
    finally:
        stop.set()
        thread.join(20)


def fill(directory):
    """Leaves not one block free."""
    file = directory / "filler"
    with file.open("ab", buffering=0) as out:
        for size in (65536, 4096, 512, 1):
            try:
                while True:
                    out.write(b"x" * size)
            except OSError:
                continue
    return file


def test_a_full_disk_is_said_and_loses_nothing(tiny_disk):
    services = open_on(tiny_disk)
    client, lab = signed_in(services)
    kept = [put(services, lab)]
    filler = fill(tiny_disk)
    with pytest.raises(StorageFullError, match="Free some space"):
        for _ in range(200):  # the log of the database has some room left of its own
            kept.append(put(services, lab, payload={"text": "x" * 4000}))
    answer = client.post(f"{JOBS}/{kept[0]}/cancel")
    assert answer.status_code in (200, 507)
    if answer.status_code == 507:
        assert answer.json()["code"] == "STORAGE_FULL"
        assert "disk" in answer.json()["message"]
        assert job(services, kept[0], lab).status == "queued"
    assert client.get(JOBS).json()["total_count"] == len(kept), "reading goes on"
    filler.unlink()
    assert client.post(f"{JOBS}/{kept[0]}/cancel").json()["status"] == "cancelled"
    assert all(job(services, one, lab) is not None for one in kept)
    services.close()
    with sqlite3.connect(tiny_disk / "platform.sqlite3") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_worker_outlives_a_full_disk_and_its_jobs_end_afterwards(tiny_disk):
    services = open_on(tiny_disk)
    with working(services):
        job_id = put(services, kind="test.steps", payload={"count": 40, "pause_s": 0.02, "file": "/dev/null"})
        until(lambda: (job(services, job_id).progress or {}).get("done", 0) > 2)
        filler = fill(tiny_disk)
        time.sleep(1.0)
        filler.unlink()
        done = until(lambda: (found := job(services, job_id)).finished_at is not None and found)
    assert (done.status, done.result) == ("finished", {"steps": 40})
    services.close()


@contextmanager
def locked(services):
    """Another process's transaction that holds the write lock."""
    other = sqlite3.connect(services.settings.data_dir / "platform.sqlite3", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


def test_a_locked_database_is_said_and_reading_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(database_module, "_BUSY_S", 0.3)
    services = open_on(tmp_path)
    client, lab = signed_in(services)
    job_id = put(services, lab)
    with locked(services):
        answer = client.post(f"{JOBS}/{job_id}/cancel")
        assert (answer.status_code, answer.json()["code"]) == (503, "UNAVAILABLE")
        assert answer.headers["Retry-After"]
        assert client.get(f"{JOBS}/{job_id}").json()["status"] == "queued"
    assert client.post(f"{JOBS}/{job_id}/cancel").json()["status"] == "cancelled"
    services.close()


def test_a_worker_outlives_a_locked_database(tmp_path, monkeypatch):
    monkeypatch.setattr(database_module, "_BUSY_S", 0.2)
    services = open_on(tmp_path)
    with working(services):
        job_id = put(services, kind="test.steps", payload={"count": 40, "pause_s": 0.02, "file": "/dev/null"})
        until(lambda: (job(services, job_id).progress or {}).get("done", 0) > 2)
        with locked(services):
            time.sleep(1.0)
        done = until(lambda: (found := job(services, job_id)).finished_at is not None and found)
    assert (done.status, done.epoch, done.failures) == ("finished", 1, 0)
    services.close()


@pytest.mark.parametrize("jump", [timedelta(days=-3), timedelta(days=3)])
def test_a_clock_that_jumps_neither_robs_a_job_nor_stops_the_queue(services, jump):
    real, ahead = services.database.clock, timedelta(0)
    services.database.clock = lambda: real() + ahead
    with working(services, lease_s=1.0):
        long = put(services, kind="test.steps", payload={"count": 100, "pause_s": 0.02, "file": "/dev/null"})
        until(lambda: (job(services, long).progress or {}).get("done", 0) > 2)
        ahead = jump
        short = put(services)
        assert until(lambda: (found := job(services, short)).finished_at is not None and found).status == "finished"
        done = until(lambda: (found := job(services, long)).finished_at is not None and found)
    assert (done.status, done.epoch, done.crashes) == ("finished", 1, 0)
