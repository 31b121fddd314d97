"""A deleted workspace can be brought back for a while; then nothing of it is left but what says that it was there."""

import os
import signal
import subprocess
import sys
from datetime import timedelta

import pytest
import sqlalchemy as sa
from osmosis_platform.clock import system_clock
from osmosis_platform.db.repositories.audit import AuditRepository
from osmosis_platform.db.repositories.jobs import JobRepository
from osmosis_platform.db.repositories.leases import LeaseRepository
from osmosis_platform.db.repositories.purges import KEPT, rows_of
from osmosis_platform.db.repositories.workspaces import WorkspaceRepository
from osmosis_platform.db.tables import metadata
from osmosis_platform.db.types import UtcTime
from osmosis_platform.domain.job import PLATFORM
from osmosis_platform.errors import MissingError, TakenError
from osmosis_platform.git.hosting import init, place, root
from osmosis_platform.identity.accounts import create_workspace, delete_workspace
from osmosis_platform.identity.removal import bring_back, deleted_workspace, purge
from osmosis_platform.jobs import workspace_sweep
from osmosis_platform.jobs.handler import JobContext
from osmosis_platform.jobs.queue import enqueue
from osmosis_platform.secrets.keeping import resolve, set_secret
from osmosis_platform.services import Services
from osmosis_platform.settings import Settings
from platform_people import People


@pytest.fixture
def labs(services):
    """Two workspaces, each with a row in every table that can belong to one, an object and a repository."""
    services.vault.check(services.database)
    ada, bob = People(services).make("ada"), People(services).make("bob", workspace="elsewhere")
    root(services.settings).mkdir()
    for person in (ada, bob):
        with services.database.write() as work:
            repository_id = fill(work, person)
        init(place(services.settings, repository_id))
        services.blobs.put(f"{person.workspace_id}/datasets/ds_1", [b"rows"])
    return ada, bob


def fill(work, person):
    """One row in every table with a workspace, or that refers to one that has, with values by the columns' types."""
    keys = {"workspaces": person.workspace_id, "users": person.actor.user_id}
    for table in metadata.sorted_tables:
        if rows_of(table, person.workspace_id) is None:
            if table.name == "master_keys":
                keys["master_keys"] = work.execute(sa.select(table.c.id)).scalars().first()
            continue
        mine = rows_of(table, person.workspace_id)
        if work.execute(sa.select(sa.literal(1)).select_from(table).where(mine)).first() is None:
            work.execute(table.insert().values({c.name: value_of(c, keys, person) for c in table.c}))
        if "id" in table.c:
            keys[table.name] = work.execute(sa.select(table.c.id).where(mine)).scalars().first()
    return keys["repositories"]


def value_of(column, keys, person):
    if column.name == "workspace_id":
        return person.workspace_id
    if column.foreign_keys:
        parent = next(iter(column.foreign_keys)).column.table.name
        return keys[parent]
    if column.table.name == "jobs" and column.name == "status":
        return "finished"
    if isinstance(column.type, UtcTime):
        return None if column.nullable else system_clock()
    if isinstance(column.type, sa.Text):
        return f"{column.table.name}.{column.name} of {person.workspace_id}"
    if isinstance(column.type, sa.LargeBinary):
        return b"bytes"
    if isinstance(column.type, sa.Boolean):
        return True
    if isinstance(column.type, sa.JSON):
        return None if column.nullable else {}
    return 1


def counts(services, workspace_id):
    found = {}
    with services.database.read() as work:
        for table in metadata.sorted_tables:
            mine = rows_of(table, workspace_id)
            if mine is not None:
                found[table.name] = work.execute(sa.select(sa.func.count()).select_from(table).where(mine)).scalar_one()
    return found


def delete(services, person):
    with services.database.write() as work:
        delete_workspace(work, person.actor, person.workspace_id, confirmed_name=person.workspace)


def gone(services, person):
    with services.database.read() as work:
        return deleted_workspace(work, person.workspace_id)


def sweep(services):
    with services.database.write() as work:
        enqueue(work, PLATFORM, "workspaces.sweep", {})
    with services.database.write() as work:
        [job] = LeaseRepository(work).claim(["cpu"], "test", lease_s=60, limit=1)
    found = workspace_sweep.run(JobContext(services, job))
    with services.database.write() as work:
        LeaseRepository(work).finish(job.id, job.epoch, found)
    return found


def test_nothing_is_left_of_a_purged_workspace_and_all_of_its_neighbour(services, labs):
    ada, bob = labs
    assert 0 not in counts(services, ada.workspace_id).values(), "a table without a row would prove nothing"
    others = counts(services, bob.workspace_id)
    delete(services, ada)
    assert purge(services, gone(services, ada))
    assert {name for name, count in counts(services, ada.workspace_id).items() if count} == set(KEPT)
    assert counts(services, bob.workspace_id) == others
    assert list(services.blobs.list(f"{ada.workspace_id}/")) == []
    assert len(list(services.blobs.list(f"{bob.workspace_id}/"))) == 1
    assert len(list(root(services.settings).glob("*.git"))) == 1
    held = [path for path in services.settings.data_dir.rglob("*") if ada.workspace_id in str(path)]
    assert held == []
    with services.database.read() as work:
        assert [entry.action for entry in AuditRepository(work).page(ada.workspace_id)][:2] == [
            "workspace.purge",
            "workspace.delete",
        ]
        with pytest.raises(MissingError):
            deleted_workspace(work, ada.workspace_id)


