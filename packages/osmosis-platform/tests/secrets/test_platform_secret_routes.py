"""`/api/cli/environment-secrets` and its /api/v1 twin on both databases: names go out, values never do."""

import logging
import re

import pytest
import sqlalchemy as sa
import structlog
from osmosis_platform.db.repositories.audit import AuditRepository
from osmosis_platform.db.tables import metadata
from osmosis_platform.domain.permissions import Role
from osmosis_platform.secrets.keeping import MAX_VALUE_BYTES

ON_SQLITE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)  # no SQL of its own is at stake
PATH = "/api/cli/environment-secrets"
URL = "http://127.0.0.1:8700/lab/secrets"
ITEM = {"id", "name", "scope", "created_at", "updated_at", "creator_name", "updater_name"}
VALUE = "hunter2-3cd1f"


@pytest.fixture
def bob(people, ada):
    return people.make("bob", Role.MEMBER)


def put(person, name, scope="workspace", value=VALUE):
    reply = person.call("POST", PATH, {"name": name, "value": value, "scope": scope})
    assert reply.status_code == 200, reply.text
    return reply.json()


def names(person, **parameters):
    body = person.call("GET", PATH, **parameters).json()
    return [(one["name"], one["scope"]) for one in body["environment_secrets"]]


def code(reply):
    return reply.status_code, reply.json()["code"]


def test_setting_answers_the_item_without_its_value(ada):
    item = put(ada, "OPENAI_API_KEY")
    assert set(item) == ITEM | {"platform_url"}
    assert re.fullmatch(r"sc_[0-9a-z]{26}", item["id"])
    assert (item["name"], item["scope"]) == ("OPENAI_API_KEY", "workspace")
    assert (item["creator_name"], item["updater_name"], item["platform_url"]) == ("Ada", "Ada", URL)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", item["created_at"])
    assert item["created_at"] == item["updated_at"]


def test_a_list_is_the_envelope_of_the_wire(ada):
    put(ada, "KEY")
    body = ada.call("GET", PATH).json()
    assert set(body) == {"environment_secrets", "total_count", "has_more", "next_offset", "platform_url"}
    assert (body["total_count"], body["has_more"], body["next_offset"], body["platform_url"]) == (1, False, None, URL)
    assert [set(one) for one in body["environment_secrets"]] == [ITEM]


@ON_SQLITE
def test_an_empty_list(ada):
    body = ada.call("GET", PATH).json()
    assert (body["environment_secrets"], body["total_count"], body["has_more"]) == ([], 0, False)


def test_scopes_choose_whose(ada, bob):
    put(ada, "B")
    put(ada, "A", "user")
    put(ada, "B", "user")
    put(bob, "C", "user")
    assert names(ada) == [("A", "user"), ("B", "user"), ("B", "workspace")]
    assert names(ada, scope="all") == names(ada)
    assert names(ada, scope="workspace") == [("B", "workspace")]
    assert names(ada, scope="user") == [("A", "user"), ("B", "user")]
    assert names(bob) == [("B", "workspace"), ("C", "user")]
    assert code(ada.call("GET", PATH, scope="personal")) == (400, "VALIDATION")


def test_pages(ada):
    for letter in "EDCBA":
        put(ada, letter, "user")
    first = ada.call("GET", PATH, limit=2).json()
    assert [one["name"] for one in first["environment_secrets"]] == ["A", "B"]
    assert (first["total_count"], first["has_more"], first["next_offset"]) == (5, True, 2)
    last = ada.call("GET", PATH, limit=2, offset=4).json()
    assert [one["name"] for one in last["environment_secrets"]] == ["E"]
    assert (last["total_count"], last["has_more"], last["next_offset"]) == (5, False, None)
    beyond = ada.call("GET", PATH, offset=9).json()
    assert (beyond["environment_secrets"], beyond["total_count"], beyond["has_more"]) == ([], 5, False)
    for wrong in ({"limit": 0}, {"limit": 51}, {"limit": "x"}, {"offset": -1}, {"offset": 1 << 40}):
        assert code(ada.call("GET", PATH, **wrong)) == (400, "VALIDATION")


