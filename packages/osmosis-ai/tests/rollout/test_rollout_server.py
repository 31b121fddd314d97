"""The rollout server over HTTP: admission, long polls and leases, cancelling, results, shutting down."""

import asyncio
import json
import sys
import time
from contextlib import asynccontextmanager

import httpx
import pytest
from osmosis_ai.rollout import ExecutionBackend, ExecutionOutcome, ExecutionResult, RolloutSample, RolloutStatus
from osmosis_ai.rollout.server import app as server_app
from osmosis_ai.rollout.server import create_rollout_server
from osmosis_ai.rollout.server.execution import RolloutExecutor
from osmosis_ai.rollout.types import (
    POLLING_LEASE_HEADER,
    CancelRolloutsRequest,
    RolloutInitRequest,
    RolloutInitResponse,
    RolloutResultResponse,
)
from rollout_host import hosted, local_backend


@pytest.fixture(autouse=True)
def artifact_root(monkeypatch, tmp_path):
    monkeypatch.setenv("_OSMOSIS_ROLLOUT_ARTIFACT_ROOT", str(tmp_path))
    for name in ("_OSMOSIS_ROLLOUT_API_KEY", "_OSMOSIS_ROLLOUT_INSTANCE_ID", "_OSMOSIS_ROLLOUT_PREVIEW_ROOT"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


async def agent(ctx):
    """Does what the first message says."""
    word, _, rest = ctx.prompt[0]["content"].partition(" ")
    if word == "sleep":
        await asyncio.sleep(float(rest))
    elif word == "block":
        time.sleep(float(rest))
    elif word == "fail":
        raise RuntimeError(rest)
    elif word == "exit":
        sys.exit(int(rest))
    elif word == "surrogate":
        return [{"role": "assistant", "content": "broken \ud800 text"}]
    elif word == "object":
        return [{"role": "assistant", "content": object()}]
    return [*ctx.prompt, {"role": "assistant", "content": "done"}]


async def grader(ctx):
    ctx.set_reward(1.0)


def server(**options):
    return create_rollout_server(
        backend=options.pop("backend", None) or local_backend(agent, grader, max_concurrent=options.pop("slots", 4)),
        **{"configure_logging": False, **options},
    )


def body(content="ok", rollout_id="r1", **more):
    return {
        "initial_messages": [{"role": "user", "content": content}],
        "rollout_id": rollout_id,
        "chat_completions_url": "http://model.invalid/v1",
        "llm_api_key": "sk-the-model-key",
        "label": "x",
        **more,
    }


def start(http, *args, **more):
    response = http.post("/rollout", content=json.dumps(body(*args, **more)))  # httpx's json= refuses lone surrogates
    assert response.status_code == 202, response.text
    return response.json()["polling_lease_token"]


def poll(http, token, rollout_id="r1"):
    return http.get(f"/rollout/{rollout_id}/result", headers={POLLING_LEASE_HEADER: token})


def wait_until_running(http, count):
    """Until so many rollouts run; others may queue, none is ending."""
    deadline = time.monotonic() + 20
    while True:
        health = http.get("/health").json()
        running, queued = health["concurrency"]["running"], health["concurrency"]["queued"]
        if running == count and running + queued == health["lifecycle"]["active_rollouts"]:
            return
        assert time.monotonic() < deadline
        time.sleep(0.02)


def result_of(http, token, rollout_id="r1"):
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        response = poll(http, token, rollout_id)
        assert response.status_code == 200, response.text
        if RolloutStatus(response.json()["status"]).terminal:
            return response.json()
    raise AssertionError("no result")


@pytest.fixture
def http():
    with hosted(server()) as url, httpx.Client(base_url=url, timeout=40) as client:
        yield client


def test_a_rollout_from_admission_to_result(http, artifact_root):
    admitted = http.post("/rollout", json=body(extra_fields={"row_index": 3}))
    assert admitted.status_code == 202
    admission = RolloutInitResponse.model_validate(admitted.json())
    assert admission.status == "queued" and len(admission.polling_lease_token) >= 43
    assert (admission.result_wait_timeout_sec, admission.polling_lease_timeout_sec) == (30.0, 120.0)
    result = result_of(http, admission.polling_lease_token)
    parsed = RolloutResultResponse.model_validate(result)
    assert parsed.status == "success" and parsed.sample is not None and parsed.sample.reward == 1.0
    assert set(result["sample"]) == {"messages", "label", "reward", "remove_sample", "metrics", "extra_fields"}
    assert result["timings"]["agent_s"] >= 0 and result["err_fault"] is None
    trajectory = json.loads((artifact_root / "r1/trajectory.json").read_text())
    assert trajectory["extra"]["osmosis"] == {
        "rollout_id": "r1",
        "label": "x",
        "reward": 1.0,
        "request_extra_fields": {"row_index": 3},
    }


def test_health_says_who_and_how_busy(http):
    health = http.get("/health").json()
    assert health["status"] == "ok" and health["concurrency"]["max_concurrent"] == 4
    assert health["instance_id"] == health["process_id"]
    assert health["lifecycle"] == {"accepting_rollouts": True, "active_rollouts": 0}
    token = start(http, "sleep 0.3")
    assert http.get("/health").json()["lifecycle"]["active_rollouts"] == 1
    result_of(http, token)
    assert http.get("/health").json()["lifecycle"]["active_rollouts"] == 0


def test_the_instance_id_of_the_environment(monkeypatch):
    monkeypatch.setenv("_OSMOSIS_ROLLOUT_INSTANCE_ID", "mine")
    with hosted(server()) as url:
        health = httpx.get(f"{url}/health").json()
    assert health["instance_id"] == "mine" != health["process_id"]


@pytest.mark.parametrize("key", ["argument", "environment"])
def test_with_a_key_every_route_needs_it(key, monkeypatch):
    if key == "environment":
        monkeypatch.setenv("_OSMOSIS_ROLLOUT_API_KEY", "the-key")
    with hosted(server(api_key="the-key" if key == "argument" else None)) as url:
        for wrong in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": "the-key"},
            {"Authorization": "Bearer ü"},
        ):
            encoded = {name: value.encode() for name, value in wrong.items()}
            for method, path in (
                ("GET", "/health"),
                ("POST", "/rollout"),
                ("GET", "/rollout/x/result"),
                ("POST", "/rollout/cancel"),
                ("GET", "/openapi.json"),
                ("GET", "/nowhere"),
            ):
                response = httpx.request(method, url + path, headers=encoded)
                assert (response.status_code, response.json()) == (401, {"detail": "unauthorized"})
        with httpx.Client(base_url=url, headers={"Authorization": "Bearer the-key"}, timeout=40) as http:
            assert http.get("/health").status_code == 200
            assert result_of(http, start(http))["status"] == "success"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"api_key": ""}, "api_key is blank"),
        ({"api_key": "  "}, "api_key is blank"),
        ({"result_wait_timeout_sec": 0}, "result_wait_timeout_sec"),
        ({"result_wait_timeout_sec": float("inf")}, "result_wait_timeout_sec"),
        ({"result_wait_timeout_sec": float("nan")}, "result_wait_timeout_sec"),
        ({"result_retention_sec": -1}, "result_retention_sec"),
        ({"result_retention_sec": float("inf")}, "result_retention_sec"),
        ({"polling_lease_timeout_sec": 30}, "must be greater than"),
        ({"polling_lease_timeout_sec": float("inf")}, "polling_lease_timeout_sec"),
        ({"polling_lease_timeout_sec": 0}, "polling_lease_timeout_sec"),
    ],
)
def test_options_that_cannot_work_are_refused(options, text):
    with pytest.raises(ValueError, match=text):
        server(**options)


