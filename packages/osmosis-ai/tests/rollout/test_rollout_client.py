"""RolloutClient against real servers: the rollout server, and small servers that misbehave on purpose."""

import asyncio
import json
import pickle
import time

import httpx
import pytest
from osmosis_ai.rollout.client import (
    RolloutAdmissionTimeoutError,
    RolloutClient,
    RolloutHandle,
    RolloutProtocolError,
    handle,
)
from osmosis_ai.rollout.server import create_rollout_server
from osmosis_ai.rollout.types import RolloutStatus
from rollout_host import hosted, local_backend
from starlette.applications import Starlette
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

PROMPT = [{"role": "user", "content": "6*7"}]
MODEL = "http://model.invalid/v1"


@pytest.fixture(autouse=True)
def artifact_root(monkeypatch, tmp_path):
    monkeypatch.setenv("_OSMOSIS_ROLLOUT_ARTIFACT_ROOT", str(tmp_path))
    monkeypatch.delenv("_OSMOSIS_ROLLOUT_API_KEY", raising=False)


async def agent(ctx):
    await asyncio.sleep((ctx.metadata or {}).get("sleep", 0))
    return [*ctx.prompt, {"role": "assistant", "content": "42"}]


async def grader(ctx):
    await asyncio.sleep((ctx.metadata or {}).get("grade", 0))
    ctx.set_reward(1.0)


@pytest.fixture
def url():
    app = create_rollout_server(
        backend=local_backend(agent, grader), configure_logging=False, result_wait_timeout_sec=0.3, api_key="key"
    )
    with hosted(app) as url:
        yield url


async def test_a_rollout_and_its_result(url):
    async with RolloutClient(url=url + "/", api_key="key") as client:
        result = await client.run_rollout(PROMPT, MODEL, "r1", label="42", metadata={"sleep": 0.5})
        assert result.status == "success" and result.sample is not None
        assert result.sample.reward == 1.0 and result.sample.messages[-1]["content"] == "42"
        assert result.sample.trajectory_messages is None
        assert result.timings is not None and result.timings.agent_s is not None and result.timings.agent_s >= 0.5


@pytest.mark.parametrize("rollout_id", ["with space", "a?b", "a#b", "50%", "a%2Fb", "ü", "a:b.c-d_e"])
async def test_any_path_segment_can_be_an_id(url, rollout_id):
    async with RolloutClient(url=url, api_key="key") as client:
        assert (await client.run_rollout(PROMPT, MODEL, rollout_id, label="42")).rollout_id == rollout_id


async def test_a_handle_tells_the_status(url):
    async with RolloutClient(url=url, api_key="key") as client:
        rollout = await client.run_rollout_async(PROMPT, MODEL, "r1", label="42", metadata={"sleep": 0.4, "grade": 0.4})
        assert rollout.status == "queued" and not rollout.done() and rollout.latest_result is None
        assert await rollout.wait_for_running() == "running"
        assert await rollout.wait_for_grading() == "grading"
        assert (await rollout.wait_for_completion()).status == "success"
        assert rollout.done() and rollout.status == "success" and rollout.latest_result is await rollout
        assert await rollout.wait_for_running() == "success"
        assert rollout.cancel() is False


async def test_many_rollouts_at_once_share_one_client(url):
    async with RolloutClient(url=url, api_key="key") as client:
        results = await asyncio.gather(
            *(client.run_rollout(PROMPT, MODEL, f"r{i}", label="42", metadata={"sleep": 0.05}) for i in range(150))
        )
        assert {result.status for result in results} == {RolloutStatus.SUCCESS}


async def test_cancelling_through_the_client(url):
    async with RolloutClient(url=url, api_key="key") as client:
        rollout = await client.run_rollout_async(PROMPT, MODEL, "r1", metadata={"sleep": 30})
        await rollout.wait_for_running()
        answer = await client.cancel_rollout("r1")
        assert answer.dispositions == {"r1": "cancelled_running"}
        assert (await rollout).status == "cancelled"
        assert (await client.cancel_rollout("r1")).dispositions == {"r1": "not_found"}


