"""Samples: finite rewards at any time, isolated trajectory messages, JSON-safe copies, what `run` may return."""

import math
import threading
from decimal import Decimal

import numpy as np
import pytest
from osmosis_ai.rollout import AgentWorkflowConfig, AgentWorkflowOutput, RolloutSample
from osmosis_ai.rollout.types.output import coerce_output
from osmosis_ai.rollout.types.sample import json_safe_number
from pydantic import ValidationError


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (1, 1.0),
        (-2.5, -2.5),
        (0, 0.0),
        (None, None),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3.0),
        (Decimal("0.25"), 0.25),
    ],
)
def test_a_finite_number_or_nothing_is_a_reward(given, kept):
    assert RolloutSample(reward=given).reward == kept
    sample = RolloutSample()
    sample.reward = given
    assert sample.reward == kept and (kept is None or type(sample.reward) is float)


@pytest.mark.parametrize(
    "given",
    [
        math.nan,
        math.inf,
        -math.inf,
        True,
        False,
        np.bool_(True),
        "1",
        b"1",
        [1.0],
        {},
        object(),
        10**400,
        np.float32("nan"),
    ],
)
def test_anything_else_is_refused_at_construction_and_assignment(given):
    with pytest.raises(ValidationError):
        RolloutSample(reward=given)
    sample = RolloutSample(reward=0.5)
    with pytest.raises(ValidationError):
        sample.reward = given
    assert sample.reward == 0.5


def test_trajectory_messages_are_an_isolated_copy():
    messages = [{"role": "user", "content": ["a"]}]
    sample = RolloutSample(messages=messages)
    sample.messages[0]["content"].append("b")
    assert sample.trajectory_messages == [{"role": "user", "content": ["a"]}]
    assert RolloutSample(messages=messages, trajectory_messages=None).trajectory_messages is None
    chat = [{"role": "user", "content": "chat"}]
    assert RolloutSample(messages=messages, trajectory_messages=chat).trajectory_messages == chat


def test_messages_that_cannot_be_copied_mean_no_trajectory(caplog):
    sample = RolloutSample(messages=[{"role": "user", "lock": threading.Lock()}])
    assert sample.trajectory_messages is None
    assert "cannot be copied" in caplog.text


def test_a_json_safe_copy_keeps_what_json_can_hold(caplog):
    loop: dict = {}
    loop["self"] = loop
    sample = RolloutSample(
        messages=[{"role": "user", "content": "x"}],
        metrics={
            "a": np.float64(1.5),
            "b": np.int32(3),
            "nan": math.nan,
            "inf": np.float32("inf"),
            "big": 2**70,
            "huge": 2**1024,
        },
        extra_fields={
            "t": (1, (2, True)),
            "keys": {1: "int", 2.5: "float", np.int8(7): "foreign", None: "dropped", (1, 2): "dropped"},
            "object": object(),
            "text": "\ud800",
            "loop": loop,
        },
    )
    safe = sample.json_safe_copy()
    assert safe.metrics == {"a": 1.5, "b": 3, "big": 2**70}
    assert json_safe_number(2**1024) is None
    assert type(safe.metrics["a"]) is float and type(safe.metrics["b"]) is int
    assert safe.extra_fields == {
        "t": [1, [2, True]],
        "keys": {"1": "int", "2.5": "float", "7": "foreign"},
        "text": "?",
        "loop": {},
    }
    assert safe.messages is sample.messages
    assert sample.metrics["nan"] is not None  # the original is as it was
    assert len(caplog.records) == 1 and "metrics.nan" in caplog.text and "metrics.huge" in caplog.text


def test_what_run_may_return():
    assert coerce_output(None) is None
    listed = coerce_output([{"role": "user", "content": "x"}])
    assert listed is not None and listed.messages == [{"role": "user", "content": "x"}] and listed.metrics == {}
    whole = coerce_output(AgentWorkflowOutput(messages=None, metrics={"a": 1}))
    assert whole is not None and whole.messages is None and whole.metrics == {"a": 1.0}


@pytest.mark.parametrize("returned", ["text", {"messages": []}, ({"role": "user"},), 1])
def test_other_shapes_are_a_type_error_that_says_what_to_return(returned):
    with pytest.raises(TypeError, match=f"{type(returned).__name__}; return an AgentWorkflowOutput, a list"):
        coerce_output(returned)


def test_an_output_is_validated_again_when_it_is_returned():
    output = AgentWorkflowOutput()
    output.metrics = {"loss": math.inf}
    with pytest.raises(ValidationError, match="finite"):
        coerce_output(output)
    with pytest.raises(ValidationError):
        coerce_output(["not a message"])
    with pytest.raises(ValidationError):
        AgentWorkflowOutput.model_validate({"mesages": []})
    with pytest.raises(ValidationError):
        AgentWorkflowOutput(metrics={"a": math.nan})


def test_configs_keep_unknown_fields_and_check_assignments():
    config = AgentWorkflowConfig.model_validate({"name": "x", "temperature": 0.5})
    assert config.model_extra == {"temperature": 0.5} and config.concurrency.max_concurrent is None
    with pytest.raises(ValidationError):
        config.name = None  # ty: ignore[invalid-assignment]
    with pytest.raises(ValidationError):
        AgentWorkflowConfig.model_validate({"name": "x", "concurrency": {"max_concurrent": 0}})