def test_a_blank_key_in_the_environment_is_refused(monkeypatch):
    monkeypatch.setenv("_OSMOSIS_ROLLOUT_API_KEY", " ")
    with pytest.raises(ValueError, match="_OSMOSIS_ROLLOUT_API_KEY is blank"):
        server()


def test_the_documented_routes(http):
    paths = http.get("/openapi.json").json()["paths"]
    assert set(paths) == {"/health", "/rollout", "/rollout/{rollout_id}/result", "/rollout/cancel"}
    schemas = http.get("/openapi.json").json()["components"]["schemas"]
    body_schema = paths["/rollout"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body_schema == {"$ref": "#/components/schemas/RolloutInitRequest"}
    assert "initial_messages" in schemas["RolloutInitRequest"]["required"]
    assert set(paths["/rollout"]["post"]["responses"]) == {"202", "409", "422", "429", "503"}
    assert "RolloutSample" in schemas
    lease = paths["/rollout/{rollout_id}/result"]["get"]["parameters"][1]
    assert (lease["name"], lease["in"], lease["required"]) == (POLLING_LEASE_HEADER, "header", True)
    assert http.get("/docs").status_code == 200


@pytest.mark.parametrize(
    "change",
    [
        {"rollout_id": "a/b"},
        {"rollout_id": ".."},
        {"rollout_id": None},
        {"initial_messages": "text"},
        {"initial_messages": ["text"]},
        {"llm_api_key": ""},
        {"chat_completions_url": None},
        {"agent_timeout_sec": "soon"},
        {"metadata": []},
    ],
)
def test_a_wrong_body_is_422_and_is_not_echoed(http, change):
    response = http.post("/rollout", json=body() | change)
    assert response.status_code == 422
    assert response.json()["detail"][0]["loc"][0] == "body"
    assert "sk-the-model-key" not in response.text
    assert http.get("/health").json()["lifecycle"]["active_rollouts"] == 0


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"null", b'{"agent_timeout_sec": NaN}', b"\xff"])
def test_a_body_that_is_no_object_is_422(http, raw):
    assert http.post("/rollout", content=raw).status_code == 422
    assert http.post("/rollout/cancel", content=raw).status_code == 422


