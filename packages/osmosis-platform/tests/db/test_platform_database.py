"""Units of work on both databases: what a read sees, and that it writes nothing."""

import pytest
from osmosis_platform.db.repositories.users import UserRepository
from sqlalchemy.exc import DBAPIError


def add(services, name):
    with services.database.write() as work:
        UserRepository(work).add(f"{name}@example.test", name=name, password_hash=None, is_administrator=False)


def test_a_read_is_of_one_moment(services):
    add(services, "ada")
    with services.database.read() as work:
        assert UserRepository(work).count() == 1
        add(services, "bob")
        assert UserRepository(work).count() == 1
    with services.database.read() as work:
        assert UserRepository(work).count() == 2


def test_a_read_writes_nothing_and_the_next_write_does(services):
    with pytest.raises(DBAPIError), services.database.read() as work:
        UserRepository(work).add("ada@example.test", name="ada", password_hash=None, is_administrator=False)
    add(services, "ada")
    with services.database.read() as work:
        assert UserRepository(work).count() == 1
