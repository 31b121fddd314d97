"""Whose value a run gets, what becomes of values that came with it, and which names and values there are."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa
from osmosis_platform.db.repositories.audit import AuditRepository
from osmosis_platform.db.tables.secrets import run_secrets, secrets
from osmosis_platform.domain.permissions import Role
from osmosis_platform.errors import InvalidRequestError, MissingError
from osmosis_platform.secrets.keeping import (
    MAX_VALUE_BYTES,
    check_name,
    check_value,
    delete_secret,
    forget_run,
    keep_for_run,
    read_for_run,
    resolve,
    set_secret,
)

ON_SQLITE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)  # no SQL of its own is at stake


@pytest.fixture
def bob(people, ada):
    return people.make("bob", Role.MEMBER)


@pytest.fixture
def put(services):
    def put(person, scope, name, value):
        with services.database.write() as work:
            where = {"scope": scope, "name": name, "value": value}
            return set_secret(services.vault, work, person.workspace_id, person.actor, **where)

    return put


@pytest.fixture
def resolved(services):
    def resolved(person, *names, provided=None):
        with services.database.read() as work:
            return resolve(services.vault, work, person.workspace_id, person.actor.user_id, names, provided)

    return resolved


def test_the_nearest_value_wins_and_it_is_said_which(ada, bob, put, resolved):
    for name in ("RUN", "OVER", "SHARED"):
        put(ada, "workspace", name, f"workspace {name}")
    for name in ("RUN", "OVER", "OWN"):
        put(ada, "user", name, f"ada {name}")
    put(bob, "user", "OWN", "bob OWN")
    got = resolved(ada, "RUN", "OVER", "OWN", "SHARED", provided={"RUN": "given", "UNASKED": "x"})
    assert got.values == {"RUN": "given", "OVER": "ada OVER", "OWN": "ada OWN", "SHARED": "workspace SHARED"}
    assert got.scopes == {"RUN": "run", "OVER": "user_override", "OWN": "user", "SHARED": "workspace"}
    assert got.missing == ()
    got.require()
    got = resolved(bob, "OVER", "OWN")
    assert got.values == {"OVER": "workspace OVER", "OWN": "bob OWN"}
    assert got.scopes == {"OVER": "workspace", "OWN": "user"}


def test_missing_names_are_answered_as_the_client_reads_them(ada, bob, put, resolved):
    put(bob, "user", "OTHERS", "v")
    got = resolved(ada, "OTHERS", "B", "A", "A")
    assert (got.values, got.missing) == ({}, ("A", "B", "OTHERS"))
    with pytest.raises(MissingError, match=r"^Secret\(s\) not found: A, B, OTHERS\.") as caught:
        got.require()
    assert (caught.value.status, caught.value.error_code) == (404, "SECRETS_NOT_FOUND")
    assert caught.value.details == {"missing_secrets": ["A", "B", "OTHERS"]}


@ON_SQLITE
def test_nothing_wanted_is_nothing_given(ada, put, resolved):
    put(ada, "workspace", "KEY", "v")
    got = resolved(ada, provided={"KEY": "given"})
    assert (got.values, got.scopes, got.missing) == ({}, {}, ())


@ON_SQLITE
def test_an_empty_value_that_came_with_a_run_wins_too(ada, put, resolved):
    put(ada, "workspace", "KEY", "v")
    assert resolved(ada, "KEY", provided={"KEY": ""}).values == {"KEY": ""}


def test_other_workspaces_have_secrets_of_their_own(people, ada, put, resolved):
    elsewhere = people.make("eve", workspace="other")
    put(elsewhere, "workspace", "KEY", "theirs")
    assert resolved(ada, "KEY").missing == ("KEY",)
    put(ada, "workspace", "KEY", "ours")
    assert resolved(elsewhere, "KEY").values == {"KEY": "theirs"}


@ON_SQLITE
def test_a_resolution_does_not_print_values(ada, put, resolved):
    put(ada, "user", "KEY", "hunter2")
    assert "hunter2" not in repr(resolved(ada, "KEY"))


def test_setting_again_replaces_under_the_same_id_and_is_audited(ada, put, resolved, services):
    assert put(ada, "user", "KEY", "one") == put(ada, "user", "KEY", "two")
    assert resolved(ada, "KEY").values == {"KEY": "two"}
    with services.database.write() as work:
        assert work.execute(sa.select(secrets.c.version)).scalar_one() == 2
        delete_secret(work, ada.workspace_id, ada.actor, scope="user", name="KEY")
        with pytest.raises(MissingError, match="no personal secret 'KEY'"):
            delete_secret(work, ada.workspace_id, ada.actor, scope="user", name="KEY")
    with services.database.read() as work:
        entries = AuditRepository(work).page(ada.workspace_id)
        assert [entry.action for entry in entries] == ["secret.delete", "secret.update", "secret.create"]
        assert {(entry.details["name"], entry.details["scope"]) for entry in entries} == {("KEY", "user")}
        assert len({entry.resource_id for entry in entries}) == 1


def test_a_name_deleted_and_set_again_opens(ada, put, resolved, services):
    put(ada, "workspace", "KEY", "one")
    with services.database.write() as work:
        delete_secret(work, ada.workspace_id, ada.actor, scope="workspace", name="KEY")
    put(ada, "workspace", "KEY", "two")
    assert resolved(ada, "KEY").values == {"KEY": "two"}


def test_writers_at_once_leave_one_whole_value(ada, put, resolved):
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: put(ada, "workspace", "KEY", f"value {number}"), range(8)))
    assert resolved(ada, "KEY").values["KEY"] in {f"value {number}" for number in range(8)}


def test_values_of_a_run_are_gone_when_it_ends(ada, services):
    with services.database.write() as work:
        for run in ("run_1", "run_2"):
            keep_for_run(services.vault, work, ada.workspace_id, run, {"A": run, "B": "\u00fc\n"})
    with services.database.read() as work:
        assert read_for_run(services.vault, work, ada.workspace_id, "run_1") == {"A": "run_1", "B": "\u00fc\n"}
        assert read_for_run(services.vault, work, "ws_other", "run_1") == {}
    with services.database.write() as work:
        forget_run(work, "ws_other", "run_1")
        assert work.execute(sa.select(sa.func.count()).select_from(run_secrets)).scalar_one() == 4
        forget_run(work, ada.workspace_id, "run_1")
    with services.database.read() as work:
        assert read_for_run(services.vault, work, ada.workspace_id, "run_1") == {}
        assert set(work.execute(sa.select(run_secrets.c.run_id)).scalars()) == {"run_2"}
        assert read_for_run(services.vault, work, ada.workspace_id, "run_2")["A"] == "run_2"


def test_a_bad_value_of_a_run_keeps_none_of_them(ada, services):
    for provided in ({"A": "fine", "b": "v"}, {"A": "fine", "B": "a\0b"}, {"A": "fine", "PATH": "/tmp"}):
        with pytest.raises(InvalidRequestError), services.database.write() as work:
            keep_for_run(services.vault, work, ada.workspace_id, "run_1", provided)
    with services.database.read() as work:
        assert read_for_run(services.vault, work, ada.workspace_id, "run_1") == {}


def test_a_run_keeps_its_values_under_its_workspace_key_and_unreadable(ada, services):
    with services.database.write() as work:
        keep_for_run(services.vault, work, ada.workspace_id, "run_1", {"A": "hunter2-of-run"})
        assert b"hunter2" not in bytes(work.execute(sa.select(run_secrets.c.ciphertext)).scalar_one())


@pytest.mark.parametrize(
    "name", ["A", "OPENAI_API_KEY", "A_", "A1", "A" * 255, "OSMOSIS_API_KEY", "PATHS", "OSMOSIS_TOKEN"]
)
def test_names(name):
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", "a", "Key", "1A", "_A", "A-B", "A B", "A\n", "A\0", "\u00c4", "\uff21", "A" * 256, "\ud800", "A=B", "../A",
     "PATH", "HOME", "LD_PRELOAD", "LD_LIBRARY_PATH", "OSMOSIS_MASTER_KEY", "OSMOSIS_MASTER_KEY_FILE",
     "OSMOSIS_PLATFORM_PORT", "_OSMOSIS_X"],
)  # fmt: skip
def test_names_that_are_none(name):
    with pytest.raises(InvalidRequestError) as caught:
        check_name(name)
    assert caught.value.field == "name"


@pytest.mark.parametrize("value", ["x", " ", "\n", "a\r\nb", "\u6f22\U0001f389", "\x01\x7f", "x" * MAX_VALUE_BYTES])
def test_values_are_kept_verbatim(value):
    assert check_value(value).decode() == value


@pytest.mark.parametrize(
    "value",
    ["", "\0", "hunter2\0", "hunter2\ud800", "x" * (MAX_VALUE_BYTES + 1), "\u00fc" * (MAX_VALUE_BYTES // 2) + "x"],
)
def test_values_that_are_none_are_refused_without_being_shown(value):
    with pytest.raises(InvalidRequestError) as caught:
        check_value(value)
    assert caught.value.field == "value"
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert len(str(caught.value)) < 200
