"""Rollouts written for the published SDK run unmodified on ours: the same files, the same results, our interpreter."""

import json

import pytest
from published import CONFORMANCE, OURS, PUBLISHED, drive, needs_published, rollout_request, serving
from stub_provider import StubProvider

SDKS = [pytest.param(OURS, id="ours"), pytest.param(PUBLISHED, id="published", marks=needs_published)]


@pytest.fixture
def stub():
    with StubProvider() as provider:
        yield provider


@pytest.mark.parametrize("python", SDKS)
def test_a_plain_rollout(python, stub, tmp_path):
    steps = [
        {"run": rollout_request("ok", "r-ok")},
        {"run": rollout_request("ask hello", "r-ask", url=stub.base_url, label="Hello from the stub.")},
    ]
    with serving(python, CONFORMANCE / "rollouts/plain/main.py", tmp_path) as url:
        ok, asked = drive(OURS, tmp_path, url, steps)["results"]
    assert (ok["status"], ok["sample"]["reward"], ok["sample"]["metrics"]) == ("success", 1.0, {"letters": 4.0})
    assert (asked["status"], asked["sample"]["reward"]) == ("success", 1.0)
    assert asked["sample"]["messages"][-1] == {"role": "assistant", "content": "Hello from the stub."}
    assert stub.requests[0].headers["authorization"] == "Bearer model-key"
    (artifacts,) = tmp_path.glob("artifacts-*")
    assert (artifacts / "r-ok/artifacts/note.txt").read_text() == "ok"
    trajectory = json.loads((artifacts / "r-ok/trajectory.json").read_text())
    assert trajectory["schema_version"] == "ATIF-v1.7"
    assert trajectory["session_id"] == trajectory["trajectory_id"] == "r-ok"
    assert [(step["source"], step["message"]) for step in trajectory["steps"]] == [("user", "ok"), ("agent", "done")]
    assert trajectory["extra"]["osmosis"]["reward"] == 1.0


@pytest.mark.parametrize("framework", ["strands", "openai"])
@pytest.mark.parametrize("python", SDKS)
def test_an_agent_of_a_framework(python, framework, stub, tmp_path):
    step = {"run": rollout_request("What is 12 * 9?", "r-tool", url=stub.base_url, label="108")}
    with serving(python, CONFORMANCE / f"rollouts/{framework}/main.py", tmp_path) as url:
        (result,) = drive(OURS, tmp_path, url, [step])["results"]
    assert (result["status"], result["err_message"]) == ("success", None)
    assert result["sample"]["reward"] == 1.0
    first, second = (request.body for request in stub.completions)
    assert (first["temperature"], first["max_tokens"], first["stream"]) == (0.5, 64, True)
    assert first["messages"][0]["role"] == "system"
    assert [message["role"] for message in second["messages"]] == ["system", "user", "assistant", "tool"]
    assert second["messages"][-1]["content"] == "108"
    assert {request.headers["authorization"] for request in stub.completions} == {"Bearer model-key"}
    messages = result["sample"]["messages"]
    if framework == "strands":
        assert [message["role"] for message in messages] == ["user", "assistant", "user", "assistant"]
        assert messages[1]["content"][0]["toolUse"]["input"] == {"a": 12, "b": 9}
        assert messages[2]["content"][0]["toolResult"]["content"] == [{"text": "108"}]
    else:
        kinds = [message.get("type", message.get("role")) for message in messages]
        assert kinds == ["user", "function_call", "function_call_output", "message"]
        assert messages[2]["output"] == "108"
    (trajectory_path,) = tmp_path.glob("artifacts-*/r-tool/trajectory.json")
    steps = json.loads(trajectory_path.read_text())["steps"]
    agent = [step for step in steps if step["source"] == "agent"]
    assert agent[0]["tool_calls"][0]["arguments"] == {"a": 12, "b": 9}
    assert agent[0]["observation"]["results"][0]["content"] == "108"
    assert agent[1]["message"].endswith("#### 108")
