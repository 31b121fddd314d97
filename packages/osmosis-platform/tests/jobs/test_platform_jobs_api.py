"""The jobs of a workspace over HTTP."""

import pytest
from fastapi.testclient import TestClient
from osmosis_platform.api.app import create_app
from osmosis_platform.db.repositories.audit import AuditRepository
from osmosis_platform.db.repositories.leases import LeaseRepository
from osmosis_platform.db.repositories.memberships import MembershipRepository
from osmosis_platform.db.repositories.users import UserRepository
from osmosis_platform.db.repositories.workspaces import WorkspaceRepository
from osmosis_platform.domain.permissions import Role
from osmosis_platform.identity.tokens import issue_token
from osmosis_platform.jobs.queue import enqueue

JOBS = "/api/v1/workspaces/lab/jobs"


@pytest.fixture
def people(services):
    """Headers of one person for each role, and of a stranger with a workspace of their own."""
    headers = {}
    with services.database.write() as work:
        for name in (*Role, "stranger"):
            user = UserRepository(work).add(
                f"{name}@example.com", name=name, password_hash=None, is_administrator=False
            )
            token = issue_token(work, user.id, kind="personal", name="t", scopes=["all"], expires_at=None)
            headers[str(name)] = {"Authorization": f"Bearer {token.secret}"}
            if name == Role.OWNER:
                lab = WorkspaceRepository(work).add("lab", created_by=user.id)
            if name == "stranger":
                other = WorkspaceRepository(work).add("other", created_by=user.id)
                MembershipRepository(work).add(other.id, user.id, Role.OWNER)
            else:
                MembershipRepository(work).add(lab.id, user.id, name)
        headers["ids"] = {"lab": lab.id, "other": other.id}
    return headers


@pytest.fixture
def client(services):
    return TestClient(create_app(services))


def put(services, people, **options):
    with services.database.write() as work:
        return enqueue(work, people["ids"]["lab"], "test.a", {"hidden": 1}, **options)


def test_jobs_are_listed_newest_first_in_pages_and_by_state(services, people, client):
    ids = [put(services, people, subject_id=f"ds_{n}") for n in range(3)]
    viewer = people["viewer"]
    first = client.get(JOBS, params={"limit": 2}, headers=viewer).json()
    assert [job["id"] for job in first["jobs"]] == [ids[2], ids[1]]
    assert (first["total_count"], first["has_more"], first["next_offset"]) == (3, True, 2)
    rest = client.get(JOBS, params={"limit": 2, "offset": 2}, headers=viewer).json()
    assert [job["id"] for job in rest["jobs"]] == [ids[0]]
    assert "hidden" not in str(first)
    assert client.get(JOBS, params={"status": "running"}, headers=viewer).json()["jobs"] == []
    assert client.get(JOBS, params={"subject_id": "ds_1"}, headers=viewer).json()["jobs"][0]["id"] == ids[1]
    assert client.get(JOBS, params={"status": "sleeping"}, headers=viewer).status_code == 400


def test_a_cancel_is_at_once_or_asked_for_and_is_audited_once(services, people, client):
    waiting, running = put(services, people), put(services, people, priority=1)
    with services.database.write() as work:
        assert LeaseRepository(work).claim(["cpu"], "worker", lease_s=15, limit=1)[0].id == running
    member = people["member"]
    for _ in range(2):
        assert client.post(f"{JOBS}/{waiting}/cancel", headers=member).json()["status"] == "cancelled"
        answer = client.post(f"{JOBS}/{running}/cancel", headers=member).json()
        assert (answer["status"], answer["cancel_requested"]) == ("running", True)
    with services.database.read() as work:
        entries = AuditRepository(work).page(people["ids"]["lab"], limit=50)
    assert str(entries).count("job.cancel") == 2


def test_a_job_that_has_ended_cannot_be_cancelled(services, people, client):
    job_id = put(services, people)
    with services.database.write() as work:
        [job] = LeaseRepository(work).claim(["cpu"], "worker", lease_s=15, limit=1)
        LeaseRepository(work).finish(job.id, job.epoch, {"rows": 2})
    answer = client.post(f"{JOBS}/{job_id}/cancel", headers=people["owner"])
    assert (answer.status_code, answer.json()["code"]) == (409, "CONFLICT")
    assert client.get(f"{JOBS}/{job_id}", headers=people["owner"]).json()["result"] == {"rows": 2}


def test_others_see_and_cancel_nothing(services, people, client):
    job_id = put(services, people)
    stranger = people["stranger"]
    assert client.get(f"{JOBS}/{job_id}", headers=stranger).status_code == 404
    assert client.get(f"/api/v1/workspaces/other/jobs/{job_id}", headers=stranger).status_code == 404
    assert client.post(f"/api/v1/workspaces/other/jobs/{job_id}/cancel", headers=stranger).status_code == 404
    assert client.post(f"{JOBS}/{job_id}/cancel", headers=people["viewer"]).status_code == 403
    assert client.get(JOBS).status_code == 401
