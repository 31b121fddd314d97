"""Trajectories: messages to steps, reports over steps, files that are whole, strict validation of ATIF 1.0 to 1.8."""

import json
import math
import stat
from datetime import UTC, datetime

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from osmosis_ai.consts import PACKAGE_VERSION
from osmosis_ai.rollout import ExecutionResult, RolloutSample, RolloutStatus
from osmosis_ai.rollout.trajectory import (
    TrajectoryReport,
    convert_sample_to_trajectory,
    report_from_response,
    save_trajectory,
)
from osmosis_ai.rollout.trajectory.atif import (
    READABLE_VERSIONS,
    format_trajectory,
    load_trajectory,
    total_tokens,
    trajectory_identity,
    validate_trajectory,
)
from osmosis_ai.rollout.trajectory.converter import steps_from_messages, trajectory_document
from osmosis_ai.rollout.trajectory.report import apply_report

CONVERSATION = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    {
        "role": "assistant",
        "content": None,
        "reasoning_content": "hm",
        "model": "m-1",
        "created_at": 1700000000,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}},
            {"function": {"arguments": "{broken"}},
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}},
    },
    {"role": "tool", "tool_call_id": "c1", "content": "3"},
    {"role": "tool", "tool_call_id": "unknown", "content": {"a": 1}},
    {"role": "assistant", "content": "3", "usage": {"input_tokens": 5, "output_tokens": 1}},
]


def test_a_conversation_becomes_steps():
    system, user, asks, answers = steps_from_messages(CONVERSATION)
    assert system == {"step_id": 1, "source": "system", "message": "be brief"}
    assert user == {"step_id": 2, "source": "user", "message": "a\nb"}
    assert asks == {
        "step_id": 3,
        "timestamp": "2023-11-14T22:13:20+00:00",
        "source": "agent",
        "model_name": "m-1",
        "message": "",
        "reasoning_content": "hm",
        "tool_calls": [
            {"tool_call_id": "c1", "function_name": "add", "arguments": {"a": 1}},
            {"tool_call_id": "call_1", "function_name": "unknown", "arguments": {"_raw": "{broken"}},
        ],
        "metrics": {
            "prompt_tokens": 3,
            "completion_tokens": 2,
            "cached_tokens": 1,
            "extra": {"prompt_tokens_details": {"cached_tokens": 1}},
        },
        "llm_call_count": 1,
        "observation": {
            "results": [
                {"source_call_id": "c1", "content": "3"},
                {"content": '{"a": 1}', "extra": {"tool_call_id": "unknown"}},
            ]
        },
    }
    assert answers["metrics"] == {"prompt_tokens": 5, "completion_tokens": 1}


def test_odd_messages_are_kept_beside_the_step():
    steps = steps_from_messages(
        [
            {"role": "tool", "tool_call_id": "t", "content": "orphan"},
            {
                "role": "critic",
                "content": "x",
                "reasoning": "r",
                "tool_calls": [{"id": "1", "function": {"name": "f"}}],
            },
            {"role": "function", "content": "after a critic"},
            {"role": "developer", "content": "d", "timestamp": "not a time", "completed_at": "2024-05-01T10:00:00Z"},
            {"content": [{"type": "image_url", "image_url": {"url": "data:x"}}]},
            {
                "role": "assistant",
                "content": "z",
                "extra": {"timestamp": 0, "response": {"usage": {"prompt_tokens": 1}}},
            },
        ]
    )
    assert steps[0] == {
        "step_id": 1,
        "source": "system",
        "message": "",
        "observation": {"results": [{"content": "orphan", "extra": {"tool_call_id": "t"}}]},
        "extra": {"original_role": "tool"},
    }
    assert steps[1]["source"] == "user"
    assert steps[1]["extra"] == {
        "original_role": "critic",
        "reasoning_content": "r",
        "tool_calls": [{"tool_call_id": "1", "function_name": "f", "arguments": {}}],
    }
    assert steps[2]["extra"] == {"original_role": "function"} and steps[2]["source"] == "system"
    assert (steps[3]["source"], steps[3]["timestamp"]) == ("system", "2024-05-01T10:00:00+00:00")
    assert json.loads(steps[4]["message"])[0]["type"] == "image_url" and steps[4]["extra"] == {"original_role": ""}
    assert steps[5]["timestamp"] == "1970-01-01T00:00:00+00:00" and steps[5]["metrics"] == {"prompt_tokens": 1}


