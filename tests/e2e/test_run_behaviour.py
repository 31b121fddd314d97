"""A whole `eval run` without its command line: real rollout servers, the real gateway, a stub provider."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import evaluation_workspace as ew
import pytest
from osmosis_ai.errors import ConflictError, OsmosisError, ValidationError
from osmosis_ai.evaluation import environment, execution, rollout_server, walk
from osmosis_ai.evaluation.observer import SilentObserver
from osmosis_ai.evaluation.preflight import PreflightError
from osmosis_ai.evaluation.process import group_alive, own, write_owned
from osmosis_ai.evaluation.verdict import Fault, Outcome
from osmosis_ai.evaluation.walk import Interrupted
from osmosis_ai.gateway import limiter
from stub_provider import Behaviour, StubProvider


@pytest.fixture
def stub(monkeypatch):
    with StubProvider() as provider:
        monkeypatch.setenv("XDG_CACHE_HOME", str(ew.CACHE))
        for name, value in provider.environ().items():
            monkeypatch.setenv(name, value)
        yield provider


def rows(*prompts: str, label: str | None = None) -> list[dict]:
    return [{"user_prompt": prompt, "ground_truth": label or prompt} for prompt in prompts]


def events(run_dir: Path) -> list[dict]:
    return [json.loads(line) for line in (run_dir / "events.jsonl").read_text().splitlines()]


def attempts(run_dir: Path) -> list[dict]:
    path = run_dir / "attempts.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def snapshot(run_dir: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in sorted(run_dir.rglob("*")) if path.is_file()
    }


def last_user(body) -> str:
    return body["messages"][-1]["content"]


async def test_three_outcomes_stay_three(stub, tmp_path):
    data = [*rows("one", "two"), *rows("three", label="other"), *rows("raise"), *rows("four", label="unset")]
    data += rows("five", label="broken")
    report = await ew.evaluate(ew.make_workspace(tmp_path, data), name="r")
    assert (report.status, report.succeeded, report.failed, report.skipped) == ("finished", 3, 2, 1)
    assert report.metrics["passed"] == 2 and report.metrics["pass_rate"] == pytest.approx(2 / 5)
    by_row = {event["row_index"]: event for event in events(report.run_dir)}
    assert by_row[2]["reward"] == 0.0
    assert by_row[4]["status"] == "skipped" and "reward" not in by_row[4]
    assert by_row[3]["error"]["fault"] == "agent" and "no idea" in by_row[3]["error"]["message"]
    assert "RuntimeError" in by_row[3]["error"]["traceback_tail"]
    assert by_row[5]["error"]["fault"] == "grader" and "the grader cannot" in by_row[5]["error"]["message"]
    assert {(cause.fault, cause.count) for cause in report.causes} == {(Fault.AGENT, 1), (Fault.GRADER, 1)}
    assert [failure.key for failure in report.failures] == [(3, 0), (4, 0), (5, 0)]


async def test_every_call_is_kept_and_a_failed_rollout_can_be_viewed(stub, tmp_path):
    main = ew.MAIN.replace(
        "        messages.append(response",
        "        if text == 'late': raise RuntimeError('after the call')\n        messages.append(response",
    )
    report = await ew.evaluate(ew.make_workspace(tmp_path, rows("hello", "late"), main=main), name="r")
    assert report.failed == 1
    for event in events(report.run_dir):
        trial = report.run_dir / "rollout_trials" / event["rollout_id"]
        calls = [json.loads(line) for line in (trial / "calls.jsonl").read_text().splitlines()]
        assert (
            len(calls) == 1 and calls[0]["request"]["messages"] and calls[0]["usage"]["total_tokens"] == event["tokens"]
        )
        trajectory = json.loads((trial / "trajectory.json").read_text())
        assert [step["source"] for step in trajectory["steps"]] == ["user", "agent"]
        assert trajectory["steps"][1]["metrics"]["prompt_tokens"] == event["prompt_tokens"]
        assert trajectory["final_metrics"]["total_completion_tokens"] == event["completion_tokens"]
        copy = report.run_dir / "trajectories" / f"row_{event['row_index']}_run_0.json"
        assert json.loads(copy.read_text()) == trajectory


async def test_a_conversation_is_kept_in_its_length(stub, tmp_path):
    main = ew.MAIN.replace(
        "        return messages",
        "        for turn in range(3):\n"
        "            messages = [*messages, {'role': 'user', 'content': f'turn {turn}'}]\n"
        "            response = await CLIENT.post(\n"
        "                f'{rollout.chat_completions_url}/chat/completions',\n"
        "                headers={'Authorization': f'Bearer {rollout.api_key}'}, json={'messages': messages})\n"
        "            messages = [*messages, response.json()['choices'][0]['message']]\n"
        "        return messages",
    )
    report = await ew.evaluate(ew.make_workspace(tmp_path, rows("one"), main=main), name="r")
    (event,) = events(report.run_dir)
    text = (report.run_dir / "rollout_trials" / event["rollout_id"] / "calls.jsonl").read_text()
    requests = [json.loads(line)["request"] for line in text.splitlines()]
    assert [len(request["messages"]) for request in requests] == [1, 2, 2, 2]
    assert [request.get("messages_before", 0) for request in requests] == [0, 1, 3, 5]
    whole: list = []
    for request in requests:
        whole = [*whole[: request.get("messages_before", 0)], *request["messages"]]
    assert [message["content"] for message in whole] == [
        "one", "one", "turn 0", "turn 0", "turn 1", "turn 1", "turn 2",
    ]  # fmt: skip


async def test_a_finished_run_is_left_byte_for_byte(stub, tmp_path):
    workspace = ew.make_workspace(tmp_path)
    first = await ew.evaluate(workspace, name="r")
    before = snapshot(first.run_dir)
    asked = stub.served
    again = await ew.evaluate(workspace, name="r")
    assert snapshot(first.run_dir) == before and stub.served == asked
    assert again.status == "finished" and again.dispatched == 0 and again.resumed == 4
    assert again.metrics == first.metrics and again.duration_ms > 0


async def test_retry_failed_runs_only_what_failed_or_was_skipped(stub, tmp_path):
    workspace = ew.make_workspace(tmp_path, [*rows("good", "raise"), *rows("x", label="unset")])
    first = await ew.evaluate(workspace, name="r")
    before = {event["row_index"]: event["rollout_id"] for event in events(first.run_dir)}
    started = json.loads((first.run_dir / "metrics.json").read_text())["eval_run"]
    again = await ew.evaluate(workspace, name="r", retry_failed=True)
    after = events(first.run_dir)[3:]
    assert sorted(event["row_index"] for event in after) == [1, 2]
    assert again.resumed == 1 and again.dispatched == 2
    index = [json.loads(line) for line in (first.run_dir / "index.jsonl").read_text().splitlines()]
    assert index[0]["rollout_id"] == before[0] and index[0]["resumed"] and index[1]["rollout_id"] != before[1]
    ended = json.loads((first.run_dir / "metrics.json").read_text())["eval_run"]
    assert ended["started_at"] == started["started_at"] and ended["duration_ms"] > started["duration_ms"]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda w: (w / "rollouts/loop/main.py").open("a").write("# more\n"), "rollout"),
        (lambda w: ew.write_rows(w, rows("other")), "dataset"),
        (
            lambda w: (w / "configs/eval/loop.toml").write_text(
                (w / "configs/eval/loop.toml").read_text().replace("[evaluation]", "[evaluation]\npass_threshold = 0.5")
            ),
            "pass_threshold",
        ),
    ],
)
async def test_other_inputs_under_the_same_name_are_refused_and_fresh_archives(stub, tmp_path, change, named):
    workspace = ew.make_workspace(tmp_path, rows("one"))
    first = await ew.evaluate(workspace, name="r")
    before = snapshot(first.run_dir)
    change(workspace)
    with pytest.raises(ConflictError, match=named):
        await ew.evaluate(workspace, name="r")
    assert snapshot(first.run_dir) == before
    fresh = await ew.evaluate(workspace, name="r", fresh=True)
    archived = [path for path in first.run_dir.parent.iterdir() if path.name.startswith("r.archive-")]
    assert fresh.local_run_id != first.local_run_id and len(archived) == 1
    assert (archived[0] / "events.jsonl").exists()


async def test_two_runs_of_one_name_at_once_are_refused(stub, tmp_path):
    workspace = ew.make_workspace(tmp_path, rows("sleep 2"))
    first = asyncio.create_task(ew.evaluate(workspace, name="r"))
    while not (workspace / ".osmosis/evals/r/server.json").exists():
        await asyncio.sleep(0.05)
    with pytest.raises(ConflictError, match="in use"):
        await ew.evaluate(workspace, name="r")
    assert (await first).status == "finished"


async def test_a_linked_run_directory_is_refused(stub, tmp_path):
    workspace = ew.make_workspace(tmp_path)
    root = workspace / ".osmosis/evals"
    root.mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (root / "r").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConflictError, match="symbolic link"):
        await ew.evaluate(workspace, name="r")
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize(
    ("spoil", "options", "named"),
    [
        (lambda w: (w / "rollouts/loop/pyproject.toml").unlink(), {}, "pyproject.toml"),
        (lambda w: (w / "rollouts/loop/pyproject.toml").write_text("[project"), {}, "TOML"),
        (lambda w: (w / "rollouts/loop/main.py").unlink(), {}, "main.py"),
        (lambda w: os.rename(w / "rollouts/loop", w / "rollouts/other"), {}, "rollout init loop"),
        (lambda w: None, {"rollout_port": 0}, "--rollout-port"),
        (lambda w: None, {"listener_port": 70000}, "--listener-port"),
        (lambda w: None, {"max_in_flight": 0}, "--max-in-flight"),
        (lambda w: None, {"max_cost_usd": 0.0}, "--max-cost"),
        (lambda w: None, {"name": "../x"}, "name"),
    ],
)
async def test_what_is_wrong_is_said_before_anything_is_made(stub, tmp_path, spoil, options, named):
    workspace = ew.make_workspace(tmp_path)
    spoil(workspace)
    with pytest.raises(OsmosisError, match=named):
        await ew.evaluate(workspace, **{"name": "r"} | options)
    assert not (workspace / ".osmosis").exists() and stub.served == 0


async def test_results_must_not_lie_in_their_own_source(stub, tmp_path):
    workspace = ew.make_workspace(tmp_path)
    with pytest.raises(ValidationError, match="own folder"):
        await ew.evaluate(workspace, name="r", output_root=workspace / "rollouts/loop")
    assert not (workspace / "rollouts/loop/.locks").exists()


async def test_an_unusable_model_stops_the_run_before_any_process(stub, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    workspace = ew.make_workspace(tmp_path)
    with pytest.raises(PreflightError, match="OPENAI_BASE_URL"):
        await ew.evaluate(workspace, name="r")
    run_dir = workspace / ".osmosis/evals/r"
    assert (run_dir / "manifest.json").exists() and not (run_dir / "server.json").exists()
    assert "[preflight]" in (run_dir / "logs.txt").read_text() and "[deps]" not in (run_dir / "logs.txt").read_text()
    monkeypatch.setenv("OPENAI_BASE_URL", stub.base_url)
    assert (await ew.evaluate(workspace, name="r")).status == "finished"


async def test_the_model_is_asked_again_only_after_a_while(stub, tmp_path):
    workspace = ew.make_workspace(tmp_path, rows("one"))
    await ew.evaluate(workspace, name="a")
    asked = sum(request.method == "GET" for request in stub.requests)
    await ew.evaluate(workspace, name="b")
    assert sum(request.method == "GET" for request in stub.requests) == asked
    cache = environment.cache_dir() / "preflight.json"
    assert cache.stat().st_mode & 0o777 == 0o600 and "sk-" not in cache.read_text()


@pytest.mark.parametrize(
    "error",
    [
        Behaviour("status", status=401),
        Behaviour(
            "status",
            status=429,
            body={
                "error": {
                    "message": "You exceeded your current quota",
                    "type": "insufficient_quota",
                    "code": "insufficient_quota",
                }
            },
        ),
    ],
)
async def test_a_policy_that_refuses_for_good_halts_and_leaves_the_rest_pending(stub, tmp_path, error):
    workspace = ew.make_workspace(tmp_path, rows(*(f"row {i}" for i in range(12))), capacity=2)
    stub.answer_with(lambda body: error if last_user(body) >= "row 3" else None)
    report = await ew.evaluate(workspace, name="r")
    assert report.status == "incomplete" and report.failed == 0 and report.succeeded < 12
    assert report.halt_code in ("policy_authentication", "policy_quota") and report.halt_reason
    stub.answer_with(None)
    report = await ew.evaluate(workspace, name="r")
    assert report.status == "finished" and report.succeeded == 12
    assert len(events(report.run_dir)) == 12


async def test_a_flaky_policy_is_no_failure_and_a_dead_one_is_nobodys(stub, tmp_path, monkeypatch):
    quicken(monkeypatch)
    workspace = ew.make_workspace(tmp_path, rows("ok", "bad"))
    stub.answer_with(lambda body: Behaviour("status", status=503) if last_user(body) == "bad" else None)
    report = await ew.evaluate(workspace, name="r")
    assert report.status == "finished" and report.succeeded == 1 and report.failed == 1
    (failure,) = report.failures
    assert failure.fault is Fault.INFRASTRUCTURE and failure.code == "policy_unavailable"
    kept = attempts(report.run_dir)
    assert [attempt["number"] for attempt in kept] == [1, 2] and {a["row_index"] for a in kept} == {1}
    assert next(event for event in events(report.run_dir) if event["row_index"] == 1)["attempts"] == 3


def quicken(monkeypatch) -> None:
    """The same tries with shorter waits between them."""
    plain = limiter.RetryRules
    monkeypatch.setattr(limiter, "RetryRules", lambda: plain(first_backoff_s=0.02))
    monkeypatch.setattr(execution, "Limits", lambda **values: walk.Limits(retry_delay_s=0.02, **values))


async def test_ten_lost_items_in_a_row_halt_the_run(stub, tmp_path, monkeypatch):
    quicken(monkeypatch)
    workspace = ew.make_workspace(tmp_path, rows(*(f"row {i}" for i in range(30))), capacity=2)
    stub.answer_with(lambda body: Behaviour("status", status=503))
    report = await ew.evaluate(workspace, name="r")
    assert report.status == "incomplete" and 10 <= report.failed <= 12
    assert "10 items in a row" in report.halt_reason
    assert report.dispatched == report.failed + report.cancelled  # those that waited for another try included
    assert all(failure.fault is Fault.INFRASTRUCTURE for failure in report.failures)


async def test_a_dead_server_is_restarted_and_costs_an_attempt(stub, tmp_path):
    workspace = ew.make_workspace(tmp_path, rows(*(f"row {i}" for i in range(6)), "killonce a", "dieonce b"))
    report = await ew.evaluate(workspace, name="r")
    assert report.status == "finished" and report.succeeded == 8
    kept = attempts(report.run_dir)
    assert kept and {attempt["failure"]["code"] for attempt in kept} <= {"server_died", "server_lost"}
    assert len(events(report.run_dir)) == 8


async def test_a_fixed_port_is_taken_again_after_a_death(stub, tmp_path):
    port = rollout_server.free_port()
    workspace = ew.make_workspace(tmp_path, rows("one", "killonce a", "two"))
    report = await ew.evaluate(workspace, name="r", rollout_port=port)
    assert report.status == "finished" and report.succeeded == 3
    assert (report.run_dir / "logs.txt").read_text().count(f'"port":{port}') == 2


async def test_an_item_that_kills_the_server_each_time_fails_alone(stub, tmp_path):
    workspace = ew.make_workspace(tmp_path, rows("die 7", *(f"row {i}" for i in range(5))), capacity=3)
    report = await ew.evaluate(workspace, name="r")
    assert report.status == "finished" and report.succeeded == 5 and report.failed == 1
    (failure,) = report.failures
    assert failure.key == (0, 0) and failure.code == "server_died" and failure.fault is Fault.AGENT
    assert "exited with code 7" in failure.message


async def test_servers_that_only_die_end_the_run(stub, tmp_path):
    main = ew.MAIN.replace("        text = ctx.prompt", "        os._exit(5)\n        text = ctx.prompt")
    workspace = ew.make_workspace(tmp_path, rows("a", "b", "c"), main=main, capacity=8)
    report = await ew.evaluate(workspace, name="r")
    assert report.status == "incomplete" or report.failed == 3
    assert not group_alive_of(report.run_dir)


@pytest.mark.slow
async def test_an_agent_that_blocks_the_event_loop_is_named_and_the_others_are_not(stub, tmp_path, monkeypatch):
    monkeypatch.setattr(rollout_server, "HANG_MARGIN_S", 1.0)
    workspace = ew.make_workspace(
        tmp_path,
        rows("one", "block 600", "two", "hog", "three"),
        capacity=3,
        evaluation="agent_workflow_timeout_s = 1",
    )
    report = await ew.evaluate(workspace, name="r")
    assert report.status == "finished" and report.succeeded == 3
    assert {failure.key for failure in report.failures} == {(1, 0), (3, 0)}
    for failure in report.failures:
        assert failure.fault is Fault.AGENT and failure.code == "timeout" and "event loop" in failure.message
    tails = [event["error"].get("traceback_tail", "") for event in events(report.run_dir) if "error" in event]
    assert all("main.py" in tail and " in run" in tail for tail in tails), tails


async def test_a_grader_that_blocks_the_event_loop_has_the_graders_limit(stub, tmp_path, monkeypatch):
    monkeypatch.setattr(rollout_server, "HANG_MARGIN_S", 1.0)
    workspace = ew.make_workspace(tmp_path, rows("slowgrade"), evaluation="agent_workflow_timeout_s = 1")
    report = await ew.evaluate(workspace, name="r")
    assert report.succeeded == 1 and not attempts(report.run_dir)
    assert "in grade" in (report.run_dir / "logs.txt").read_text(), "nobody looked"


async def test_an_exit_inside_a_rollout_is_contained(stub, tmp_path):
    report = await ew.evaluate(ew.make_workspace(tmp_path, rows("exit 7", "one")), name="r")
    assert report.status == "finished" and report.succeeded == 1
    (failure,) = report.failures
    assert failure.fault is Fault.AGENT and "7" in failure.message


async def test_an_exit_of_the_entrypoint_is_named(stub, tmp_path):
    workspace = ew.make_workspace(tmp_path, main="print('no licence')\nexit(7)\n")
    with pytest.raises(rollout_server.ServerStartError, match=r"rollouts/loop/main.py called exit\(7\)") as caught:
        await ew.evaluate(workspace, name="r")
    assert "no licence" in caught.value.message and "logs.txt" in caught.value.message
    assert (workspace / ".osmosis/evals/r/logs.txt").read_text().count("started the rollout server") == 1
    assert not (workspace / ".osmosis/evals/r/server.json").exists()


async def test_a_port_that_was_taken_meanwhile_costs_one_more_start(stub, tmp_path, monkeypatch):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        free, ports = rollout_server.free_port, [taken.getsockname()[1]]
        monkeypatch.setattr(rollout_server, "free_port", lambda: ports.pop() if ports else free())
        report = await ew.evaluate(ew.make_workspace(tmp_path, rows("one")), name="r")
    assert report.succeeded == 1
    assert (report.run_dir / "logs.txt").read_text().count("started the rollout server") == 2


@pytest.mark.parametrize(
    ("main", "named"),
    [
        ("x = 1\ndef (:\n", r"SyntaxError: .*rollouts/loop/main\.py, line 2\)"),
        ("import json\njson.loads('{')\n", r"JSONDecodeError: .*rollouts/loop/main\.py, line 2\)"),
        ("x = 1\n", r"exited with code 0 .*\nIt must serve on the port in _OSMOSIS_ROLLOUT_PORT"),
    ],
)
async def test_an_entrypoint_that_does_not_serve_is_told_where(stub, tmp_path, main, named):
    with pytest.raises(rollout_server.ServerStartError, match=named):
        await ew.evaluate(ew.make_workspace(tmp_path, main=main), name="r")


async def test_a_foreign_server_on_the_port_is_found_out(stub, tmp_path):
    import http.server
    import threading

    class Foreign(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = b'{"status":"ok","instance_id":"someone"}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Foreign)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    workspace = ew.make_workspace(tmp_path, main="import time\ntime.sleep(60)\n")
    try:
        with pytest.raises(rollout_server.ServerStartError, match="another process"):
            await ew.evaluate(workspace, name="r", rollout_port=server.server_port)
    finally:
        server.shutdown()


async def test_a_port_in_use_is_named_with_its_option(stub, tmp_path):
    port = int(stub.base_url.split(":")[2].split("/")[0])
    with pytest.raises(rollout_server.ServerStartError, match=rf"Port {port} is in use.*another --rollout-port"):
        await ew.evaluate(ew.make_workspace(tmp_path), name="r", rollout_port=port)


async def test_a_server_with_a_key_of_its_own_is_told_so(stub, tmp_path):
    main = ew.MAIN.replace(
        "create_rollout_server(backend=backend)", 'create_rollout_server(backend=backend, api_key="k")'
    )
    with pytest.raises(rollout_server.ServerStartError, match="api_key of its own"):
        await ew.evaluate(ew.make_workspace(tmp_path, main=main), name="r")


async def test_a_server_that_refuses_a_rollout_fails_it_at_once(stub, tmp_path):
    main = """