def test_infinite_timeouts_are_refused(http):
    raw = json.dumps(body(agent_timeout_sec=float("inf")))
    assert http.post("/rollout", content=raw).status_code == 422


def test_an_id_is_taken_until_its_result_is_forgotten():
    with hosted(server(result_retention_sec=3)) as url, httpx.Client(base_url=url, timeout=40) as http:
        token = start(http)
        again = http.post("/rollout", json=body())
        assert (again.status_code, again.json()) == (409, {"detail": "rollout_id is already registered"})
        result_of(http, token)
        assert http.post("/rollout", json=body()).status_code == 409
        assert poll(http, token).json()["status"] == "success"  # readable again and again
        deadline = time.monotonic() + 20
        while (gone := poll(http, token)).status_code == 200 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert (gone.status_code, gone.json()) == (404, {"detail": "unknown rollout_id"})
        start(http)


def test_a_full_backend_is_429():
    class Full(ExecutionBackend):
        async def execute(self, request):
            raise AssertionError

        def has_capacity(self):
            return False

    with hosted(server(backend=Full())) as url:
        response = httpx.post(f"{url}/rollout", json=body())
    assert (response.status_code, response.headers["retry-after"]) == (429, "5")
    assert response.json() == {"detail": "rollout queue is full; retry later"}


def test_reading_a_result_needs_the_lease(http):
    token = start(http, "sleep 0.2")
    assert http.get("/rollout/r1/result").status_code == 422
    assert http.get("/rollout/r1/result", headers={POLLING_LEASE_HEADER: ""}).status_code == 422
    wrong = poll(http, token + "x")
    assert (wrong.status_code, wrong.json()) == (403, {"detail": "invalid polling lease"})
    unknown = poll(http, token, "nobody")
    assert (unknown.status_code, unknown.json()) == (404, {"detail": "unknown rollout_id"})
    assert result_of(http, token)["status"] == "success"


def test_only_a_digest_of_the_lease_is_kept():
    app = server()
    with hosted(app) as url, httpx.Client(base_url=url, timeout=40) as http:
        token = start(http, "sleep 0.3")
        record = app.state.rollout_futures.find("r1")
        kept = [getattr(record, name) for name in type(record).__slots__]
        assert token not in repr(kept) and token.encode() not in [x for x in kept if isinstance(x, bytes)]
        result_of(http, token)


def test_a_poll_waits_for_a_change_and_then_answers_with_the_status_only():
    with hosted(server(result_wait_timeout_sec=0.4)) as url, httpx.Client(base_url=url, timeout=40) as http:
        token = start(http, "sleep 5")
        assert poll(http, token).json() == {
            "rollout_id": "r1",
            "status": "running",
            "sample": None,
            "err_message": None,
            "err_category": None,
            "err_fault": None,
            "err_traceback": None,
            "timings": None,
        }
        before = time.monotonic()
        assert poll(http, token).json()["status"] == "running"  # nothing changed: the wait is over
        assert 0.3 < time.monotonic() - before < 4
        assert result_of(http, token)["status"] == "success"