def test_the_document_says_what_was_asked_and_measured():
    sample = RolloutSample(messages=CONVERSATION, reward=0.5)
    sample.metrics = {"turns": np.int64(2), "loss": math.nan}
    sample.extra_fields = {"note": "n"}
    document = trajectory_document(
        sample,
        rollout_id="r1",
        request_label="42",
        request_metadata={"m": 1},
        request_extra_fields={"row_index": 0, "run_index": 1},
    )
    assert document["schema_version"] == "ATIF-v1.7"
    assert document["session_id"] == document["trajectory_id"] == trajectory_identity(document) == "r1"
    assert document["agent"] == {"name": "osmosis-rollout-sdk", "version": PACKAGE_VERSION}
    assert document["final_metrics"] == {"total_steps": 4}
    assert document["extra"]["osmosis"] == {
        "rollout_id": "r1",
        "label": "42",
        "reward": 0.5,
        "sample_metrics": {"turns": 2, "loss": None},
        "sample_extra_fields": {"note": "n"},
        "request_metadata": {"m": 1},
        "request_extra_fields": {"row_index": 0, "run_index": 1},
    }
    sample.label = "own"
    sample.reward = None
    facts = trajectory_document(sample, rollout_id="r1", request_label="42")["extra"]["osmosis"]
    assert facts["label"] == "own" and "reward" not in facts
    validate_trajectory(document)


def test_the_public_conversion_gives_a_validated_model():
    report = TrajectoryReport.model_validate({"samples": {"r1": {"llm_call_metrics": [{"prompt_tokens": 1}] * 2}}})
    trajectory = convert_sample_to_trajectory(
        RolloutSample(messages=CONVERSATION), rollout_id="r1", report=report.samples["r1"], default_model_name="m"
    )
    assert trajectory.agent.model_name == "m" and trajectory.steps[2].metrics is not None
    assert trajectory.steps[2].metrics.prompt_tokens == 1
    with pytest.raises(ValueError, match="steps"):
        convert_sample_to_trajectory(RolloutSample(), rollout_id="r1")


def call(**fields):
    return {"prompt_tokens": 10, "completion_tokens": 4, "cost_usd": 0.01, "model_name": "served", **fields}


def document():
    return trajectory_document(RolloutSample(messages=CONVERSATION), rollout_id="r1")


def test_a_report_goes_over_the_steps_when_there_are_as_many_calls():
    before = document()
    untouched = json.loads(json.dumps(before))
    calls = [call(prompt_token_ids=[1, 2], logprobs=[-0.5]), call(cost_usd=0.02)]
    report = TrajectoryReport.model_validate({"model_name": "m", "samples": {"r1": {"llm_call_metrics": calls}}})
    after = apply_report(before, report)
    assert before == untouched
    assert after["agent"]["model_name"] == "m"
    first, second = (step for step in after["steps"] if step["source"] == "agent")
    assert first["metrics"] == {
        "prompt_tokens": 10,
        "completion_tokens": 4,
        "cost_usd": 0.01,
        "prompt_token_ids": [1, 2],
        "logprobs": [-0.5],
    }
    assert (first["model_name"], second["metrics"]["cost_usd"], second["llm_call_count"]) == ("served", 0.02, 1)
    assert after["final_metrics"] == {
        "total_steps": 4,
        "total_prompt_tokens": 20,
        "total_completion_tokens": 8,
        "total_cost_usd": 0.03,
    }
    assert total_tokens(after) == 28
    validate_trajectory(after)


def test_calls_that_cannot_be_matched_are_kept_aside():
    report = TrajectoryReport.model_validate(
        {"samples": {"r1": {"llm_call_metrics": [call(cost_usd=None)] * 3}, "other": {"model_name": "o"}}}
    )
    after = apply_report(document(), report)
    assert after["steps"] == document()["steps"]
    osmosis = after["extra"]["osmosis"]
    assert len(osmosis["unmatched_llm_call_metrics"]) == 3
    assert osmosis["unmatched_sample_reports"] == {"other": {"model_name": "o", "llm_call_metrics": []}}
    assert after["final_metrics"] == {"total_steps": 4, "total_prompt_tokens": 30, "total_completion_tokens": 12}
    validate_trajectory(after)


def test_reported_totals_win_over_sums():
    final = {"total_prompt_tokens": 99, "total_cost_usd": math.nan, "other": 1}
    report = {"samples": {"r1": {"llm_call_metrics": [call(), call()], "final_metrics": final}}}
    totals = apply_report(document(), TrajectoryReport.model_validate(report))["final_metrics"]
    assert (totals["total_prompt_tokens"], totals["total_cost_usd"]) == (99, 0.02)


