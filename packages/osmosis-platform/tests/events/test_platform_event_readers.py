"""Who follows a stream over HTTP: a leave that ends while they read ends the stream."""

import time

import httpx
import pytest
from osmosis_platform.api.app import create_app
from osmosis_platform.api.v1 import events
from osmosis_platform.db.repositories.memberships import MembershipRepository
from osmosis_platform.db.repositories.tokens import TokenRepository
from osmosis_platform.domain.permissions import Role
from osmosis_platform.events.log import append_event
from osmosis_platform.secrets.redacting import OWN
from platform_people import People
from real_git import Server


@pytest.fixture
def database_url(tmp_path):
    """A reader does not depend on the database."""
    return f"sqlite:///{tmp_path / 'platform.sqlite3'}"


@pytest.mark.parametrize("ended", ["membership", "token"])
def test_a_reader_whose_leave_ends_is_told_no_more(services, monkeypatch, ended):
    monkeypatch.setattr(events, "HEARTBEAT_S", 0.1)
    people = People(services)
    people.make("ada")
    bob = people.make("bob", Role.VIEWER)

    def tell(kind):
        with services.database.write() as work:
            append_event(work, bob.workspace_id, "ds_1", kind, {}, redactor=OWN)

    tell("before")
    server = Server(create_app(services))
    address = f"{server.url}/api/v1/workspaces/lab/streams/ds_1/events"
    headers = {"Authorization": f"Bearer {bob.token}"}
    with httpx.stream("GET", address, headers=headers, timeout=5, trust_env=False) as answer:
        lines = answer.iter_lines()
        assert next(line for line in lines if line.startswith("event")) == "event: before"
        assert next(line for line in lines if line == ": alive")
        with services.database.write() as work:
            if ended == "membership":
                MembershipRepository(work).remove(bob.workspace_id, bob.actor.user_id)
            else:
                TokenRepository(work).revoke_all(bob.actor.user_id)
        time.sleep(0.2)
        tell("after")
        until = time.monotonic() + 3
        for line in lines:
            assert line != "event: after"
            assert time.monotonic() < until, "the stream goes on"
    server.stop()
