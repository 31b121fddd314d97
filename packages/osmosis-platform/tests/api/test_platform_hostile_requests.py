"""Requests that are not to be served: bodies without a length over the limit, forms from nowhere, later families."""

import json

import pytest
from fastapi.testclient import TestClient
from osmosis_platform.api.app import create_app
from platform_people import People


@pytest.fixture
def client(services):
    return TestClient(create_app(services), raise_server_exceptions=False)


def chunks(services):
    for _ in range(services.settings.max_body_bytes // (1 << 20) + 2):
        yield b"a" * (1 << 20)


@pytest.mark.parametrize("path", ["/api/cli/device/token", f"/api/v1/webhooks/git/re_{'0' * 26}"])
def test_a_body_without_a_length_has_the_same_limit(client, services, path):
    answer = client.post(path, content=chunks(services), headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (413, "TOO_LARGE")
    assert str(services.settings.max_body_bytes) in answer.json()["message"]


@pytest.mark.parametrize("origin", ["http://[", "http://[::1", "null", "http://elsewhere.test"])
def test_a_form_from_no_address_is_refused(client, origin):
    answer = client.post("/sign-in", data={"email": "a@b.test", "password": "x"}, headers={"Origin": origin})
    assert (answer.status_code, answer.json()["code"]) == (403, "CSRF")


@pytest.mark.parametrize("family", ["eval-runs", "training-runs/x", "benchmarks", "benchmark-runs", "models/base"])
def test_a_family_that_is_not_served_yet_is_named(client, family):
    answer = client.get(f"/api/cli/{family}")
    assert (answer.status_code, answer.json()["code"]) == (404, "NOT_SERVED")
    assert "does not serve" in answer.json()["message"]


@pytest.mark.parametrize("path", ["/api/v1/workspaces", "/api/v1/tokens"])
def test_a_body_of_countless_fields_is_one_finding(services, path):
    ada = People(services).make("ada")
    answer = ada.call("POST", path, {f"k{at}": 1 for at in range(10_000)})
    assert answer.status_code == 400
    assert [one["message"] for one in answer.json()["issues"]] == ["the body has 10000 fields; at most 50 are read"]
    assert len(json.dumps(answer.json())) < 1000
