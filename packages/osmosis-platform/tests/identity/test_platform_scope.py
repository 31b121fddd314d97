"""Which workspace a request is for, what verify tells, and what clients of other versions hear."""

from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from osmosis_platform.api.app import create_app
from osmosis_platform.api.scope import CSRF_HEADER, SESSION_COOKIE
from osmosis_platform.db.repositories.sessions import SessionRepository
from osmosis_platform.db.tables.git import repositories
from osmosis_platform.identity.accounts import change_workspace, create_workspace
from osmosis_platform.identity.sessions import csrf_token, open_session
from osmosis_platform.services import Services

LIST = "/api/cli/environment-secrets"


def code(answer):
    return answer.status_code, answer.json().get("code")


def test_a_workspace_is_found_by_its_repository_or_its_name(house, client):
    headers = house.headers("ada")
    for scope in ({"X-Osmosis-Git": "lab/lab"}, {"X-Osmosis-Git": "LAB/Lab"}, {"X-Osmosis-Workspace": " Lab "}):
        assert client.get(LIST, headers=headers | scope).status_code == 200
    house.write(lambda work: change_workspace(work, house.actor("ada"), house.workspace.id, name="studio"))
    for name in ("studio", "lab", house.workspace.id):
        assert client.get(LIST, headers=headers | {"X-Osmosis-Workspace": name}).status_code == 200


NOWHERE = [
    ({}, (400, "GIT_SCOPE_HEADER_REQUIRED")),
    ({"X-Osmosis-Git": ""}, (400, "GIT_SCOPE_HEADER_INVALID")),
    ({"X-Osmosis-Git": "lab"}, (400, "GIT_SCOPE_HEADER_INVALID")),
    ({"X-Osmosis-Git": "../../etc/passwd"}, (400, "GIT_SCOPE_HEADER_INVALID")),
    ({"X-Osmosis-Git": "a/" + "b" * 500}, (400, "GIT_SCOPE_HEADER_INVALID")),
    ({"X-Osmosis-Git": "acme/other"}, (404, "GIT_REPOSITORY_NOT_CONNECTED")),
    ({"X-Osmosis-Git": "lab/lab", "X-Osmosis-Workspace": "lab"}, (400, "WORKSPACE_SCOPE_HEADER_CONFLICT")),
    ({"X-Osmosis-Workspace": "nowhere"}, (403, "WORKSPACE_SCOPE_HEADER_ACCESS_DENIED")),
    ({"X-Osmosis-Workspace": ""}, (403, "WORKSPACE_SCOPE_HEADER_ACCESS_DENIED")),
]


def test_every_scope_that_leads_nowhere_has_its_code(house, client):
    headers = house.headers("ada")
    assert [code(client.get(LIST, headers=headers | scope)) for scope, _ in NOWHERE] == [
        expected for _, expected in NOWHERE
    ]


def test_strangers_hear_the_same_of_a_workspace_as_of_none(everybody, client):
    headers = everybody.headers("stranger")
    for real, invented, header in (("lab/lab", "non/sense", "X-Osmosis-Git"), ("lab", "sense", "X-Osmosis-Workspace")):
        answers = [client.get(LIST, headers=headers | {header: value}).json() for value in (real, invented)]
        assert str(answers[0]).replace(real, "?") == str(answers[1]).replace(invented, "?")


def test_a_restricted_token_reaches_its_workspace_alone(house, client):
    studio = house.write(lambda work: create_workspace(house.services, work, house.actor("ada"), "studio"))
    headers = house.headers("ada", workspace_id=studio.id)
    assert client.get(LIST, headers=headers | {"X-Osmosis-Workspace": "studio"}).status_code == 200
    assert code(client.get(LIST, headers=headers | {"X-Osmosis-Git": "lab/lab"})) == (
        403,
        "GIT_REPOSITORY_ACCESS_DENIED",
    )
    denied = client.get(LIST, headers=headers | {"X-Osmosis-Workspace": "lab"})
    assert code(denied) == (403, "WORKSPACE_SCOPE_HEADER_ACCESS_DENIED")
    assert [one["name"] for one in client.get("/api/cli/workspaces", headers=headers).json()["workspaces"]] == [
        "studio"
    ]
    assert code(client.get(f"/api/cli/quickstart?organizationId={house.workspace.id}", headers=headers))[0] == 404


def test_a_repository_of_two_workspaces_needs_the_name(house, client):
    studio = house.write(lambda work: create_workspace(house.services, work, house.actor("ada"), "studio"))
    mine = repositories.update().where(repositories.c.workspace_id == studio.id)
    house.write(lambda work: work.execute(mine.values(identity="lab/lab")))
    answer = client.get(LIST, headers=house.headers("ada") | {"X-Osmosis-Git": "lab/lab"})
    assert code(answer) == (409, "GIT_SCOPE_AMBIGUOUS") and "studio" in answer.json()["message"]


REFUSED = [
    (None, "AUTH_HEADER_MISSING"),
    ("", "TOKEN_MISSING"),
    ("Bearer", "TOKEN_MISSING"),
    ("Bearer ", "TOKEN_MISSING"),
    ("Basic abc", "TOKEN_MISSING"),
    ("Bearer nonsense", "TOKEN_INVALID"),
    ("Bearer \xff\xfe", "TOKEN_INVALID"),
]