def test_a_short_rollout_needs_few_polls(http):
    token = start(http)
    polls = 0
    while True:
        polls += 1
        if poll(http, token).json()["status"] == "success":
            break
    assert polls <= 2


def test_an_answer_comes_as_soon_as_the_rollout_ends(http):
    token = start(http, "sleep 0.5")
    before = time.monotonic()
    result_of(http, token)
    assert time.monotonic() - before < 15  # half of what a poll waits for


def test_a_lease_that_nobody_renews_is_lost():
    app = server(result_wait_timeout_sec=0.2, polling_lease_timeout_sec=0.4, slots=1)
    with hosted(app) as url, httpx.Client(base_url=url, timeout=40) as http:
        token = start(http, "sleep 30")
        time.sleep(2)
        result = poll(http, token).json()
        assert (result["status"], result["err_category"]) == ("failure", "lease_expired")
        assert (result["err_message"], result["err_fault"]) == ("polling lease expired", "infrastructure")
        # and the agent was stopped: the only slot is free
        assert result_of(http, start(http, "ok", "r2"), "r2")["status"] == "success"
        assert http.get("/health").json()["lifecycle"]["active_rollouts"] == 0


def test_a_late_completion_never_replaces_a_published_result():
    finished = []

    async def ignores_cancelling(ctx):
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            finished.append(True)
        return []

    app = server(
        backend=local_backend(ignores_cancelling, grader), result_wait_timeout_sec=0.2, polling_lease_timeout_sec=0.4
    )
    with hosted(app) as url, httpx.Client(base_url=url, timeout=40) as http:
        token = start(http)
        deadline = time.monotonic() + 10
        while not finished or http.get("/health").json()["lifecycle"]["active_rollouts"]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert poll(http, token).json()["err_category"] == "lease_expired"


async def test_a_rollout_that_is_cancelled_before_it_starts_has_no_message():
    executor = RolloutExecutor(local_backend(agent, grader), process_id="p", lease_timeout_s=60, retention_s=60)
    executor.start(RolloutInitRequest.model_validate(body()))
    assert await executor.cancel(CancelRolloutsRequest(ids=["r1"])) == {"r1": "cancelled_queued"}
    record = executor.registry.find("r1")
    assert record is not None
    await record.wait_for_change(5)
    result = json.loads(record.answer())
    assert (result["status"], result["err_message"]) == ("cancelled", None)
    executor.registry.close()


def test_polling_keeps_the_lease():
    app = server(result_wait_timeout_sec=0.2, polling_lease_timeout_sec=1.2)
    with hosted(app) as url, httpx.Client(base_url=url, timeout=40) as http:
        assert result_of(http, start(http, "sleep 2"))["status"] == "success"


def test_an_agent_that_blocks_the_server_does_not_lose_leases():
    app = server(result_wait_timeout_sec=0.2, polling_lease_timeout_sec=0.5)
    with hosted(app) as url, httpx.Client(base_url=url, timeout=40) as http:
        patient = start(http, "sleep 2.5", "patient")
        blocker = start(http, "block 2", "blocker", agent_timeout_sec=1)
        assert result_of(http, patient, "patient")["status"] == "success"
        late = result_of(http, blocker, "blocker")
        assert (late["status"], late["err_category"], late["err_fault"]) == ("failure", "timeout", "agent")


def test_cancelling():
    with hosted(server(slots=1)) as url, httpx.Client(base_url=url, timeout=40) as http:
        running, queued = start(http, "sleep 30", "run-1"), start(http, "ok", "run-2")
        finished_later = start(http, "ok", "other")
        wait_until_running(http, 1)
        answer = http.post("/rollout/cancel", json={"ids": ["run-1", "run-2", "nobody"]})
        assert answer.json() == {
            "dispositions": {"run-1": "cancelled_running", "run-2": "cancelled_queued", "nobody": "not_found"}
        }
        for token, rollout_id in ((running, "run-1"), (queued, "run-2")):
            result = result_of(http, token, rollout_id)
            assert (result["status"], result["err_message"], result["sample"]) == ("cancelled", "cancelled", None)
        assert result_of(http, finished_later, "other")["status"] == "success"
        again = http.post("/rollout/cancel", json={"ids": ["run-1", "other"]}).json()["dispositions"]
        assert again == {"run-1": "not_found", "other": "not_found"}