async def test_giving_up_a_handle_cancels_the_rollout(url):
    async with RolloutClient(url=url, api_key="key") as client:
        rollout = await client.run_rollout_async(PROMPT, MODEL, "r1", metadata={"sleep": 30})
        await rollout.wait_for_running()
        assert rollout.cancel()
        with pytest.raises(asyncio.CancelledError):
            await rollout
        assert (await client.wait_idle(timeout_sec=5, poll_interval_sec=0.05))["lifecycle"]["active_rollouts"] == 0


async def test_a_cancelled_caller_cancels_the_rollout(url):
    async with RolloutClient(url=url, api_key="key") as client:
        task = asyncio.create_task(client.run_rollout(PROMPT, MODEL, "r1", metadata={"sleep": 30}))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await client.wait_idle(timeout_sec=5, poll_interval_sec=0.05)


async def test_awaiting_with_a_timeout_leaves_the_rollout_running(url):
    async with RolloutClient(url=url, api_key="key") as client:
        rollout = await client.run_rollout_async(PROMPT, MODEL, "r1", label="42", metadata={"sleep": 0.6})
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(rollout.wait_for_completion(), 0.1)
        assert (await rollout).status == "success"


async def test_refusals_are_protocol_errors(url):
    async with RolloutClient(url=url) as client:
        with pytest.raises(RolloutProtocolError, match="401") as caught:
            await client.health()
        assert caught.value.status_code == 401
    async with RolloutClient(url=url, api_key="key") as client:
        await client.run_rollout(PROMPT, MODEL, "r1")
        with pytest.raises(RolloutProtocolError, match="already registered") as caught:
            await client.run_rollout(PROMPT, MODEL, "r1")
        assert caught.value.status_code == 409
        with pytest.raises(RolloutProtocolError) as caught:
            await client.run_rollout(PROMPT, MODEL, "a/b")
        assert caught.value.status_code == 422


async def test_waiting_for_an_idle_server(url):
    async with RolloutClient(url=url, api_key="key") as client:
        await client.run_rollout_async(PROMPT, MODEL, "r1", label="42", metadata={"sleep": 0.5})
        with pytest.raises(TimeoutError, match="1 active rollouts"):
            await client.wait_idle(timeout_sec=0.2, poll_interval_sec=0.05)
        idle = await client.wait_idle(timeout_sec=5, poll_interval_sec=0.05)
        assert idle["lifecycle"] == {"accepting_rollouts": True, "active_rollouts": 0}
        with pytest.raises(RolloutProtocolError, match="restarted"):
            await client.wait_idle(process_id="another")


@pytest.mark.parametrize(
    "options", [{"admission_timeout_sec": float("inf")}, {"admission_timeout_sec": float("nan")}, {"api_key": " "}]
)
def test_options_that_cannot_work_are_refused(options):
    with pytest.raises(ValueError, match=r"must be finite|blank"):
        RolloutClient(url="http://127.0.0.1:1", **options)


async def test_a_given_http_client_stays_the_callers(url):
    async with httpx.AsyncClient() as http:
        client = RolloutClient(url=url, http_client=http, api_key="key")
        await client.health()
        await client.aclose()
        assert not http.is_closed
    client = RolloutClient(url=url, api_key="key")
    await client.aclose()
    assert client.http.is_closed