import os, uvicorn
from fastapi import FastAPI, Response
app = FastAPI()
@app.get("/health")
def health(): return {"status": "ok"}
@app.post("/rollout")
def rollout(): return Response('{"detail":"not this one"}', 422)
uvicorn.run(app, port=int(os.environ["_OSMOSIS_ROLLOUT_PORT"]), log_level="error")
"""
    report = await ew.evaluate(ew.make_workspace(tmp_path, rows("one", "two"), main=main), name="r")
    assert report.status == "finished" and report.failed == 2 and not attempts(report.run_dir)
    assert {failure.code for failure in report.failures} == {"rollout_protocol_error"}
    assert "not this one" in report.failures[0].message


async def test_a_hung_rollout_costs_its_item_and_not_the_run(stub, tmp_path, monkeypatch):
    quicken(monkeypatch)
    monkeypatch.setattr(walk.Limits, "deadline_s", 1.0)
    workspace = ew.make_workspace(tmp_path, rows("sleep 50", *(f"row {i}" for i in range(4))), capacity=1)
    report = await ew.evaluate(workspace, name="r")
    assert report.status == "finished" and report.succeeded == 4
    (failure,) = report.failures
    assert failure.code == "deadline" and failure.fault is Fault.INFRASTRUCTURE
    assert [attempt["number"] for attempt in attempts(report.run_dir)] == [1, 2]


async def test_agents_can_be_sent_to_an_address_of_ones_own(stub, tmp_path):
    port = rollout_server.free_port()
    main = ew.MAIN.replace(
        "        messages = list(ctx.prompt)",
        "        print('URL', rollout.chat_completions_url)\n        messages = list(ctx.prompt)",
    )
    report = await ew.evaluate(
        ew.make_workspace(tmp_path, rows("one"), main=main),
        name="r",
        listener_port=port,
        advertise_url=f"http://localhost:{port}/",
    )
    assert report.succeeded == 1
    assert f"URL http://localhost:{port}/v1/rollouts/" in (report.run_dir / "logs.txt").read_text()


async def test_a_tunnel_that_ends_halts_the_run_and_blames_nobody(stub, tmp_path, monkeypatch):
    program = tmp_path / "bin/cloudflared"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\necho https://quiet-otter.trycloudflare.com\necho Registered tunnel connection\nsleep 3\nexit 4\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(execution.Tunnel, "probes_after_signal", 1)
    workspace = ew.make_workspace(tmp_path / "w", rows("sleep 40", "sleep 40", "sleep 40"), capacity=2)
    warnings: list[str] = []

    class Watcher(SilentObserver):
        def warning(self, code, message):
            warnings.append(message)

    report = await ew.evaluate(workspace, name="r", tunnel="cloudflared", observer=Watcher())
    assert report.status == "incomplete" and report.halt_code == "tunnel_exit" and report.failed == 0
    assert "exited with code 4" in report.halt_reason and report.cancelled == 2
    assert any("cannot be tried" in warning for warning in warnings)
    assert not (report.run_dir / "tunnel.json").exists()


async def test_a_limit_on_an_unknown_price_is_warned_about(stub, tmp_path):
    warnings: list[str | None] = []

    class Watcher(SilentObserver):
        def warning(self, code, message):
            warnings.append(code)

    await ew.evaluate(ew.make_workspace(tmp_path), name="r", max_cost_usd=1.0, observer=Watcher())
    assert warnings == ["MAX_COST_UNKNOWN_PRICE"]


def test_a_file_size_limit_ends_the_run_and_the_next_one_finishes_it(stub, tmp_path):
    import resource
    import subprocess

    workspace = ew.make_workspace(tmp_path, rows(*(f"row {i}" for i in range(40))))
    command = [sys.executable, ew.__file__, str(workspace)]
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8000, 8000))  # noqa: E731
    first = subprocess.run(command, preexec_fn=limit, capture_output=True, text=True, check=False)
    assert first.returncode == 1, first.stderr
    kept = events(workspace / ".osmosis/evals/r")
    assert 0 < len(kept) < 40
    second = subprocess.run(command, capture_output=True, text=True, check=False)
    assert second.returncode == 0, second.stderr
    found = events(workspace / ".osmosis/evals/r")
    assert found[: len(kept)] == kept and len({event["row_index"] for event in found}) == 40 == len(found)


async def test_the_cost_limit_stops_dispatch(stub, tmp_path):
    from osmosis_ai.gateway.policy import ChatDelta, Usage

    class Priced:
        model = "priced/one"

        async def preflight(self):
            pass

        async def chat(self, request):
            text = request.messages[-1]["content"]
            yield ChatDelta({"role": "assistant", "content": text}, "stop", Usage(1, 1), cost_usd=0.5)

        async def close_session(self, rollout_id):
            pass

        async def aclose(self):
            pass

    workspace = ew.make_workspace(tmp_path, rows(*(f"row {i}" for i in range(10))), capacity=1)
    report = await ew.evaluate(workspace, name="r", policy=Priced(), max_cost_usd=1.2)
    assert report.status == "incomplete" and report.halt_code == "max_cost"
    assert report.succeeded == 3 and report.cost_usd == pytest.approx(1.5)
    assert (await ew.evaluate(workspace, name="r", policy=Priced())).status == "finished"


async def test_retry_after_holds_back_every_rollout(stub, tmp_path):
    workspace = ew.make_workspace(tmp_path, rows(*(f"row {i}" for i in range(6))), capacity=6)
    stub.script(Behaviour("status", status=429, retry_after="1"))
    report = await ew.evaluate(workspace, name="r")
    assert report.succeeded == 6 and not attempts(report.run_dir)
    calls = [request.at for request in stub.requests if request.method == "POST"]
    late = [at for at in calls if at - calls[0] > 0.9]
    assert late, "nobody waited"


async def test_secrets_reach_the_rollout_and_no_file(stub, tmp_path, monkeypatch):
    monkeypatch.delenv("GREETING_KEY", raising=False)
    main = ew.MAIN.replace("CLIENT = None", "CLIENT = None\nprint('key', os.environ['GREETING_KEY'])", 1)
    workspace = ew.make_workspace(tmp_path, rows("one"), main=main, secrets='required = ["GREETING_KEY"]')
    report = await ew.evaluate(workspace, name="r", secrets={"GREETING_KEY": "hush-4711"})
    assert report.succeeded == 1 and "GREETING_KEY" not in os.environ
    for path in report.run_dir.rglob("*"):
        if path.is_file():
            assert b"hush-4711" not in path.read_bytes(), path
    assert "key [REDACTED]" in (report.run_dir / "logs.txt").read_text()


async def test_an_orphan_of_another_run_is_ended_at_the_next_start(stub, tmp_path):
    import subprocess

    workspace = ew.make_workspace(tmp_path, rows("one"))
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    other = workspace / ".osmosis/evals/other"
    other.mkdir(parents=True)
    write_owned(other / "server.json", own(child.pid, instance_id="x", port=1))
    warnings: list[str] = []
    await ew.evaluate(workspace, name="r", warnings=warnings)
    assert child.wait(5) == -signal.SIGTERM
    assert any("other" in warning for warning in warnings) and not (other / "server.json").exists()


async def test_a_slow_observer_does_not_slow_the_walk(stub, tmp_path):
    class Slow(SilentObserver):
        seen = 0

        def verdict(self, verdict, tally):
            time.sleep(0.2)
            Slow.seen += 1
            assert tally.done == Slow.seen and tally.total == 20

    report = await ew.evaluate(
        ew.make_workspace(tmp_path, rows(*(f"row {i}" for i in range(20))), capacity=10), name="r", observer=Slow()
    )
    assert report.duration_ms < 2000 and Slow.seen == 20


def test_many_rollouts_in_flight_need_no_higher_limit_of_open_files(stub, tmp_path):
    import resource
    import subprocess

    workspace = ew.make_workspace(tmp_path, rows(*(f"sleep 1.{i:03}" for i in range(150))), capacity=150)
    limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (128, 4096))  # noqa: E731
    command = [sys.executable, ew.__file__, str(workspace)]
    done = subprocess.run(command, preexec_fn=limit, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout)["succeeded"] == 150
    assert not attempts(workspace / ".osmosis/evals/r")


async def test_results_do_not_make_the_repository_dirty(stub, tmp_path):
    workspace = ew.make_workspace(tmp_path, rows("say a"))
    (workspace / ".gitignore").write_text("marks/\n")
    subprocess.run(["git", "add", "-A"], cwd=workspace, check=True)
    await ew.evaluate(workspace, name="r")
    answer = subprocess.run(["git", "status", "--porcelain"], cwd=workspace, capture_output=True, text=True, check=True)
    assert "??" not in answer.stdout
    (workspace / ".osmosis/.gitignore").write_text("mine\n")
    await ew.evaluate(workspace, name="s")
    assert (workspace / ".osmosis/.gitignore").read_text() == "mine\n"


async def test_artifacts_are_copied(stub, tmp_path):
    report = await ew.evaluate(ew.make_workspace(tmp_path, rows("artifact x")), name="r")
    assert (report.run_dir / "artifacts/row_0_run_0/note.txt").read_text() == "artifact x"


async def test_attempts_of_a_row_and_chosen_rows(stub, tmp_path):
    workspace = ew.make_workspace(tmp_path, evaluation="n = 2")
    report = await ew.evaluate(workspace, name="r", rows="1,3")
    found = {(event["row_index"], event["run_index"], event["source_row_index"]) for event in events(report.run_dir)}
    assert found == {(0, 0, 1), (0, 1, 1), (1, 0, 3), (1, 1, 3)}
    assert report.metrics["pass_at_k"]


async def test_a_full_disk_halts_the_run_and_loses_nothing(stub, tmp_path, monkeypatch):
    from osmosis_ai.evaluation import journal

    workspace = ew.make_workspace(tmp_path, rows(*(f"row {i}" for i in range(8))), capacity=2)
    plain, written = os.write, []

    def full(descriptor, data):
        target = os.readlink(f"/proc/self/fd/{descriptor}")
        if target.endswith("events.jsonl"):
            written.append(bytes(data))
            if len(written) > 3:
                plain(descriptor, bytes(data)[:20])
                raise OSError(28, "No space left on device")
        return plain(descriptor, data)

    monkeypatch.setattr(journal.os, "write", full)
    report = await ew.evaluate(workspace, name="r")
    monkeypatch.undo()
    assert report.status == "incomplete" and "No space left" in report.halt_reason
    kept = events(report.run_dir)
    for name, value in stub.environ().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(ew.CACHE))
    report = await ew.evaluate(workspace, name="r")
    assert report.status == "finished" and events(report.run_dir)[: len(kept)] == kept
    assert len({(event["row_index"]) for event in events(report.run_dir)}) == 8 == len(events(report.run_dir))


def group_alive_of(run_dir: Path) -> bool:
    from osmosis_ai.evaluation.process import read_owned

    record = read_owned(run_dir / "server.json")
    return record is not None and group_alive(record.pgid)


async def test_interrupted_twice_is_an_interruption(stub, tmp_path):
    workspace = ew.make_workspace(tmp_path, rows("sleep 30", "sleep 30"))
    run = asyncio.create_task(ew.evaluate(workspace, name="r"))
    await _dispatching(workspace)
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(Interrupted):
        await run
    assert not (workspace / ".osmosis/evals/r/server.json").exists()


async def test_interrupted_while_the_server_starts_leaves_nothing_running(stub, tmp_path):
    workspace = ew.make_workspace(tmp_path, main="import time\ntime.sleep(60)\n")
    run = asyncio.create_task(ew.evaluate(workspace, name="r"))
    record = workspace / ".osmosis/evals/r/server.json"
    async with asyncio.timeout(20):
        while not record.exists():
            await asyncio.sleep(0.05)
    pid = json.loads(record.read_text())["pid"]
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(Interrupted, match="--name r"):
        await run
    assert not group_alive(pid) and not record.exists()
    ew_main = workspace / "rollouts/loop/main.py"
    ew_main.write_text(ew.MAIN.replace("CAPACITY", "4"))
    assert (await ew.evaluate(workspace, name="r", fresh=True)).status == "finished"


async def test_interrupted_once_drains(stub, tmp_path):
    workspace = ew.make_workspace(tmp_path, rows("one", "sleep 30", "sleep 30", "two"), capacity=2)
    run = asyncio.create_task(ew.evaluate(workspace, name="r"))
    await _dispatching(workspace, 3)  # two at a time: the first has ended
    started = time.monotonic()
    os.kill(os.getpid(), signal.SIGINT)
    report = await run
    assert time.monotonic() - started < 25
    assert report.status == "incomplete" and report.halt_code == "interrupted"
    assert report.cancelled == 2 and report.succeeded == 1 and report.failed == 0
    metrics = json.loads((report.run_dir / "metrics.json").read_text())
    assert metrics["eval_run"]["status"] == "incomplete" and "completed_at" not in metrics["eval_run"]
    assert len(events(report.run_dir)) == 1


async def _dispatching(workspace: Path, rollouts: int = 2) -> None:
    """Until so many rollouts have begun."""
    log = workspace / ".osmosis/evals/r/rollout_trials"
    async with asyncio.timeout(20):
        while not (log.exists() and len(list(log.iterdir())) >= rollouts):
            await asyncio.sleep(0.05)
    await asyncio.sleep(0.5)


def test_outcomes_are_the_published_words():
    assert [outcome.value for outcome in Outcome] == ["success", "skipped", "failed"]
