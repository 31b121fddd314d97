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
    resolve,
    set_secret,
)
from osmosis_platform.secrets.provided import keep_for_run

URL = "http://127.0.0.1:8700/lab/secrets"
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
    assert got.versions == {"OVER": 1, "OWN": 1, "SHARED": 1}
    assert got.redactor.text("given ada OVER workspace SHARED") == "[REDACTED] [REDACTED] [REDACTED]"
    got.require(URL)
    got = resolved(bob, "OVER", "OWN")
    assert got.values == {"OVER": "workspace OVER", "OWN": "bob OWN"}
    assert got.scopes == {"OVER": "workspace", "OWN": "user"}


def test_missing_names_are_answered_as_the_client_reads_them(ada, bob, put, resolved):
    put(bob, "user", "OTHERS", "v")
    got = resolved(ada, "OTHERS", "B", "A", "A")
    assert (got.values, got.missing) == ({}, ("A", "B", "OTHERS"))
    with pytest.raises(MissingError, match=r"^Secret\(s\) not found: A, B, OTHERS\.") as caught:
        got.require(URL)
    assert (caught.value.status, caught.value.error_code) == (404, "SECRETS_NOT_FOUND")
    assert caught.value.details == {"missing_secrets": ["A", "B", "OTHERS"], "platform_url": URL}


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


def test_a_run_keeps_its_values_under_its_workspace_key_and_unreadable(ada, services):
    with services.database.write() as work:
        keep_for_run(services.vault, work, ada.workspace_id, "run_1", {"A": "hunter2-of-run"})
        assert b"hunter2" not in bytes(work.execute(sa.select(run_secrets.c.ciphertext)).scalar_one())


@pytest.mark.parametrize(
    "name",
    ["A", "OPENAI_API_KEY", "A_", "A1", "A" * 255, "OSMOSIS_API_KEY", "DAYTONA_API_KEY", "PATHS", "OSMOSIS_TOKEN"],
)
def test_names(name):
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", "a", "Key", "1A", "_A", "A-B", "A B", "A\n", "A\0", "\u00c4", "\uff21", "A" * 256, "\ud800", "A=B", "../A",
     "PATH", "HOME", "LD_PRELOAD", "LD_LIBRARY_PATH", "OSMOSIS_MASTER_KEY", "OSMOSIS_MASTER_KEY_FILE",
     "OSMOSIS_PLATFORM_PORT", "SKYPILOT_NODE_RANK", "_OSMOSIS_X"],
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
