"""NUL characters, lone surrogates and giant numbers in every place of a request, on both databases: 4xx, never 5xx."""

import json

import pytest
from fastapi.testclient import TestClient
from osmosis_platform.api.app import create_app
from osmosis_platform.db.repositories.memberships import MembershipRepository
from osmosis_platform.db.repositories.users import UserRepository
from osmosis_platform.db.repositories.workspaces import WorkspaceRepository
from osmosis_platform.domain.permissions import Role
from osmosis_platform.git import hosting
from osmosis_platform.identity.tokens import issue_token

TEXTS = ["a\x00b", "\ud800", "9" * 400]
BODIES = [b"\xff", b"[" * 5000, b"null", b'{"\\ud800": "\\u0000"}']


@pytest.fixture
def client(services, monkeypatch):
    monkeypatch.setattr("osmosis_platform.api.envelope.log.error", lambda *_args, **_facts: None, raising=False)
    with services.database.write() as work:
        user = UserRepository(work).add("a@example.com", name="a", password_hash=None, is_administrator=True)
        token = issue_token(work, user.id, kind="personal", name="t", scopes=["all"], expires_at=None)
        lab = WorkspaceRepository(work).add("lab", created_by=user.id)
        MembershipRepository(work).add(lab.id, user.id, Role.OWNER)
        hosting.create_hosted(services, work, lab.id, "lab", user.id)
    headers = {"Authorization": f"Bearer {token.secret}", "X-Osmosis-Workspace": "lab"}
    return TestClient(create_app(services), headers=headers, raise_server_exceptions=False)


def operations(client):
    document = client.get("/api/openapi.json").json()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if "/stream" not in path:
                yield method.upper(), path, operation, document["components"]["schemas"]


def escaped(text):
    return "".join(f"%{byte:02X}" for byte in text.encode("utf-8", "surrogatepass"))


def fields_of(operation, schemas):
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    if "$ref" in content:
        content = schemas[content["$ref"].rpartition("/")[2]]
    return list(content.get("properties", {}))


def requests(client):
    """(method, path with query, body) for each operation, hostile in one place at a time."""
    for method, path, operation, schemas in operations(client):
        parameters = operation.get("parameters", [])
        names = [one["name"] for one in parameters if one["in"] == "path"]
        queries = [one["name"] for one in parameters if one["in"] == "query"]
        fields = fields_of(operation, schemas)
        plain = path.replace("{workspace}", "lab")
        for name in names:
            plain = plain.replace("{" + name + "}", "x")
            for text in TEXTS:
                yield method, path.replace("{" + name + "}", escaped(text)).replace("{workspace}", "lab"), None
        for name in queries:
            for text in TEXTS:
                yield method, f"{plain}?{name}={escaped(text)}", None
        if fields:
            for body in BODIES:
                yield method, plain, body
            for value in (*TEXTS, 10**30, -1, ["x"], {"a": 1}):
                yield method, plain, json.dumps(dict.fromkeys(fields, value)).encode()
            for field in fields:
                for text in TEXTS[:2]:
                    yield method, plain, json.dumps(dict.fromkeys(fields, "valid-name") | {field: text}).encode()


def test_hostile_text_is_answered(client):
    failures = []
    for method, path, body in dict.fromkeys(requests(client)):
        headers = {"Content-Type": "application/json"} if body is not None else {}
        answer = client.request(method, path, content=body, headers=headers)
        if answer.status_code >= 500:
            failures.append(f"{answer.status_code} {method} {path} {body!r:.200} {answer.text[:150]}")
    assert not failures, f"{len(failures)}:\n" + "\n".join(failures[:40])