class Scripted:
    """A server that answers from lists; the last answer of a list is repeated."""

    def __init__(self, *, admit=None, results=(), lease_s=120.0, health=None):
        self.admit = list(admit or [self.admission(lease_s)])
        self.results = list(results)
        self.health = health
        self.asked = {"admit": [], "result": [], "health": []}
        self.app = Starlette(
            routes=[
                Route("/rollout", self.on_admit, methods=["POST"]),
                Route("/rollout/{id}/result", self.on_result),
                Route("/health", self.on_health),
            ]
        )

    @staticmethod
    def admission(lease_s=120.0, **change):
        return JSONResponse(
            {
                "rollout_id": "r1",
                "status": "queued",
                "polling_lease_token": "t",
                "result_wait_timeout_sec": 0.2,
                "polling_lease_timeout_sec": lease_s,
                **change,
            },
            status_code=202,
        )

    def _next(self, answers):
        return answers.pop(0) if len(answers) > 1 else answers[0]

    async def on_admit(self, request):
        self.asked["admit"].append(json.loads(await request.body()))
        answer = self._next(self.admit)
        if isinstance(answer, float):
            await asyncio.sleep(answer)
        return answer if isinstance(answer, Response) else self.admission()

    async def on_result(self, request):
        self.asked["result"].append(time.monotonic())
        answer = self._next(self.results)
        return answer if isinstance(answer, Response) else JSONResponse(answer)

    async def on_health(self, request):
        self.asked["health"].append(time.monotonic())
        return self._next(self.health) if isinstance(self.health, list) else JSONResponse(self.health)


DONE = {"rollout_id": "r1", "status": "cancelled", "sample": None, "err_message": None, "err_category": None}


async def run_on(scripted, **options):
    with hosted(scripted.app) as url:
        async with RolloutClient(url=url, **options) as client:
            return await client.run_rollout(PROMPT, MODEL, "r1")


async def test_answers_of_the_published_server_are_understood():
    assert (await run_on(Scripted(results=[{**DONE, "status": "running"}, DONE]))).status == "cancelled"


async def test_a_full_server_is_asked_again_when_it_says():
    full = Response("full", status_code=429, headers={"Retry-After": "0.2"})
    scripted = Scripted(admit=[full, full, Scripted.admission()], results=[DONE])
    before = time.monotonic()
    assert (await run_on(scripted)).status == "cancelled"
    assert len(scripted.asked["admit"]) == 3 and 0.4 <= time.monotonic() - before < 8


async def test_a_server_that_stays_full_is_given_up():
    full = Response("full", status_code=429, headers={"Retry-After": "30"})
    with pytest.raises(RolloutAdmissionTimeoutError, match="had no room for rollout r1 within 20s"):
        await run_on(Scripted(admit=[full]), admission_timeout_sec=20)


async def test_a_pending_admission_is_told_apart():
    with pytest.raises(RolloutAdmissionTimeoutError, match="may have been admitted"):
        await run_on(Scripted(admit=[2.0]), admission_timeout_sec=0.2)


@pytest.mark.parametrize(
    "answer",
    [
        Response("<html>", status_code=202),
        JSONResponse([], status_code=202),
        Scripted.admission(polling_lease_timeout_sec=0.1),
        Scripted.admission(rollout_id="other"),
        JSONResponse({}, status_code=200),
        RedirectResponse("/elsewhere"),
    ],
)
async def test_an_admission_that_makes_no_sense(answer):
    with pytest.raises(RolloutProtocolError):
        await run_on(Scripted(admit=[answer]))


@pytest.mark.parametrize(
    "answer",
    [
        Response("<html>"),
        {"status": "success"},
        {**DONE, "status": "paused"},
        {**DONE, "rollout_id": "other"},
        {**DONE, "sample": {"reward": "high"}},
        [],
        RedirectResponse("/elsewhere"),
        Response("no", status_code=500),
        Response("no", status_code=404),
    ],
)
async def test_a_result_that_makes_no_sense_is_not_asked_for_again(answer):
    scripted = Scripted(results=[answer])
    with pytest.raises(RolloutProtocolError):
        await run_on(scripted)
    assert len(scripted.asked["result"]) == 1


