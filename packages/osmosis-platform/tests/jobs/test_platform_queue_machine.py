"""Whatever submitters, workers, cancels, crashes and clocks do in whatever order, on both databases:

at most one epoch of a job writes, an end is final, limits hold, and every acknowledged submit ends.
"""

from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)
from osmosis_platform.db import schema
from osmosis_platform.db.database import Database
from osmosis_platform.db.repositories.jobs import JobRepository
from osmosis_platform.db.repositories.leases import LeaseRepository
from osmosis_platform.db.tables.jobs import job_limits, job_turns, jobs
from osmosis_platform.domain.job import FINAL, Failure, JobStatus, after_failure
from osmosis_platform.errors import TakenError
from osmosis_platform.jobs.lease import LeaseWatch, take_over
from osmosis_platform.jobs.queue import enqueue, request_cancel

WORKSPACES = ["ws_" + letter * 26 for letter in "ab"]
KINDS = ["test.a", "test.b"]
LEASE_S = 8.0


class QueueMachine(RuleBasedStateMachine):
    """The queue against a model that knows the end of each job and the newest epoch of each."""

    database: Database
    submitted = Bundle("submitted")

    def __init__(self):
        super().__init__()
        with self.database.write() as work:
            for table in (jobs, job_turns, job_limits):
                work.execute(table.delete())
        self.now = datetime(2026, 11, 30, tzinfo=UTC)
        self.steady = 0.0
        self.database.clock = lambda: self.now
        self.watch = LeaseWatch(lambda: self.steady)
        self.ends = {}  # job: (status, result)
        self.owners = {}  # job: workspace
        self.epochs = {}  # job: newest epoch given out
        self.open_keys = {}
        self.limits = {}
        self.leases = []  # every lease ever given

    @initialize(
        target=submitted,
        limits=st.dictionaries(st.sampled_from([(WORKSPACES[0], "test.a"), ("*", "*")]), st.integers(1, 3)),
        delays=st.lists(st.sampled_from([0, 20]), min_size=2, max_size=4),
        claimed=st.integers(0, 4),
    )
    def begin(self, limits, delays, claimed):
        """Every example starts with limits, jobs and leases: Hypothesis leaves whole rules out of most examples."""
        self.limits = limits
        with self.database.write() as work:
            for (workspace, kind), running in limits.items():
                LeaseRepository(work).set_limit(workspace, kind, running)
        ids = [self.submit_one(owner, "test.a", None, 0, delay_s) for owner in WORKSPACES for delay_s in delays]
        self.claim_some(claimed)
        return multiple(*ids)

    @rule(
        target=submitted,
        workspace=st.sampled_from(WORKSPACES),
        kind=st.sampled_from(KINDS),
        key=st.none() | st.sampled_from(["k1", "k2"]),
        priority=st.integers(-1, 1),
        delay_s=st.sampled_from([0, 0, 20]),
        count=st.integers(1, 3),
    )
    def submit(self, workspace, kind, key, priority, delay_s, count):
        return multiple(*[self.submit_one(workspace, kind, key, priority, delay_s) for _ in range(count)])

    def submit_one(self, workspace, kind, key, priority, delay_s):
        with self.database.write() as work:
            job_id = enqueue(
                work,
                workspace,
                kind,
                {},
                unique_key=key,
                priority=priority,
                not_before=self.now + timedelta(seconds=delay_s),
                max_failures=2,
                max_crashes=2,
            )
        if key is not None:
            known = self.open_keys.get((workspace, key))
            assert known in (None, job_id) or known in self.ends
            self.open_keys[workspace, key] = job_id
        self.owners[job_id] = workspace
        return job_id

    @rule(limit=st.integers(1, 4))
    def claim(self, limit):
        self.claim_some(limit)

    def claim_some(self, limit):
        with self.database.write() as work:
            suspect = LeaseRepository(work).claim_suspect(["cpu"], "loner", lease_s=LEASE_S) if limit == 1 else None
            claimed = (
                [suspect] if suspect else LeaseRepository(work).claim(["cpu"], "worker", lease_s=LEASE_S, limit=limit)
            )
        for job in claimed:
            assert job.id not in self.ends, "an end is final"
            assert job.epoch == self.epochs.get(job.id, 0) + 1
            self.epochs[job.id] = job.epoch
        self.leases += claimed
        return claimed

    @rule()
    def everybody_writes_who_ever_had_a_lease(self):
        with self.database.write() as work:
            leases = LeaseRepository(work)
            for job in self.leases:
                wrote = leases.set_progress(job.id, job.epoch, {"epoch": job.epoch})
                assert wrote == leases.hold(job.id, job.epoch)
                runs = leases.get(job.id).status == JobStatus.RUNNING
                assert wrote == (runs and self.epochs[job.id] == job.epoch), "only the newest epoch writes"

    @rule(which=st.integers(0, 20))
    def beat(self, which):
        if not self.leases:
            return
        job = self.leases[which % len(self.leases)]
        with self.database.write() as work:
            held, _ = LeaseRepository(work).beat(job.id, job.epoch, lease_s=LEASE_S)
        assert not held or (self.epochs[job.id] == job.epoch and job.id not in self.ends)

    @rule(which=st.integers(0, 20), how=st.sampled_from(["finish", "fail", "retry", "release"]))
    def leave(self, which, how):
        if not self.leases:
            return
        job = self.leases[which % len(self.leases)]
        with self.database.write() as work:
            leases = LeaseRepository(work)
            if how == "finish":
                ok = leases.finish(job.id, job.epoch, {"epoch": job.epoch})
            elif how == "release":
                ok = leases.release(job.id, job.epoch)
            else:
                now = leases.get(job.id)
                verdict = after_failure(
                    Failure("TEST", "It failed.", "user", retryable=how == "retry"),
                    failures=now.failures,
                    crashes=now.crashes,
                    max_failures=now.max_failures,
                    cancel_requested=now.cancel_requested_at is not None,
                    jitter=0.5,
                )
                ok = leases.settle(job.id, job.epoch, verdict)
        assert not ok or (self.epochs[job.id] == job.epoch and job.id not in self.ends)

    @rule(job_id=submitted)
    def cancel(self, job_id):
        try:
            with self.database.write() as work:
                request_cancel(work, self.owners[job_id], job_id)
        except TakenError:
            assert self.ends[job_id][0] in ("finished", "failed")

    @rule(seconds=st.sampled_from([1, 2, 4]), looks=st.integers(1, 5))
    def pass_time(self, seconds, looks):
        for _ in range(looks):
            self.steady += seconds
            self.now += timedelta(seconds=seconds)
            take_over(self.database, self.watch)

    @rule(jump_s=st.sampled_from([-86_400, -60, 60, 86_400]))
    def turn_the_clock(self, jump_s):
        self.now += timedelta(seconds=jump_s)

    @invariant()
    def ends_are_final_and_limits_hold(self):
        running = {}
        with self.database.read() as work:
            for row in work.execute(sa.select(jobs)):
                assert row.epoch == self.epochs.get(row.id, 0)
                end = (row.status, row.result, row.finished_at)
                assert self.ends.get(row.id, end) == end, "an end is final"
                if row.status in FINAL:
                    self.ends[row.id] = end
                elif row.status == JobStatus.RUNNING:
                    for kind in (row.kind, "*"):
                        running[row.workspace_id, kind] = running.get((row.workspace_id, kind), 0) + 1
        for (workspace, kind), count in running.items():
            limit = self.limits.get((workspace, kind), self.limits.get(("*", kind)))
            assert limit is None or count <= limit

    def teardown(self):
        """A worker that works brings every submitted job to an end."""
        for _ in range(60):
            with self.database.write() as work:
                leases = LeaseRepository(work)
                suspect = leases.claim_suspect(["cpu"], "last", lease_s=LEASE_S)
                for job in [suspect] if suspect else leases.claim(["cpu"], "last", lease_s=LEASE_S, limit=50):
                    assert job.id not in self.ends
                    LeaseRepository(work).finish(job.id, job.epoch, None)
            self.steady += 4
            self.now += timedelta(seconds=4)
            take_over(self.database, self.watch)
        with self.database.read() as work:
            for job_id, workspace in self.owners.items():
                assert JobRepository(work).get(workspace, job_id).status in FINAL


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def machine_database(request, tmp_path_factory):
    url = f"sqlite:///{tmp_path_factory.mktemp('machine') / 'platform.sqlite3'}"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres").create_database("queue_machine")
    database = Database(url)
    schema.migrate(database)
    yield database
    database.close()


def test_the_queue_keeps_its_promises_in_any_order_of_events(machine_database):
    machine = type("Machine", (QueueMachine,), {"database": machine_database})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=40,
            stateful_step_count=30,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
