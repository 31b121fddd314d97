"""The agents of the workspace template at work: real server processes, the real gateway, a scripted model behind it."""

import asyncio
import json
import re
import subprocess
import time
from contextlib import ExitStack
from functools import cache
from uuid import uuid4

import httpx
import pytest
from osmosis_ai.gateway.provider import provider_policy
from osmosis_ai.gateway.server import Gateway
from osmosis_ai.rollout.client import RolloutClient
from osmosis_ai.workspace.scaffold import TEMPLATE_ROOT, scaffold_rollout
from published import OURS, child_environment, free_port, serving
from stub_provider import Behaviour, StubProvider

MULTIPLY = ["multiply-local-loop", "multiply-local-openai", "multiply-local-strands"]


def rows(name):
    return [json.loads(line) for line in (TEMPLATE_ROOT / f"data/{name}.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Rollout name to the URL of its server, started when first asked for: a framework's import takes a second."""
    with ExitStack() as running:

        @cache
        def start(name):
            entrypoint = TEMPLATE_ROOT.resolve() / f"rollouts/{name}/main.py"
            home = tmp_path_factory.mktemp(name)
            (home / "previews").mkdir()
            previews[name] = home / "previews"
            environ = {"_OSMOSIS_ROLLOUT_PREVIEW_ROOT": str(previews[name])}
            return running.enter_context(serving(OURS, entrypoint, home, **environ))

        previews = {}
        start.previews = previews
        yield start


async def evaluate(server, rollout, dataset, stub, model, limit=8):
    """Run the first rows of a dataset; gives (row, result, session record) of each."""
    gateway = Gateway(provider_policy(f"openai/{model}", stub.environ()))
    await gateway.start()
    client = RolloutClient(url=server(rollout))

    async def one(row):
        rollout_id = uuid4().hex
        session = gateway.open(rollout_id)
        result = await client.run_rollout(
            initial_messages=[{"role": "user", "content": row["user_prompt"]}],
            chat_completions_url=session.url,
            rollout_id=rollout_id,
            llm_api_key=session.key,
            label=row["ground_truth"],
        )
        return row, result, await gateway.close(rollout_id)

    try:
        return await asyncio.gather(*(one(row) for row in rows(dataset)[:limit]))
    finally:
        await client.aclose()
        await gateway.aclose()


OUTSIDE_A_SANDBOX = """
import os, sys
sys.path.insert(0, {folder!r})
from multiply_agent.workflow import MultiplyGrader, MultiplyWorkflow
from osmosis_ai.rollout import AgentWorkflowConfig, LocalBackend
from osmosis_ai.rollout.server import create_rollout_server
backend = LocalBackend(
    workflow=MultiplyWorkflow, workflow_config=AgentWorkflowConfig(name="multiply"), grader=MultiplyGrader
)
app = create_rollout_server(backend=backend)
import uvicorn
uvicorn.run(app, host="127.0.0.1", port=int(os.environ["_OSMOSIS_ROLLOUT_PORT"]), access_log=False)
"""


async def test_the_agent_of_the_harbor_starter_works_before_a_sandbox_is_around_it(tmp_path):
    folder = TEMPLATE_ROOT.resolve() / "rollouts/multiply-harbor-strands"
    (tmp_path / "main.py").write_text(OUTSIDE_A_SANDBOX.format(folder=str(folder)))
    (tmp_path / "previews").mkdir()
    previews = {"_OSMOSIS_ROLLOUT_PREVIEW_ROOT": str(tmp_path / "previews")}
    with StubProvider() as stub, serving(OURS, tmp_path / "main.py", tmp_path, **previews) as url:
        done = await evaluate(lambda _: url, "multiply-harbor-strands", "multiply", stub, "multiply", limit=2)
    assert [(result.status, result.sample.reward) for _, result, _ in done] == [("success", 1.0)] * 2


@pytest.mark.parametrize("rollout", MULTIPLY)
async def test_a_multiply_agent_calls_its_tool_and_is_graded(server, rollout):
    with StubProvider() as stub:
        done = await evaluate(server, rollout, "multiply", stub, "multiply")
    for row, result, record in done:
        assert (result.status, result.err_message, result.sample.reward) == ("success", None, 1.0), row
        assert len(record.calls) == 2
        first = record.calls[0].request
        assert first.tools[0]["function"]["name"] == "multiply"
        assert first.messages[0] == {
            "role": "system",
            "content": "Use the multiply tool. Then answer with #### <number>.",
        }
        assert record.calls[1].request.messages[-1]["content"] == row["ground_truth"]


@pytest.mark.parametrize("rollout", MULTIPLY)
async def test_a_wrong_answer_gets_zero(server, rollout):
    with StubProvider() as stub:
        done = await evaluate(server, rollout, "multiply", stub, "multiply:wrong-1", limit=2)
    assert [result.sample.reward for _, result, _ in done] == [0.0, 0.0]


@pytest.mark.parametrize("rollout", MULTIPLY)
async def test_reasoning_survives_the_turns(server, rollout):
    """The agents drop it, the gateway puts it back: the stub says "lost" when it does not."""
    with StubProvider() as stub:
        done = await evaluate(server, rollout, "multiply", stub, "reasoning", limit=1)
    (_, result, record), *_ = done
    assert result.status == "success"
    assert record.calls[-1].response["message"]["content"] == "done"


async def test_the_look_up_agent_finds_prices(server):
    def choose(body):
        last = body["messages"][-1]
        if last["role"] == "tool":
            return Behaviour("text", text=f"It costs {last['content']}.\n#### {last['content']}")
        item = re.search(r"the (\w+)", last["content"].replace("the price of ", ""))[1]
        return Behaviour("tool-call", text=f"lookup {json.dumps({'item': item})}")

    with StubProvider() as stub:
        stub.answer_with(choose)
        done = await evaluate(server, "lookup-local-loop", "lookup", stub, "any", limit=32)
    assert len(done) == 32
    assert [result.sample.reward for _, result, _ in done] == [1.0] * 32


@pytest.mark.parametrize(
    ("arguments", "told"),
    [("not json", "error: multiply needs"), ('{"a": 3}', "error: multiply needs"), ('{"a": "x", "b": 2}', "error")],
)
@pytest.mark.parametrize("rollout", MULTIPLY)
async def test_a_broken_tool_call_is_told_to_the_model_and_ends_nothing(server, rollout, arguments, told):
    def choose(body):
        if body["messages"][-1]["role"] == "tool":
            return Behaviour("text", text="I give up.")
        return Behaviour("tool-call", text=f"multiply {arguments}")

    with StubProvider() as stub:
        stub.answer_with(choose)
        ((_, result, record),) = await evaluate(server, rollout, "multiply", stub, "any", limit=1)
    assert (result.status, result.err_message) == ("success", None)
    assert result.sample.reward == 0.0
    answered = str(record.calls[1].request.messages[-1]["content"]).lower()
    assert (told if rollout.endswith("loop") else "error") in answered


async def test_a_model_that_never_stops_calling_tools_is_stopped(server):
    for rollout in MULTIPLY:
        with StubProvider() as stub:
            stub.answer_with(lambda body: Behaviour("tool-call", text='multiply {"a": 2, "b": 3}'))
            ((_, result, record),) = await evaluate(server, rollout, "multiply", stub, "any", limit=1)
        assert len(record.calls) == 6, rollout
        if result.status == "success":
            assert result.sample.reward == 0.0
        else:  # the Agents SDK raises MaxTurnsExceeded: the agent failed
            assert result.err_category == "agent_error"
            assert rollout == "multiply-local-openai"


@pytest.mark.parametrize("rollout", MULTIPLY)
async def test_a_cancelled_rollout_lets_go_of_its_model_call(server, rollout):
    client = RolloutClient(url=server(rollout))
    with StubProvider() as stub:
        gateway = Gateway(provider_policy("openai/hang", stub.environ()))
        await gateway.start()
        session = gateway.open("held")
        try:
            handle = await client.run_rollout_async(
                initial_messages=[{"role": "user", "content": "What is 2 * 3?"}],
                chat_completions_url=session.url,
                rollout_id=f"held-{rollout}",
                llm_api_key=session.key,
                label="6",
            )
            async with asyncio.timeout(20):
                while not stub.requests:
                    await asyncio.sleep(0.02)
                await client.cancel_rollout(f"held-{rollout}")
                result = await handle
            await client.wait_idle(timeout_sec=10, poll_interval_sec=0.05)
            record = await gateway.close("held")
        finally:
            await client.aclose()
            await gateway.aclose()
    assert (result.status, result.sample) == ("cancelled", None)
    assert [call.cancelled for call in record.calls] == [True]


@pytest.mark.slow
async def test_a_rollout_shows_a_preview_while_it_runs(server):
    def choose(body):
        if body["messages"][-1]["role"] == "tool":
            return Behaviour("text", text="#### 1", delay_s=5)
        return Behaviour("tool-call", text='multiply {"a": 2, "b": 3}')

    async def watch(rollout):
        with StubProvider() as stub:
            stub.answer_with(choose)
            server(rollout)
            running = asyncio.create_task(evaluate(server, rollout, "multiply", stub, "any", limit=1))
            while not running.done():
                await asyncio.sleep(0.2)
                for path in server.previews[rollout].glob("*/preview.json"):
                    preview = json.loads(path.read_text())
                    if any(step.get("tool_calls") for step in preview["steps"]):
                        await running
                        return preview
        raise AssertionError(f"{rollout} showed no preview")

    for preview in await asyncio.gather(*(watch(rollout) for rollout in MULTIPLY[1:])):
        osmosis = preview["extra"]["osmosis"]
        assert (osmosis["preview"], osmosis["turn"], osmosis["truncated"]) == (True, 1, False)
        call = next(step for step in preview["steps"] if step.get("tool_calls"))
        assert call["tool_calls"][0]["arguments"] == {"a": 2, "b": 3}


def test_a_scaffolded_server_listens_where_it_is_told_and_asks_for_its_key(tmp_path):
    main = scaffold_rollout(tmp_path, "my-agent").rollout_dir / "main.py"
    port = free_port()
    environ = child_environment(
        tmp_path,
        _OSMOSIS_ROLLOUT_HOST="127.0.0.2",
        _OSMOSIS_ROLLOUT_PORT=str(port),
        _OSMOSIS_ROLLOUT_API_KEY="secret",
    )
    server = subprocess.Popen([OURS, main], env=environ, stderr=subprocess.DEVNULL)
    try:
        with httpx.Client(trust_env=False, timeout=5) as client:
            for _ in range(600):
                try:
                    answer = client.get(f"http://127.0.0.2:{port}/health")
                    break
                except httpx.ConnectError:
                    time.sleep(0.05)
            assert answer.status_code == 401
            known = client.get(f"http://127.0.0.2:{port}/health", headers={"Authorization": "Bearer secret"})
            assert known.json()["status"] == "ok"
            with pytest.raises(httpx.ConnectError):
                client.get(f"http://127.0.0.1:{port}/health")
    finally:
        server.terminate()
        server.wait(20)