def test_the_report_of_an_answer():
    report = {"samples": {"r1": {"llm_call_metrics": [{"prompt_tokens": 1}]}}}
    found = report_from_response(httpx.Response(200, json={"trajectory": report}))
    assert found is not None and found.samples["r1"].llm_call_metrics[0].prompt_tokens == 1
    for nothing in ({}, [], {"trajectory": 1}, {"trajectory": {"samples": []}}, "text"):
        assert report_from_response(httpx.Response(200, json=nothing)) is None
    assert report_from_response(httpx.Response(200, text="<html>")) is None


def saved(tmp_path, sample, **options):
    result = ExecutionResult(status=RolloutStatus.SUCCESS, sample=sample)
    save_trajectory(rollout_id="r1", result=result, artifact_root=tmp_path, **options)
    return tmp_path / "r1" / "trajectory.json"


def test_a_saved_file_is_what_was_said(tmp_path):
    path = saved(tmp_path, RolloutSample(messages=CONVERSATION, reward=1.0), request_label="42")
    written = load_trajectory(path)
    assert written is not None and written["extra"]["osmosis"]["label"] == "42"
    validate_trajectory(written)
    assert list(path.parent.iterdir()) == [path]  # no temporary file is left
    assert stat.S_IMODE(path.stat().st_mode) & stat.S_IRUSR


def test_diagnostics_need_no_sample(tmp_path):
    assert not saved(tmp_path, None, diagnostics={"b": math.nan, "a": 1}).exists()
    assert (tmp_path / "r1/diagnostics.json").read_text() == '{\n  "a": 1,\n  "b": null\n}'


@pytest.mark.parametrize(
    "sample", [None, RolloutSample(), RolloutSample(messages=[{"role": "user"}], trajectory_messages=None)]
)
def test_without_messages_there_is_no_file(tmp_path, sample):
    assert not saved(tmp_path, sample).exists()


def test_saving_never_raises(tmp_path, caplog):
    (tmp_path / "r1").write_text("in the way")
    saved(tmp_path, RolloutSample(messages=CONVERSATION), diagnostics={"a": 1})
    assert "trajectory of rollout r1 is not saved" in caplog.text and "diagnostics" in caplog.text


def test_arrays_of_numbers_are_on_one_line():
    text = format_trajectory(
        {"ids": [1, -2, 3], "logprobs": [-0.5, 1e-09], "steps": [{"a": [1]}, {}], "text": "[\n1\n]", "none": []}
    )
    assert '"ids": [1, -2, 3]' in text and '"logprobs": [-0.5, 1e-09]' in text and '"a": [1]' in text
    assert text.splitlines()[1].startswith('  "ids"')
    with pytest.raises(ValueError, match="JSON compliant"):
        format_trajectory({"a": math.nan})


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=20,
)


@given(st.dictionaries(st.text(st.characters(codec="utf-8")), JSON))
def test_formatting_loses_nothing(value):
    assert json.loads(format_trajectory(value)) == value


MESSAGE_TEXT = st.text() | st.none() | st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": st.text()}))
TOOL_CALLS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "id": st.sampled_from(["c1", "c2", ""]) | st.none(),
            "function": st.fixed_dictionaries({}, optional={"name": st.text() | st.none(), "arguments": JSON}),
        },
    ),
    max_size=3,
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "developer", "user", "assistant", "tool", "function", "critic", ""])},
        optional={
            "content": MESSAGE_TEXT | JSON,
            "tool_call_id": st.sampled_from(["c1", "c2", "c3"]) | st.none() | st.integers(),
            "tool_calls": TOOL_CALLS | JSON,
            "usage": JSON | st.fixed_dictionaries({"prompt_tokens": JSON, "completion_tokens": st.integers()}),
            "reasoning_content": MESSAGE_TEXT,
            "timestamp": JSON | st.datetimes().map(lambda moment: moment.replace(tzinfo=UTC).isoformat()),
        },
    ),
    min_size=1,
    max_size=6,
)


@given(MESSAGES)
def test_whatever_the_messages_the_document_is_valid(messages):
    document = trajectory_document(RolloutSample(messages=messages), rollout_id="r1")
    validate_trajectory(json.loads(format_trajectory(document).encode()))


def minimal(**change):
    step = {"step_id": 1, "source": "agent", "message": "hi"}
    return {
        "schema_version": "ATIF-v1.7",
        "session_id": "s",
        "agent": {"name": "a", "version": "1"},
        "steps": [step],
        **change,
    }


