"""What an exception means: category, text and traceback, without secrets."""

import json

import httpx
import pytest
from osmosis_ai.rollout import AgentWorkflowOutput, RolloutSample
from osmosis_ai.rollout.utils.errors import TRACEBACK_LIMIT, category_of, message_of, traceback_tail


class SandboxConnectionException(Exception): ...


class MySandboxTrouble(SandboxConnectionException): ...


class SandboxApiException(Exception):
    def __init__(self, status_code):
        self.status_code = status_code


class SandboxAPIError(SandboxApiException): ...


@pytest.mark.parametrize(
    ("exc", "category"),
    [
        (TimeoutError("t"), "timeout"),
        (TimeoutError(), "timeout"),
        (ValueError("v"), "validation_error"),
        (json.JSONDecodeError("v", "", 0), "validation_error"),
        (TypeError("v"), "validation_error"),
        (AssertionError(), "validation_error"),
        (MySandboxTrouble(), "http_error"),
        (SandboxApiException(503), "http_error"),
        (SandboxAPIError(429), "http_error"),
        (SandboxApiException(404), "agent_error"),
        (SandboxApiException("503"), "agent_error"),
        (RuntimeError("HTTP 503"), "agent_error"),
        (KeyError("k"), "agent_error"),
        (httpx.ConnectError("no"), "agent_error"),
    ],
)
def test_the_category_comes_from_the_type(exc, category):
    assert category_of(exc) == category


def test_the_message_is_the_text_or_the_class_without_secrets():
    assert message_of(RuntimeError("calling with sk-secret-key"), secrets=["sk-secret-key", None, ""]) == (
        "calling with [REDACTED]"
    )
    assert message_of(KeyError()) == "KeyError"
    group = ExceptionGroup("two failed", [ValueError("first cause"), OSError("second")])
    assert message_of(group) == "two failed (2 sub-exceptions); first: ValueError: first cause"

    class Unprintable(Exception):
        def __str__(self):
            raise RuntimeError("no")

    assert message_of(Unprintable()).startswith("Unprintable (its text cannot be made")


def test_what_a_model_refuses_is_told_place_by_place():
    with pytest.raises(ValueError, match="pydantic") as refused:
        RolloutSample(reward=True)
    assert message_of(refused.value) == "RolloutSample.reward: a reward is a finite number or None, not bool"
    with pytest.raises(ValueError, match="pydantic") as refused:
        AgentWorkflowOutput.model_validate({"messages": [1] * 7})
    text = message_of(refused.value)
    assert text.startswith("AgentWorkflowOutput.messages.0: Input should be a valid dictionary; ")
    assert text.endswith("; and 2 more")


def raised(function, *args):
    try:
        function(*args)
    except Exception as exc:
        return exc
    raise AssertionError("it should have raised")


def test_the_traceback_ends_with_the_agents_frame_and_the_error():
    def agent_code():
        secret = "sk-secret-key"
        raise RuntimeError(f"rejected {secret}")

    tail = traceback_tail(raised(agent_code), secrets=["sk-secret-key"])
    assert tail is not None
    assert "in agent_code" in tail and tail.endswith("RuntimeError: rejected [REDACTED]")
    assert "sk-secret-key" not in tail


def test_a_deep_traceback_keeps_the_agents_own_frames():
    def agent_code(depth):
        if depth:
            return other_code(depth - 1)
        return json.loads('{"a": ' * 3 + "x" * 5000)

    def other_code(depth):
        return agent_code(depth)

    tail = traceback_tail(raised(agent_code, 60))
    assert tail is not None and len(tail) <= TRACEBACK_LIMIT
    assert "in agent_code" in tail and "json/decoder" not in tail
    assert "JSONDecodeError" in tail.splitlines()[-1]


def test_causes_come_first():
    def agent_code():
        try:
            raise KeyError("origin")
        except KeyError as exc:
            raise RuntimeError("outcome") from exc

    tail = traceback_tail(raised(agent_code))
    assert tail is not None and tail.index("KeyError: 'origin'") < tail.index("RuntimeError: outcome")
