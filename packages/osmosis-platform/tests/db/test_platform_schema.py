"""The migrated schema is the schema of the tables, on both databases, however often and by whomever it is made."""

import threading

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from osmosis_platform.db import schema
from osmosis_platform.db.database import Database
from osmosis_platform.db.tables import identity, metadata
from osmosis_platform.errors import UnavailableError
from osmosis_platform.ids import new_id


def test_the_migrations_make_the_tables(database):
    with database.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_migrating_again_changes_nothing(database):
    assert schema.migrate(database) == (schema.newest(), schema.newest())
    assert schema.current(database) == schema.newest()


def test_two_processes_that_start_together_migrate_once(database_url):
    results = []

    def start():
        database = Database(database_url)
        results.append(schema.migrate(database)[0])
        database.close()

    threads = [threading.Thread(target=start) for _ in range(2)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sorted(results, key=str) == [schema.newest(), None]


def test_a_database_of_a_newer_platform_is_left_alone(database):
    with database.engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(UnavailableError, match="9999"):
        schema.migrate(database)


def add_user(work, email):
    values = {"id": new_id("us"), "email": email, "is_administrator": False, "created_at": work.clock()}
    work.execute(identity.users.insert().values(**values))


@pytest.mark.parametrize("durable", [True, False])
def test_a_unit_of_work_is_all_or_nothing(database, durable):
    called = []
    with pytest.raises(RuntimeError), database.write(durable=durable) as work:
        add_user(work, "lost@example.test")
        work.after_commit(lambda: called.append("lost"))
        raise RuntimeError
    with database.write(durable=durable) as work:
        add_user(work, "kept@example.test")
        work.after_commit(lambda: called.append("kept"))
        assert called == []
    with database.read() as work:
        assert work.execute(sa.select(identity.users.c.email)).scalars().all() == ["kept@example.test"]
    assert called == ["kept"]


def test_times_come_back_as_they_were_and_naive_ones_are_refused(database):
    with database.write() as work:
        add_user(work, "a@example.test")
        now = work.clock()
        work.execute(identity.users.update().values(created_at=now))
        assert work.execute(sa.select(identity.users.c.created_at)).scalar_one() == now
        with pytest.raises(Exception, match="zone"):
            work.execute(identity.users.update().values(created_at=now.replace(tzinfo=None)))
