"""What operators see of a platform: numbers for Prometheus, spans for a collector, neither with anything secret."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from fastapi.testclient import TestClient
from osmosis_platform.api.app import create_app
from osmosis_platform.db.database import Database
from osmosis_platform.jobs.queue import enqueue
from osmosis_platform.services import Services
from osmosis_platform.settings import Settings


def client_of(services, address="127.0.0.1"):
    return TestClient(create_app(services), client=(address, 5000))


def test_requests_are_counted_by_route_and_jobs_by_state(services):
    with services.database.write() as work:
        enqueue(work, "ws_1", "repository.poll", {})
    client = client_of(services)
    client.get("/api/v1/workspaces/no-such-workspace/jobs")
    client.get("/api/v1/workspaces/another/jobs")
    text = client.get("/metrics").text
    assert 'osmosis_requests_total{method="GET",route="/api/v1/workspaces/{workspace}/jobs",status="401"} 2.0' in text
    assert 'osmosis_jobs{kind="repository.poll",queue="cpu",status="queued"} 1.0' in text
    assert "no-such-workspace" not in text


@pytest.mark.parametrize(
    ("address", "token", "given", "status"),
    [
        ("127.0.0.1", None, None, 200),
        ("203.0.113.9", None, None, 403),
        ("203.0.113.9", "a-metrics-token", "a-metrics-token", 200),
        ("127.0.0.1", "a-metrics-token", "another", 403),
        ("127.0.0.1", "a-metrics-token", None, 403),
    ],
)
def test_numbers_are_for_loopback_or_for_the_token(services, address, token, given, status):
    settings = services.settings.model_copy(update={"metrics_token": Settings(metrics_token=token).metrics_token})
    headers = {"Authorization": f"Bearer {given}"} if given else {}
    answer = client_of(Services(settings, services.database), address).get("/metrics", headers=headers)
    assert answer.status_code == status


def test_spans_reach_the_collector_without_paths(tmp_path, database_url, monkeypatch):
    from opentelemetry import trace
    from osmosis_platform.ops.telemetry import configure_traces

    received = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self):
            received.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", trace.Once())
    settings = Settings(data_dir=tmp_path / "data", otlp_endpoint=f"http://127.0.0.1:{server.server_port}")
    configure_traces(settings, "api")
    client = client_of(Services(settings, Database(database_url)))
    client.get("/_blob/v1/a-credential-in-a-path")
    client.get("/healthz")
    trace.get_tracer_provider().shutdown()
    server.shutdown()
    assert {path for path, _ in received} == {"/v1/traces"}
    body = b"".join(body for _, body in received)
    assert b"GET /healthz" in body
    assert b"a-credential-in-a-path" not in body


def test_behind_a_proxy_loopback_is_no_reason(services):
    settings = services.settings.model_copy(update={"public_url": "https://osmosis.example.test"})
    assert client_of(Services(settings, services.database)).get("/metrics").status_code == 403
