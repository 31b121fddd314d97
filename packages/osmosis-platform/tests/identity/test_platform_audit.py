"""The audit log: one chain however many write, and any change of a row shows."""

import threading

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from osmosis_platform.db.repositories.audit import FIRST, AuditRepository
from osmosis_platform.db.tables.audit import audit_entries
from osmosis_platform.domain.actor import Actor

WRITERS, EACH = 6, 8
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(), max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


def record(database, chain, details=None, actor=None):
    with database.write() as work:
        AuditRepository(work).record(chain, actor, "thing.change", "thing", "th_1", details)


def verify(database, chain="ws_1"):
    with database.read() as work:
        return AuditRepository(work).verify(chain)


def test_writers_at_once_make_one_chain(database):
    start = threading.Barrier(WRITERS)

    def write(number):
        start.wait()
        for turn in range(EACH):
            record(database, ("ws_1", "ws_2", None)[turn % 3], {"writer": number})

    threads = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    with database.read() as work:
        repository = AuditRepository(work)
        assert [repository.verify(chain) for chain in ("ws_1", "ws_2", None)] == [None, None, None]
        assert sum(repository.head(chain)[0] for chain in ("ws_1", "ws_2", None)) == WRITERS * EACH


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.text(st.characters(), max_size=8), VALUES, max_size=4))
def test_any_details_come_back_as_they_were_hashed(database, details):
    record(database, "ws_1", details)
    assert verify(database) is None


CHANGES = [
    {"action": "nothing.happened"},
    {"actor_id": "us_other"},
    {"details": {"amount": 1}},
    {"resource_id": None},
    {"ip": "192.0.2.9"},
    {"previous_hash": FIRST},
]


def test_a_changed_entry_shows(database):
    for number, change in enumerate(CHANGES):
        chain = f"ws_{number}"
        for amount in range(4):
            record(database, chain, {"amount": amount + 10})
        assert verify(database, chain) is None
        with database.write() as work:
            third = (audit_entries.c.chain == chain, audit_entries.c.seq == 3)
            work.execute(sa.update(audit_entries).where(*third).values(**change))
        assert verify(database, chain) == 3, change


def test_an_entry_that_is_gone_shows(database):
    for _ in range(3):
        record(database, "ws_1")
    with database.write() as work:
        work.execute(sa.delete(audit_entries).where(audit_entries.c.seq == 2))
    assert verify(database) == 2


def test_an_entry_tells_who_by_what_and_from_where(database):
    actor = Actor("us_1", "a@example.com", token_id="to_1", ip="192.0.2.1", request_id="rq_1")
    record(database, "ws_1", {"size": 3}, actor)
    record(database, "ws_1")
    with database.read() as work:
        newest, oldest = AuditRepository(work).page("ws_1")
        assert AuditRepository(work).page("ws_1", before=2) == [oldest]
        assert [entry.seq for entry in AuditRepository(work).walk("ws_1")] == [1, 2]
    assert (oldest.actor_kind, oldest.actor_id, oldest.ip, oldest.request_id) == ("token", "us_1", "192.0.2.1", "rq_1")
    assert oldest.details == {"size": 3, "token_id": "to_1"}
    assert (newest.actor_kind, newest.actor_id) == ("system", None)


def test_what_was_rolled_back_is_not_in_the_log(database):
    with pytest.raises(RuntimeError), database.write() as work:
        AuditRepository(work).record("ws_1", None, "thing.change", "thing", None, {})
        raise RuntimeError
    with database.read() as work:
        assert AuditRepository(work).head("ws_1") == (0, FIRST)