def test_an_update_keeps_the_maker_and_names_the_changer(people, ada):
    made = put(ada, "KEY")
    changed = put(people.make("carol", Role.ADMIN), "KEY", value="other")
    assert (changed["id"], changed["created_at"]) == (made["id"], made["created_at"])
    assert (changed["creator_name"], changed["updater_name"]) == ("Ada", "Carol")
    assert changed["updated_at"] >= made["updated_at"]
    assert len(names(ada)) == 1


def test_deleting_takes_a_body_and_answers_nothing(ada):
    put(ada, "KEY")
    put(ada, "KEY", "user")
    reply = ada.call("DELETE", PATH, {"name": "KEY", "scope": "user"})
    assert (reply.status_code, reply.content) == (204, b"")
    assert names(ada) == [("KEY", "workspace")]
    assert code(ada.call("DELETE", PATH, {"name": "KEY", "scope": "user"})) == (404, "NOT_FOUND")
    assert ada.call("DELETE", PATH, {"name": "KEY", "scope": "workspace"}).status_code == 204
    assert code(ada.call("DELETE", PATH, {"name": "KEY", "scope": "workspace"})) == (404, "NOT_FOUND")
    assert code(ada.call("DELETE", PATH)) == (400, "VALIDATION")


@ON_SQLITE
def test_a_member_writes_personal_secrets_only(ada, bob):
    put(bob, "KEY", "user")
    put(ada, "OURS")
    refused = bob.call("POST", PATH, {"name": "KEY", "value": VALUE, "scope": "workspace"})
    assert code(refused) == (403, "FORBIDDEN")
    assert VALUE not in refused.text
    assert "subscription" not in refused.text.lower(), "the client would take it for another thing"
    assert code(bob.call("DELETE", PATH, {"name": "OURS", "scope": "workspace"})) == (403, "FORBIDDEN")
    assert names(bob) == [("KEY", "user"), ("OURS", "workspace")]


@ON_SQLITE
def test_a_viewer_reads_names_and_writes_nothing(people, ada):
    put(ada, "OURS")
    eve = people.make("eve", Role.VIEWER)
    assert names(eve) == [("OURS", "workspace")]
    for scope in ("user", "workspace"):
        assert code(eve.call("POST", PATH, {"name": "KEY", "value": VALUE, "scope": scope})) == (403, "FORBIDDEN")


@ON_SQLITE
def test_a_token_for_reading_does_not_write(people, ada):
    eve = people.make("eve", scopes=("secrets:read",))
    assert eve.call("GET", PATH).status_code == 200
    assert code(eve.call("POST", PATH, {"name": "KEY", "value": VALUE, "scope": "user"})) == (
        403,
        "TOKEN_SCOPE_MISSING",
    )


@ON_SQLITE
def test_a_stranger_reaches_neither_route(people, ada):
    put(ada, "KEY")
    eve = people.make("eve", role=None)
    assert code(eve.call("GET", PATH)) == (403, "WORKSPACE_SCOPE_HEADER_ACCESS_DENIED")
    assert eve.call("GET", "/api/v1/workspaces/lab/secrets").status_code == 404


def test_anothers_personal_secret_is_invisible_even_to_the_owner(ada, bob):
    put(bob, "KEY", "user")
    assert names(ada) == []
    assert code(ada.call("DELETE", PATH, {"name": "KEY", "scope": "user"})) == (404, "NOT_FOUND")
    made = put(ada, "KEY", "user")
    assert made["creator_name"] == "Ada"
    assert names(bob) == [("KEY", "user")]


@ON_SQLITE
def test_the_v1_twin_does_the_same(ada, bob):
    path = "/api/v1/workspaces/lab/secrets"
    item = ada.call("PUT", path, {"name": "KEY", "value": VALUE, "scope": "workspace"})
    assert item.status_code == 200
    assert set(item.json()) == ITEM
    assert ada.call("GET", path).json() == ada.call("GET", PATH).json()
    assert code(bob.call("DELETE", f"{path}/workspace/KEY")) == (403, "FORBIDDEN")
    assert ada.call("DELETE", f"{path}/workspace/KEY").status_code == 204
    assert code(ada.call("DELETE", f"{path}/workspace/KEY")) == (404, "NOT_FOUND")
    assert code(ada.call("DELETE", f"{path}/all/KEY")) == (400, "VALIDATION")