async def test_gateway_errors_are_retried_with_pauses(monkeypatch):
    bad = Response("bad gateway", status_code=502)
    scripted = Scripted(results=[bad, bad, {**DONE, "status": "running"}, bad, DONE])
    assert (await run_on(scripted)).status == "cancelled"
    first, second, third, *_ = scripted.asked["result"]
    assert second - first >= 0.24 and third - second >= 0.49


async def test_gateway_errors_are_given_up_in_the_end(monkeypatch):
    monkeypatch.setattr(handle, "GATEWAY_PAUSES_S", (0.01, 0.02))
    scripted = Scripted(results=[Response("bad", status_code=503)])
    with pytest.raises(RolloutProtocolError) as caught:
        await run_on(scripted)
    assert caught.value.status_code == 503 and len(scripted.asked["result"]) == 3


async def test_no_retry_outlives_the_lease():
    scripted = Scripted(results=[Response("bad", status_code=504)], lease_s=2)
    before = time.monotonic()
    with pytest.raises(RolloutProtocolError):
        await run_on(scripted)
    assert time.monotonic() - before < 10 and 3 <= len(scripted.asked["result"]) <= 4


async def test_a_broken_connection_is_retried_twice():
    polls = 0

    async def on_connection(reader, writer):
        nonlocal polls
        request = await reader.readuntil(b"\r\n\r\n")
        if request.startswith(b"POST"):
            admission = Scripted.admission().body
            head = f"HTTP/1.1 202 Accepted\r\ncontent-length: {len(admission)}\r\nconnection: close\r\n\r\n"
            writer.write(head.encode() + bytes(admission))
            await writer.drain()
        else:
            polls += 1
        writer.close()

    server = await asyncio.start_server(on_connection, "127.0.0.1", 0)
    async with server, RolloutClient(url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as client:
        with pytest.raises(httpx.TransportError):
            await client.run_rollout(PROMPT, MODEL, "r1")
    assert polls == 3


async def test_waiting_for_idle_survives_a_restart_of_the_gateway():
    busy = JSONResponse({"process_id": "p", "lifecycle": {"accepting_rollouts": True, "active_rollouts": 2}})
    idle = JSONResponse({"process_id": "p", "lifecycle": {"accepting_rollouts": True, "active_rollouts": 0}})
    scripted = Scripted(health=[Response("starting", status_code=503), busy, idle], results=[DONE])
    with hosted(scripted.app) as url:
        async with RolloutClient(url=url) as client:
            health = await client.wait_idle(timeout_sec=5, poll_interval_sec=0.02)
    assert health["process_id"] == "p" and len(scripted.asked["health"]) == 3


@pytest.mark.parametrize(
    "health", [{}, {"process_id": "p"}, {"process_id": "p", "lifecycle": {"active_rollouts": "few"}}]
)
async def test_a_health_without_identity_cannot_be_waited_for(health):
    with hosted(Scripted(health=health).app) as url:
        async with RolloutClient(url=url) as client:
            with pytest.raises(RolloutProtocolError, match="process_id"):
                await client.wait_idle(timeout_sec=1)


async def test_nobody_there_is_a_transport_error():
    async with RolloutClient(url="http://127.0.0.1:9") as client:
        with pytest.raises(httpx.TransportError):
            await client.run_rollout(PROMPT, MODEL, "r1")
        with pytest.raises(TimeoutError, match="ConnectError"):
            await client.wait_idle(timeout_sec=0.2, poll_interval_sec=0.05)


def test_errors_survive_pickling():
    error = pickle.loads(pickle.dumps(RolloutProtocolError("text", status_code=404)))
    assert (error.status_code, str(error)) == (404, "text")
    late = pickle.loads(pickle.dumps(RolloutAdmissionTimeoutError("late")))
    assert isinstance(late, TimeoutError) and late.message == "late"
    assert issubclass(RolloutProtocolError, RuntimeError) and RolloutHandle.__await__ is not None
