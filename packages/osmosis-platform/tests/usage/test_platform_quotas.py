"""Limits that administrators set, what counts against them, and the summary of what was used, on both databases."""

from datetime import UTC, datetime, timedelta

import pytest
from osmosis_platform.db.repositories.audit import AuditRepository
from osmosis_platform.domain.permissions import Role
from osmosis_platform.errors import InvalidRequestError, QuotaError
from osmosis_platform.usage.metering import record
from osmosis_platform.usage.quotas import NAMES, check, set_quota
from platform_people import People

ON_SQLITE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)  # no SQL of its own is at stake
USAGE = "/api/v1/workspaces/lab/usage"
FOR_ALL = "/api/v1/platform/quotas"


@pytest.fixture
def people(services):
    return People(services)


@pytest.fixture
def ada(people):
    return people.make("ada")


@pytest.fixture
def root(people):
    """An administrator of the platform, in no workspace of these tests."""
    return people.make("root", role=None, administrator=True)


def code(reply):
    return reply.status_code, reply.json()["code"]


def begin(person, name, size):
    return person.call("POST", "/api/cli/datasets", {"file_name": name, "file_size": size, "extension": "csv"})


# -- rules


def test_without_a_limit_there_is_none(database):
    with database.read() as work:
        for name in NAMES:
            check(work, "ws_a", name, 1e18)


def test_a_limit_is_reached_but_not_passed(database):
    with database.write() as work:
        set_quota(work, "ws_a", "datasets.file_bytes", 100)
        check(work, "ws_a", "datasets.file_bytes", 100)
        with pytest.raises(QuotaError, match=r"101 bytes of one dataset; the limit is 100\. .*administrator") as caught:
            check(work, "ws_a", "datasets.file_bytes", 101)
        assert (caught.value.status, caught.value.error_code) == (403, "QUOTA_EXCEEDED")
        assert caught.value.details == {"quota": "datasets.file_bytes", "limit": 100.0, "used": 0.0, "wanted": 101}
        check(work, "ws_b", "datasets.file_bytes", 101)


def test_a_workspaces_own_limit_comes_before_that_of_all(database):
    def allowed(work, workspace_id, wanted):
        try:
            check(work, workspace_id, "datasets.file_bytes", wanted)
        except QuotaError:
            return False
        return True

    with database.write() as work:
        set_quota(work, None, "datasets.file_bytes", 10)
        set_quota(work, "ws_more", "datasets.file_bytes", 20)
        set_quota(work, "ws_none", "datasets.file_bytes", 0)
        assert [allowed(work, name, 15) for name in ("ws_more", "ws_other")] == [True, False]
        assert [allowed(work, "ws_none", wanted) for wanted in (0, 1)] == [True, False]
        set_quota(work, "ws_more", "datasets.file_bytes", None)
        assert not allowed(work, "ws_more", 15), "the one of all counts again"
        set_quota(work, None, "datasets.file_bytes", 16)
        assert allowed(work, "ws_more", 15), "replaced"
        set_quota(work, None, "datasets.file_bytes", None)
        assert allowed(work, "ws_other", 1e12)
        assert not allowed(work, "ws_none", 1), "its own stays"


@ON_SQLITE
def test_limits_that_are_none_are_refused(database):
    with database.write() as work:
        for name in ("", "datasets", "*", "x" * 10_000):
            with pytest.raises(InvalidRequestError, match=r"datasets\.bytes, datasets\.file_bytes") as caught:
                set_quota(work, "ws_a", name, 1)
            assert caught.value.field == "name"
            assert len(str(caught.value)) < 400
        for value in (-1, float("inf"), float("nan")):
            with pytest.raises(InvalidRequestError) as caught:
                set_quota(work, "ws_a", "datasets.bytes", value)
            assert caught.value.field == "value"


@ON_SQLITE
def test_amounts_that_are_none_are_not_recorded(database):
    with database.write() as work:
        for quantity in (-1, float("inf"), float("nan")):
            with pytest.raises(ValueError, match="cannot be"):
                record(work, "ws_a", "job.cpu_seconds", quantity, "seconds")


# -- over HTTP


def test_what_is_stored_counts_and_what_is_given_up_does_not(ada, root):
    path = f"/api/v1/platform/workspaces/{ada.workspace_id}/quotas/datasets.bytes"
    assert root.call("PUT", path, {"value": 100}).status_code == 204
    first = begin(ada, "a", 60).json()
    refused = begin(ada, "b", 41)
    assert code(refused) == (403, "QUOTA_EXCEEDED")
    body = refused.json()
    assert (body["quota"], body["limit"], body["used"], body["wanted"]) == ("datasets.bytes", 100, 60, 41)
    assert "subscription" not in refused.text.lower(), "the client would take it for another thing"
    limits = {one["name"]: one for one in ada.call("GET", USAGE).json()["quotas"]}
    assert (limits["datasets.bytes"]["limit"], limits["datasets.bytes"]["used"]) == (100, 60)
    assert begin(ada, "b", 40).status_code == 201
    ada.call("POST", f"/api/cli/datasets/{first['id']}/abort", {})
    assert begin(ada, "c", 60).status_code == 201
    assert root.call("PUT", path, {"value": None}).status_code == 204
    assert begin(ada, "d", 10_000).status_code == 201