def test_every_table_with_a_workspace_is_looked_at():
    """A column that points to a workspace under another name would be missed."""
    for table in metadata.sorted_tables:
        to_workspaces = [key.parent.name for key in table.foreign_keys if key.column.table.name == "workspaces"]
        assert set(to_workspaces) <= {"workspace_id"}, table.name


def test_within_its_days_it_is_brought_back_as_it_was(services):
    services.vault.check(services.database)
    ada = People(services).make("ada")
    with services.database.write() as work:
        set_secret(services.vault, work, ada.workspace_id, ada.actor, scope="workspace", name="KEY", value="a value")
    delete(services, ada)
    assert ada.call("GET", f"/api/v1/workspaces/{ada.workspace}").status_code == 404
    assert sweep(services) == {"purged": 0, "waiting": 0}
    with services.database.write() as work:
        create_workspace(services, work, ada.actor, ada.workspace)
    with services.database.write() as work, pytest.raises(TakenError):
        bring_back(work, gone(services, ada))
    with services.database.write() as work:
        bring_back(work, deleted_workspace(work, ada.workspace.upper()), "again")
    assert ada.call("GET", "/api/v1/workspaces/again").json()["id"] == ada.workspace_id
    with services.database.read() as work:
        found = resolve(services.vault, work, ada.workspace_id, ada.actor.user_id, ["KEY"])
    assert found.values == {"KEY": "a value"}


def test_what_was_brought_back_meanwhile_is_not_purged(services):
    services.vault.check(services.database)
    ada = People(services).make("ada")
    delete(services, ada)
    found = gone(services, ada)
    with services.database.write() as work:
        bring_back(work, found)
    assert purge(services, found)
    assert ada.call("GET", f"/api/v1/workspaces/{ada.workspace}").json()["id"] == ada.workspace_id


def test_the_sweep_purges_after_the_days_of_the_setting(services):
    services.vault.check(services.database)
    ada = People(services).make("ada")
    delete(services, ada)
    real = services.clock
    later = Services(services.settings, services.database, lambda: real() + timedelta(days=6, hours=23))
    assert sweep(later) == {"purged": 0, "waiting": 0}
    later = Services(services.settings, services.database, lambda: real() + timedelta(days=7, hours=1))
    assert sweep(later) == {"purged": 1, "waiting": 0}
    assert sweep(later) == {"purged": 0, "waiting": 0}


def test_jobs_are_stopped_before_their_ground_is_taken_away(services):
    services.vault.check(services.database)
    ada = People(services).make("ada")
    with services.database.write() as work:
        running = enqueue(work, ada.workspace_id, "dataset.process", {}, subject_id="ds_x")
        [job] = LeaseRepository(work).claim(["cpu"], "w", lease_s=60, limit=1)
        waiting = enqueue(work, ada.workspace_id, "dataset.process", {}, subject_id="ds_y")
    delete(services, ada)
    assert not purge(services, gone(services, ada))
    with services.database.read() as work:
        repository = JobRepository(work)
        assert repository.get(ada.workspace_id, running).cancel_requested_at is not None
        assert repository.get(ada.workspace_id, waiting).status == "cancelled"
    with services.database.write() as work:
        LeaseRepository(work).finish(job.id, job.epoch, None)
    assert purge(services, gone(services, ada))


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_killed_purge_is_finished_by_the_next(services, database_url, labs):
    ada, _ = labs
    delete(services, ada)
    code = (
        "import sys, pathlib\n"
        "from osmosis_platform.db.database import Database\n"
        "from osmosis_platform.identity.removal import deleted_workspace, purge\n"
        "from osmosis_platform.services import Services\n"
        "from osmosis_platform.settings import Settings\n"
        "services = Services(Settings(data_dir=pathlib.Path(sys.argv[1])), Database(sys.argv[2]))\n"
        "with services.database.read() as work: workspace = deleted_workspace(work, sys.argv[3])\n"
        "purge(services, workspace)\n"
    )
    arguments = [sys.executable, "-c", code, services.settings.data_dir, database_url, ada.workspace_id]
    env = os.environ | {"OSMOSIS_CRASH_AT": "workspace.after-objects"}
    assert subprocess.run(arguments, env=env, timeout=60, check=False).returncode == -signal.SIGKILL
    with services.database.read() as work:
        assert [each.id for each in WorkspaceRepository(work).deleted()] == [ada.workspace_id]
    with services.database.write() as work, pytest.raises(TakenError) as refused:  # its objects are gone
        bring_back(work, gone(services, ada))
    assert refused.value.error_code == "WORKSPACE_PURGED"
    assert purge(services, gone(services, ada))
    assert {name for name, count in counts(services, ada.workspace_id).items() if count} == set(KEPT)


def test_the_days_are_a_setting(tmp_path):
    assert Settings(data_dir=tmp_path).deleted_workspace_days == 7