HOSTILE = [
    {"name": ""}, {"name": "key"}, {"name": "A\0"}, {"name": "A\ud800"}, {"name": "A" * 256}, {"name": "PATH"},
    {"name": "OSMOSIS_MASTER_KEY"}, {"name": None}, {"name": 1}, {"name": ["KEY"]}, {"name": "\uff21"},
    {"value": ""}, {"value": VALUE + "\0"}, {"value": VALUE + "\ud800"}, {"value": VALUE * 5100}, {"value": None},
    {"value": [VALUE]}, {"value": {VALUE: VALUE}}, {"value": 12}, {"value": True},
    {"scope": "all"}, {"scope": "personal"}, {"scope": VALUE}, {"scope": None}, {"scope": ""},
]  # fmt: skip


def test_hostile_texts_are_refused_and_no_value_is_shown(ada):
    assert len(VALUE) * 5100 > MAX_VALUE_BYTES
    good = {"name": "KEY", "value": VALUE, "scope": "user"}
    for change in HOSTILE:
        reply = ada.call("POST", PATH, good | change)
        assert reply.status_code == 400, (change, reply.text[:500])
        assert reply.json()["code"] in {"VALIDATION", "UNSTORABLE_VALUE"}
        assert VALUE not in reply.text
    for missing in good:
        reply = ada.call("POST", PATH, {key: value for key, value in good.items() if key != missing})
        assert code(reply) == (400, "VALIDATION")
        assert (reply.json()["field"], VALUE in reply.text) == (missing, False)
    for body in ([VALUE], VALUE, 1):
        reply = ada.call("POST", PATH, body)
        assert (code(reply), VALUE in reply.text) == ((400, "VALIDATION"), False)
    assert names(ada) == []


def test_hostile_names_to_delete_are_answered(ada):
    for name in ("", "key", "A\0", "A\ud800", "A" * 5000, "PATH", "../x"):
        reply = ada.call("DELETE", PATH, {"name": name, "scope": "user"})
        assert reply.status_code in {400, 404}, (name, reply.text)
        assert len(reply.text) < 1500


@ON_SQLITE
def test_the_largest_value_is_taken(ada):
    put(ada, "KEY", value="x" * MAX_VALUE_BYTES)


def test_a_value_is_nowhere_but_encrypted(ada, bob, services, tmp_path, capfd, caplog):
    caplog.set_level(logging.DEBUG)
    put(ada, "KEY")
    put(ada, "KEY", value=VALUE + " again")
    put(bob, "KEY", "user")
    shown = [bob.call("POST", PATH, {"name": "KEY", "value": VALUE, "scope": "workspace"}).text]
    shown += [ada.call("POST", PATH, {"name": "key", "value": VALUE, "scope": "user"}).text]
    shown += [ada.call("GET", PATH).text]
    with services.database.read() as work:
        rows = [repr(row) for table in metadata.sorted_tables for row in work.execute(sa.select(table))]
        assert any("secret.update" in row for row in rows)
        shown += rows
        assert [entry.action for entry in AuditRepository(work).page(ada.workspace_id)].count("secret.create") == 2
    with services.database.write() as work:
        work.execute(sa.text("ALTER TABLE secrets RENAME TO away"))
    with structlog.testing.capture_logs() as logged:
        broken = ada.call("POST", PATH, {"name": "KEY", "value": VALUE, "scope": "user"})
    [fault] = [dict(structlog.processors.format_exc_info(None, "", line)) for line in logged if "exc_info" in line]
    assert "Traceback" in fault["exception"]
    assert broken.status_code in {500, 503}
    shown += [broken.text, repr(fault), repr(logged), caplog.text, *capfd.readouterr()]
    assert not [text for text in shown if "hunter2" in text]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in files if b"hunter2" in path.read_bytes()]
    if services.database.dialect == "sqlite":
        assert (tmp_path / "platform.sqlite3") in files