def test_the_limit_of_all_holds_in_every_workspace(people, ada, root):
    eve = people.make("eve", workspace="other")
    assert root.call("PUT", f"{FOR_ALL}/datasets.file_bytes", {"value": 50}).status_code == 204
    for person in (ada, eve):
        assert code(begin(person, "a", 51)) == (403, "QUOTA_EXCEEDED")
        assert begin(person, "a", 50).status_code == 201


@ON_SQLITE
def test_only_administrators_of_the_platform_set_limits(people, ada, root):
    one = f"/api/v1/platform/workspaces/{ada.workspace_id}/quotas/datasets.bytes"
    for path in (one, f"{FOR_ALL}/datasets.bytes"):
        assert ada.call("PUT", path, {"value": 1}).status_code == 403
    assert ada.call("GET", USAGE).json()["quotas"][0]["limit"] is None
    assert root.call("PUT", one, {"value": 1}).status_code == 204


@ON_SQLITE
def test_malformed_limits_are_refused(ada, root):
    for body in ({}, {"value": -1}, {"value": "x"}, {"value": [1]}, [], {"value": float("nan")}, {"value": 10**400}):
        assert code(root.call("PUT", f"{FOR_ALL}/datasets.bytes", body)) == (400, "VALIDATION"), body
    assert code(root.call("PUT", f"{FOR_ALL}/nothing", {"value": 1})) == (400, "VALIDATION")
    missing = root.call("PUT", "/api/v1/platform/workspaces/ws_none/quotas/datasets.bytes", {"value": 1})
    assert missing.status_code == 404


def test_setting_a_limit_is_audited(ada, root, services):
    root.call("PUT", f"{FOR_ALL}/datasets.bytes", {"value": 5})
    root.call("PUT", f"/api/v1/platform/workspaces/{ada.workspace_id}/quotas/datasets.bytes", {"value": None})
    with services.database.read() as work:
        for workspace_id, value in ((None, "5.0"), (ada.workspace_id, None)):
            [entry] = [one for one in AuditRepository(work).page(workspace_id) if one.action == "quota.set"]
            assert (entry.resource_id, entry.details["value"]) == ("datasets.bytes", value)


def test_the_summary_adds_up_by_kind(ada, services):
    with services.database.write() as work:
        record(work, ada.workspace_id, "job.cpu_seconds", 1.5, "seconds", job_id="jo_1")
        record(work, ada.workspace_id, "job.cpu_seconds", 2, "seconds")
        record(work, ada.workspace_id, "model.tokens", 10, "tokens", cost_usd=0.25)
        record(work, ada.workspace_id, "model.tokens", 5, "tokens")
        record(work, "ws_other", "model.tokens", 99, "tokens")
    body = ada.call("GET", USAGE).json()
    assert body["usage"] == [
        {"kind": "job.cpu_seconds", "unit": "seconds", "quantity": 3.5, "records": 2, "cost_usd": None},
        {"kind": "model.tokens", "unit": "tokens", "quantity": 15.0, "records": 2, "cost_usd": 0.25},
    ]
    assert [one["name"] for one in body["quotas"]] == list(NAMES)
    assert {one["name"]: one["used"] for one in body["quotas"]} == {"datasets.bytes": 0, "datasets.file_bytes": None}


def test_a_span_holds_its_begin_and_not_its_end(ada, services):
    with services.database.write() as work:
        record(work, ada.workspace_id, "job.cpu_seconds", 1, "seconds")
    now = datetime.now(UTC)

    def records(**span):
        reply = ada.call("GET", USAGE, **{name: at.isoformat() for name, at in span.items()})
        assert reply.status_code == 200, reply.text
        return sum(one["records"] for one in reply.json()["usage"])

    hour = timedelta(hours=1)
    assert records(since=now - hour, until=now + hour) == 1
    assert records(since=now + hour, until=now + 2 * hour) == 0
    assert records(until=now - hour) == 0
    east = now.astimezone(tz=None) + hour
    assert records(since=now - hour, until=east) == 1


@ON_SQLITE
def test_spans_that_are_none_are_refused(ada):
    now = datetime.now(UTC)
    for span in (
        {"since": now.isoformat(), "until": now.isoformat()},
        {"since": (now + timedelta(days=1)).isoformat()},
        {"since": "2026-01-01T00:00:00"},
        {"since": "yesterday"},
        {"since": ""},
    ):
        reply = ada.call("GET", USAGE, **span)
        assert (code(reply), reply.json()["field"]) == ((400, "VALIDATION"), "since"), span


@ON_SQLITE
def test_the_ends_of_the_calendar_are_no_fault_of_ours(ada):
    first, before, after = "0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"
    assert ada.call("GET", USAGE, since=first).status_code == 200
    for name in ("since", "until"):
        for moment in (before, after):
            reply = ada.call("GET", USAGE, **{name: moment})
            assert (code(reply), reply.json()["field"]) == ((400, "VALIDATION"), name)
    assert code(ada.call("GET", USAGE, until=first)) == (400, "VALIDATION")


@ON_SQLITE
def test_members_do_not_see_usage_and_strangers_no_workspace(people, ada):
    assert code(people.make("bob", Role.MEMBER).call("GET", USAGE)) == (403, "FORBIDDEN")
    assert people.make("carol", Role.ADMIN).call("GET", USAGE).status_code == 200
    assert people.make("eve", role=None).call("GET", USAGE).status_code == 404
