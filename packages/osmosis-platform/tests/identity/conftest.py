"""What tests of identity share: a clock that the test turns, people, a workspace, and a client without a network."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from fastapi.testclient import TestClient
from osmosis_platform.api.app import create_app
from osmosis_platform.db import schema
from osmosis_platform.db.database import Database
from osmosis_platform.db.repositories.users import UserRepository
from osmosis_platform.domain.permissions import Role
from osmosis_platform.identity.accounts import create_user, create_workspace
from osmosis_platform.identity.members import accept_invitation, invite
from osmosis_platform.identity.tokens import actor_of, issue_token
from osmosis_platform.services import Services
from osmosis_platform.settings import Settings


@dataclass
class TurnedClock:
    now: datetime = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)

    def __call__(self):
        return self.now

    def turn(self, **by):
        self.now += timedelta(**by)


@dataclass
class House:
    """A workspace `lab` owned by Ada, and what a test does in it."""

    services: Services
    clock: TurnedClock
    workspace: object = None
    users: dict = field(default_factory=dict)

    def write(self, call):
        with self.services.database.write() as work:
            return call(work)

    def read(self, call):
        with self.services.database.read() as work:
            return call(work)

    def person(self, name, role=None):
        user = self.write(lambda work: create_user(work, f"{name}@example.com", name=name.title()))
        self.users[name] = user
        if role is not None:
            link = self.write(lambda work: invite(work, self.actor("ada"), self.workspace.id, role=role))
            self.write(lambda work: accept_invitation(work, actor_of(user), link.secret))
        return user

    def actor(self, name):
        return actor_of(self.read(lambda work: UserRepository(work).get(self.users[name].id)))

    def token(self, who, **facts):
        facts = {"kind": "personal", "name": "a token", "scopes": ["all"], "expires_at": None} | facts
        return self.write(lambda work: issue_token(work, self.users[who].id, **facts))

    def headers(self, who, **facts):
        return {"Authorization": f"Bearer {self.token(who, **facts).secret}"}


@pytest.fixture
def clock():
    return TurnedClock()


@pytest.fixture
def database(database_url, clock):
    database = Database(database_url, clock=clock)
    schema.migrate(database)
    yield database
    database.close()


@pytest.fixture
def services(tmp_path, database, clock):
    settings = Settings(data_dir=tmp_path / "data", port=8700)
    settings.data_dir.mkdir(mode=0o700)
    return Services(settings, database, clock)


@pytest.fixture
def house(services, clock):
    house = House(services, clock)
    ada = house.person("ada")
    house.workspace = house.write(lambda work: create_workspace(services, work, ada, "lab"))
    return house


@pytest.fixture
def everybody(house):
    for role in (Role.ADMIN, Role.MEMBER, Role.VIEWER):
        house.person(str(role), role)
    house.person("stranger")
    return house


@pytest.fixture
def client(services):
    return TestClient(create_app(services))