@pytest.mark.parametrize("version", READABLE_VERSIONS)
def test_every_published_version_is_read(version):
    assert len(READABLE_VERSIONS) == 9
    validate_trajectory(minimal(schema_version=version))


def with_step(**fields):
    return minimal(steps=[{"step_id": 1, "source": "agent", "message": "hi", **fields}])


CALL = {"tool_call_id": "c", "function_name": "f", "arguments": {}}
SUBAGENT = minimal(trajectory_id="t")


@pytest.mark.parametrize(
    "valid",
    [
        with_step(tool_calls=[CALL], observation={"results": [{"source_call_id": "c", "content": "x"}]}),
        with_step(llm_call_count=0),
        with_step(llm_call_count=1, metrics={"prompt_tokens": 1, "logprobs": [-0.1]}, reasoning_effort="high"),
        with_step(
            message=[
                {"type": "text", "text": "t"},
                {"type": "image", "source": {"media_type": "image/png", "path": "p"}},
            ]
        ),
        with_step(observation={"results": [{"subagent_trajectory_ref": [{"trajectory_id": "t"}]}]}),
        with_step(timestamp="2024-05-01T10:00:00Z"),
        minimal(subagent_trajectories=[SUBAGENT, {**SUBAGENT, "trajectory_id": "u"}]),
        minimal(notes="n", continued_trajectory_ref="next.json", final_metrics={"total_steps": 1}),
        with_step(source="system", observation={"results": [{"content": "x"}]}),
    ],
)
def test_valid_documents(valid):
    validate_trajectory(valid)


@pytest.mark.parametrize(
    ("invalid", "text"),
    [
        (minimal(schema_version="ATIF-v1.9"), "schema_version"),
        (minimal(steps=[]), "steps"),
        (minimal(unknown=1), "unknown"),
        (with_step(unknown=1), "unknown"),
        (with_step(step_id=2), "step_id is 2, not 1"),
        (with_step(source="user", model_name="m"), "model_name: only for steps of the agent"),
        (with_step(source="system", tool_calls=[CALL]), "tool_calls: only for"),
        (with_step(source="tool"), "source"),
        (with_step(llm_call_count=0, metrics={}), "metrics: not allowed when llm_call_count is 0"),
        (with_step(llm_call_count=0, reasoning_content="r"), "reasoning_content: not allowed"),
        (with_step(observation={"results": [{"source_call_id": "x"}]}), "observes 'x', which it did not call"),
        (
            with_step(observation={"results": [{"subagent_trajectory_ref": [{"session_id": "s"}]}]}),
            "trajectory_id or trajectory_path",
        ),
        (with_step(metrics={"cost_usd": math.inf}), r"steps\[0\].metrics.cost_usd is not a finite number"),
        (minimal(extra={"deep": [{"x": math.nan}]}), r"extra.deep\[0\].x is not a finite number"),
        (with_step(timestamp="yesterday"), "timestamp"),
        (with_step(message=[{"type": "image", "text": "t"}]), "image part has a source"),
        (with_step(message=[{"type": "audio", "source": {"media_type": "image/png", "path": "p"}}]), "media type"),
        (
            with_step(message=[{"type": "image", "source": {"media_type": "image/bmp", "path": "p"}}]),
            "cannot have the media type 'image/bmp'",
        ),
        (minimal(subagent_trajectories=[minimal()]), "needs a trajectory_id"),
        (minimal(subagent_trajectories=[SUBAGENT, SUBAGENT]), "the same trajectory_id"),
        ([], "dict"),
    ],
)
def test_invalid_documents_are_refused_with_the_place(invalid, text):
    with pytest.raises(ValueError, match=text):
        validate_trajectory(invalid)


def test_reading_what_is_not_there_yet(tmp_path):
    assert load_trajectory(tmp_path / "none.json") is None
    for content in ("", '{"steps": [', "[]", '{"steps": 1}', "\xff"):
        (tmp_path / "t.json").write_text(content, encoding="latin-1")
        assert load_trajectory(tmp_path / "t.json") is None


def test_whose_trajectory_it_is():
    assert trajectory_identity({"extra": {"osmosis": {"rollout_id": "a"}}, "session_id": "b"}) == "a"
    assert trajectory_identity({"session_id": "b", "trajectory_id": "c/1"}) == "b"
    assert trajectory_identity({"trajectory_id": "c/1"}) == "c"
    assert trajectory_identity({}) is None
    assert total_tokens({}) is None and total_tokens({"final_metrics": {"total_prompt_tokens": 3}}) == 3
    assert datetime.now(UTC).tzinfo is UTC