def test_verify_says_what_is_wrong_with_the_credential(client):
    for header, expected in REFUSED:
        headers = {} if header is None else {"Authorization": header.encode("latin-1")}
        assert code(client.get("/api/cli/verify", headers=headers)) == (401, expected), header


def test_verify_never_fails_for_the_clone_at_hand(house, client):
    headers = house.headers("ada")
    linked = client.get("/api/cli/verify", headers=headers | {"X-Osmosis-Git": "lab/lab"}).json()
    assert linked["workspace"] == {"id": house.workspace.id, "name": "lab", "role": "owner"}
    for git in ("acme/unlinked", "", "///", "x" * 3000):
        answer = client.get("/api/cli/verify", headers=headers | {"X-Osmosis-Git": git})
        assert (answer.status_code, answer.json()["workspace"]) == (200, None)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(git=st.binary(max_size=40), name=st.binary(max_size=40))
def test_any_header_has_an_answer(house, client, git, name):
    bad = bytes(range(32)) + b"\x7f"
    git, name = git.translate(None, bad), name.translate(None, bad)
    headers = {key: value.encode() for key, value in house.headers("ada").items()}
    for scope in ({"X-Osmosis-Git": git}, {"X-Osmosis-Workspace": name}):
        assert client.get(LIST, headers=headers | scope).status_code < 500


def test_a_browsers_write_needs_what_only_our_pages_know(house, client):
    opened = house.write(lambda work: open_session(work, house.users["ada"].id, days=14))
    path = "/api/v1/workspaces/lab/repository"
    client.cookies.set(SESSION_COOKIE, opened.secret)
    assert client.get(path).status_code == 200
    assert code(client.post(f"{path}/sync")) == (403, "CSRF")
    assert code(client.post(f"{path}/sync", headers={CSRF_HEADER: csrf_token("other")})) == (403, "CSRF")
    assert client.post(f"{path}/sync", headers={CSRF_HEADER: csrf_token(opened.secret)}).status_code < 300
    assert code(client.get("/api/cli/workspaces")) == (401, "AUTH_HEADER_MISSING")  # cookies are for pages alone
    house.clock.turn(days=14)
    assert code(client.get(path)) == (401, "SESSION_OVER")


def test_a_closed_session_is_over_at_once(house, client):
    opened = house.write(lambda work: open_session(work, house.users["ada"].id, days=14))
    client.cookies.set(SESSION_COOKIE, opened.secret)
    assert client.get("/api/v1/workspaces/lab/repository").status_code == 200
    house.write(lambda work: SessionRepository(work).close(house.users["ada"].id, opened.id))
    assert code(client.get("/api/v1/workspaces/lab/repository")) == (401, "SESSION_OVER")


def test_quickstart_knows_repository_billing_and_intent(house, client):
    headers, place = house.headers("ada"), f"/api/cli/quickstart?organizationId={house.workspace.id}"
    repo = {"connected": True, "full_name": "lab/lab", "clone_url": "/git/lab/lab.git"}
    before = {"repo": repo, "billing_ready": True, "completed": False}
    assert client.get(place, headers=headers).json() == before
    body = {"organizationId": house.workspace.id, "intent": "train"}
    for intent in ("train", "eval"):
        assert client.post("/api/cli/quickstart", json=body | {"intent": intent}, headers=headers).status_code == 200
    assert client.get(place, headers=headers).json() == before | {"completed": True}
    assert client.post("/api/cli/quickstart", json=body | {"intent": "sleep"}, headers=headers).status_code == 400
    strict = Services(house.services.settings.model_copy(update={"require_billing": True}), house.services.database)
    assert TestClient(create_app(strict)).get(place, headers=headers).json()["billing_ready"] is False


def test_a_client_makes_a_workspace_and_sees_it_listed(house, client):
    headers, place = house.headers("ada"), "/api/cli/workspaces"
    made = client.post(place, json={"name": "second"}, headers=headers)
    assert made.status_code == 201, made.text
    assert (made.json()["role"], made.json()["connected_repo"]["clone_url"]) == ("owner", "/git/second/second.git")
    assert made.json() in client.get(place, headers=headers).json()["workspaces"]
    assert client.post(place, json={"name": "second"}, headers=headers).status_code == 409
    assert client.post(place, json={"name": "-"}, headers=headers).json()["code"] == "NAME_INVALID"


def test_clients_hear_of_versions_only_what_an_administrator_meant(house):
    versions = {"minimum_client": "0.3.5", "deprecated_client": "0.3.7", "recommended_client": "0.3.9"}
    strict = Services(house.services.settings.model_copy(update=versions), house.services.database, house.clock)

    def hear(services, version):
        headers = house.headers("ada") | {"X-Osmosis-CLI-Version": version}
        answer = TestClient(create_app(services)).get("/api/cli/verify", headers=headers)
        return answer.status_code, answer.headers.get("x-osmosis-version-status"), answer

    assert hear(house.services, "0.0.1")[:2] == (200, None)
    for version, expected in {
        "0.3.4": (426, None),
        "0.3.6": (200, "deprecated"),
        "0.3.8": (200, "upgrade_available"),
        "0.3.9": (200, None),
        "nonsense": (200, None),
    }.items():
        assert hear(strict, version)[:2] == expected
    body = hear(strict, "0.3.4")[2].json()
    assert body["status"] == "unsupported" and "0.3.5" in body["message"]