def test_cancelling_by_prefix_and_all(http):
    for rollout_id in ("a-1", "a-2", "b-1"):
        start(http, "sleep 30", rollout_id)
    wait_until_running(http, 3)
    by_prefix = http.post("/rollout/cancel", json={"prefix": "a-"}).json()["dispositions"]
    assert by_prefix == {"a-1": "cancelled_running", "a-2": "cancelled_running"}
    wait_until_running(http, 1)
    assert http.post("/rollout/cancel", json={"all": True}).json()["dispositions"] == {"b-1": "cancelled_running"}


@pytest.mark.parametrize("wrong", [{}, {"ids": ["a"], "all": True}, {"ids": ["a"], "prefix": "b"}, {"all": False}])
def test_cancelling_needs_exactly_one_selection(http, wrong):
    assert http.post("/rollout/cancel", json=wrong).status_code == 422


class OwnBackend(ExecutionBackend):
    """Keeps its own records of rollouts, as Harbor's does."""

    def __init__(self):
        self.says = {}
        self.known = {}
        self.shut_down = False
        self.stop = asyncio.Event()

    async def execute(self, request):
        await self.stop.wait()
        return ExecutionOutcome(workflow=ExecutionResult(status=RolloutStatus.CANCELLED, err_message="by the backend"))

    def cancel_rollouts(self, ids=None, prefix=None, all=False):
        if self.says.get("r1") == "cancelled_running":
            self.stop.set()
        return self.says

    def rollout_status(self, rollout_id):
        return self.known.get(rollout_id)

    async def shutdown(self):
        self.shut_down = True


def test_the_backend_has_the_first_word_about_cancelling():
    backend = OwnBackend()
    with hosted(server(backend=backend)) as url, httpx.Client(base_url=url, timeout=40) as http:
        token = start(http)
        backend.says, backend.known = {"r1": "not_found"}, {"r1": {"status": "success"}}
        assert http.post("/rollout/cancel", json={"ids": ["r1"]}).json()["dispositions"] == {"r1": "not_found"}
        backend.says, backend.known = {"r1": "cancelled_running"}, {}
        cancelled = http.post("/rollout/cancel", json={"ids": ["r1"]}).json()["dispositions"]
        assert cancelled == {"r1": "cancelled_running"}
        result = result_of(http, token)
        assert (result["status"], result["err_message"]) == ("cancelled", "by the backend")
    assert backend.shut_down


def test_a_backend_that_lost_the_rollout_leaves_it_to_the_server():
    backend = OwnBackend()
    backend.says = {"r1": "not_found"}
    with hosted(server(backend=backend)) as url, httpx.Client(base_url=url, timeout=40) as http:
        token = start(http)
        time.sleep(0.1)
        assert http.post("/rollout/cancel", json={"ids": ["r1"]}).json()["dispositions"] == {"r1": "cancelled_queued"}
        assert result_of(http, token)["err_message"] == "cancelled"


def test_a_failing_agent_is_data(http, artifact_root):
    result = result_of(http, start(http, "fail no luck with sk-the-model-key"))
    assert (result["status"], result["err_category"], result["err_fault"]) == ("failure", "agent_error", "agent")
    assert result["err_message"] == "no luck with [REDACTED]"
    assert "in agent" in result["err_traceback"] and "sk-the-model-key" not in json.dumps(result)
    assert result["sample"] is None and not (artifact_root / "r1/trajectory.json").exists()


def test_an_exit_does_not_end_the_server(http):
    result = result_of(http, start(http, "exit 7"))
    assert (result["status"], result["err_category"]) == ("failure", "agent_error")
    assert result["err_message"] == "the agent called exit(7)"
    assert result_of(http, start(http, "ok", "r2"), "r2")["status"] == "success"


