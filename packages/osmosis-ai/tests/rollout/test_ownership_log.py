"""The ownership log: one OTLP record per status change, received by a real collector endpoint."""

import time

import httpx
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from osmosis_ai.rollout.server import create_rollout_server
from osmosis_ai.rollout.types import POLLING_LEASE_HEADER
from rollout_host import hosted, local_backend
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route


@pytest.fixture
def collector():
    received = []

    async def logs(request):
        data = await request.body()
        if request.headers.get("content-encoding") == "gzip":
            import gzip

            data = gzip.decompress(data)
        received.append(ExportLogsServiceRequest.FromString(data))
        return Response(b"", media_type="application/x-protobuf")

    with hosted(Starlette(routes=[Route("/v1/logs", logs, methods=["POST"])])) as url:
        yield url, received


async def run(ctx):
    return []


async def grade(ctx):
    ctx.set_reward(1)


def one_rollout(app, metadata):
    with hosted(app) as url, httpx.Client(base_url=url, timeout=40) as http:
        body = {
            "initial_messages": [],
            "rollout_id": "r1",
            "chat_completions_url": "http://m.invalid",
            "llm_api_key": "sk-the-model-key",
            "metadata": metadata,
        }
        token = http.post("/rollout", json=body).json()["polling_lease_token"]
        status = ""
        while status != "success":
            status = http.get("/rollout/r1/result", headers={POLLING_LEASE_HEADER: token}).json()["status"]


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    monkeypatch.setenv("_OSMOSIS_ROLLOUT_ARTIFACT_ROOT", str(tmp_path))
    monkeypatch.delenv("_OSMOSIS_ROLLOUT_API_KEY", raising=False)


def test_every_status_change_is_recorded(monkeypatch, collector):
    url, received = collector
    monkeypatch.setenv("OSMOSIS_ROLLOUT_OTLP_ENDPOINT", url)
    monkeypatch.setenv("OSMOSIS_ROLLOUT_SERVER_ID", "server-1")
    monkeypatch.setenv("_OSMOSIS_ROLLOUT_NAME", "my-rollout")
    monkeypatch.setenv("OSMOSIS_ROLLOUT_NAMESPACE", "n" * 513)
    app = create_rollout_server(backend=local_backend(run, grade), configure_logging=False)
    one_rollout(app, {"osmosis_observability": {"run_id": "run-1", "run_name": "bad\nname"}, "secret": "s"})
    (resource,) = {
        attribute.value.string_value
        for request in received
        for group in request.resource_logs
        for attribute in group.resource.attributes
        if attribute.key == "service.name"
    }
    assert resource == "osmosis-rollout-server"
    records = [
        {item.key: item.value.string_value or item.value.int_value for item in record.attributes}
        for request in received
        for group in request.resource_logs
        for scope in group.scope_logs
        for record in scope.log_records
    ]
    assert [record["status"] for record in records] == ["queued", "running", "grading", "success"]
    assert [record["event_sequence"] for record in records] == [1, 2, 3, 4]
    assert records[0] == {
        "event": "rollout.ownership",
        "rollout_id": "r1",
        "server_id": "server-1",
        "server_name": "my-rollout",
        "run_id": "run-1",
        "status": "queued",
        "event_sequence": 1,
    }


def test_a_collector_that_is_down_disturbs_nobody(monkeypatch):
    monkeypatch.setenv("OSMOSIS_ROLLOUT_OTLP_ENDPOINT", "http://127.0.0.1:9")
    app = create_rollout_server(backend=local_backend(run, grade), configure_logging=False)
    before = time.monotonic()
    one_rollout(app, {"a": 1})
    assert time.monotonic() - before < 30
