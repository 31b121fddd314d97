"""What the platform's tests share: both databases, migrated, and services over them."""

import itertools

import pytest
from osmosis_platform.db import schema
from osmosis_platform.db.database import Database
from osmosis_platform.services import Services
from osmosis_platform.settings import Settings
from postgres_server import PostgresServer, binaries

_count = itertools.count()


@pytest.fixture(scope="session")
def postgres():
    if binaries() is None:
        pytest.skip("PostgreSQL is not installed")
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request, tmp_path):
    """An empty database of each kind; PostgreSQL's is its own for every test."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'platform.sqlite3'}"
    return request.getfixturevalue("postgres").create_database(f"test_{next(_count)}")


@pytest.fixture
def database(database_url):
    """A migrated database of each kind."""
    database = Database(database_url)
    schema.migrate(database)
    yield database
    database.close()


@pytest.fixture
def services(tmp_path, database):
    """Services over each database, with files for objects."""
    settings = Settings(data_dir=tmp_path / "data", port=8700)
    settings.data_dir.mkdir(mode=0o700)
    return Services(settings, database)