def test_broken_text_and_objects_do_not_break_the_answer(http, artifact_root):
    result = result_of(http, start(http, "surrogate"))
    assert result["sample"]["messages"][0]["content"] == "broken ? text" and result["sample"]["reward"] == 1.0
    trajectory = json.loads((artifact_root / "r1/trajectory.json").read_text())
    assert trajectory["steps"][0]["message"] == "broken ? text"
    result = result_of(http, start(http, "object", "r2"), "r2")
    assert (result["sample"]["messages"], result["sample"]["reward"]) == ([], 1.0)
    result = result_of(http, start(http, "fail \ud800", "r3"), "r3")
    assert result["err_message"] == "?"


def test_a_lone_surrogate_in_the_prompt_is_admitted(http):
    assert result_of(http, start(http, "ok \ud800"))["sample"]["messages"][0]["content"] == "ok ?"


class Raising(ExecutionBackend):
    def __init__(self, error):
        self.error = error

    async def execute(self, request):
        raise self.error


@pytest.mark.parametrize(
    ("error", "category", "message"),
    [
        (RuntimeError("no sandbox"), "agent_error", "no sandbox"),
        (ConnectionError(), "agent_error", "Internal server error"),
        (ValueError("bad task"), "validation_error", "bad task"),
        (SystemExit(3), "agent_error", "the backend called exit(3)"),
    ],
)
def test_an_exception_of_the_backend_is_a_failure_of_the_infrastructure(error, category, message):
    with hosted(server(backend=Raising(error))) as url, httpx.Client(base_url=url, timeout=40) as http:
        result = result_of(http, start(http))
    assert (result["status"], result["err_category"], result["err_message"]) == ("failure", category, message)
    assert result["err_fault"] == "infrastructure"


def test_a_crashed_task_still_has_a_result():
    class Odd(ExecutionBackend):
        async def execute(self, request):
            return None

    with hosted(server(backend=Odd())) as url, httpx.Client(base_url=url, timeout=40) as http:
        result = result_of(http, start(http))
    assert (result["status"], result["err_category"]) == ("failure", "internal_error")
    assert result["err_message"] == "rollout task crashed"


def test_removed_and_failed_samples_have_no_reward_on_the_wire():
    class Removed(ExecutionBackend):
        async def execute(self, request):
            status = RolloutStatus.SUCCESS if request.id == "removed" else RolloutStatus.FAILURE
            sample = RolloutSample(messages=[{"role": "user", "content": "x"}], reward=1.0)
            sample.remove_sample = request.id == "removed"
            sample.metrics["nan"] = float("nan")
            return ExecutionOutcome(workflow=ExecutionResult(status=status, sample=sample))

    with hosted(server(backend=Removed())) as url, httpx.Client(base_url=url, timeout=40) as http:
        for rollout_id in ("removed", "failed"):
            sample = result_of(http, start(http, "ok", rollout_id), rollout_id)["sample"]
            assert (sample["reward"], sample["metrics"]) == (None, {})


def test_shutting_down_lets_rollouts_finish_and_then_cancels(monkeypatch):
    monkeypatch.setattr(server_app, "DRAIN_PATIENCE_S", 1.0)
    order = []

    async def slow(ctx):
        try:
            await asyncio.sleep(float(ctx.prompt[0]["content"]))
            order.append("finished")
        except asyncio.CancelledError:
            order.append("cancelled")
            raise
        return []

    backend = local_backend(slow, grader)

    @asynccontextmanager
    async def lifespan(app):
        order.append("up")
        yield {"shared": 1}
        order.append("down")

    async def shutdown():
        order.append("backend")

    backend.shutdown = shutdown  # ty: ignore[invalid-assignment]
    with hosted(server(backend=backend, lifespan=lifespan)) as url, httpx.Client(base_url=url, timeout=40) as http:
        start(http, "0.4", "short")
        start(http, "60", "long")
    assert order == ["up", "finished", "cancelled", "backend", "down"]


def test_a_server_that_shuts_down_admits_nothing(monkeypatch):
    """The drain runs while the socket still answers, as it does behind servers that close it late."""
    app = server()

    async def drive():
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as http:
            async with app.router.lifespan_context(app):
                await http.post("/rollout", json=body("sleep 0.5"))
            refused = await http.post("/rollout", json=body("ok", "r2"))
            health = (await http.get("/health")).json()
        return refused, health

    refused, health = asyncio.run(drive())
    assert (refused.status_code, refused.json()) == (503, {"detail": "rollout server is shutting down"})
    assert health["lifecycle"] == {"accepting_rollouts": False, "active_rollouts": 0}
