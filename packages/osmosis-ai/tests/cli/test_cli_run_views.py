import json
from pathlib import Path

import pytest
from osmosis_ai.cli.run_comparison import comparison_result
from osmosis_ai.cli.trajectory_view import content_lines, trajectory_blocks
from osmosis_ai.evaluation.compare import compare
from osmosis_ai.evaluation.results import read_run
from osmosis_cli import make_workspace, osmosis


def make_run(root: Path, name: str, records: list[dict], *, n: int = 1, sha: str = "a" * 64) -> Path:
    """A run directory as the journal leaves it; each record is one line of events.jsonl."""
    run = root / name
    (run / "trajectories").mkdir(parents=True)
    rows = 1 + max((record["row_index"] for record in records), default=0)
    manifest = {
        "schema_version": 1,
        "local_run_id": "0" * 32,
        "run_name": name,
        "created_at": "2026-01-01T00:00:00.000000Z",
        "pass_threshold": 1.0,
        "inputs": {
            "model_path": "openai/model",
            "dataset": {"sha256": sha, "selected_source_rows": f"0-{rows - 1}"},
            "n": n,
            "rollout": {"name": "loop", "entrypoint": "main.py", "source_digest": "x"},
        },
    }
    (run / "manifest.json").write_text(json.dumps(manifest))
    (run / "events.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return run


def record(row: int, *, run: int = 0, status: str = "success", **facts) -> dict:
    identity = f"{row:016x}{run:016x}"
    return {
        "row_index": row,
        "run_index": run,
        "source_row_index": row,
        "rollout_id": identity,
        "status": status,
        **facts,
    }


def graded(row: int, reward: float, **facts) -> dict:
    return record(row, reward=reward, tokens=120, duration_ms=1500, **facts)


FAILED = {
    "status": "failed",
    "error_type": "agent_error",
    "error": {"fault": "agent", "message": "no tool\nfor you", "traceback_tail": "  File x\nValueError: no tool"},
}
TRAJECTORY = {
    "schema_version": "ATIF-v1.7",
    "agent": {"name": "a", "version": "1"},
    "steps": [
        {"step_id": 1, "source": "system", "message": "Be brief."},
        {"step_id": 2, "source": "user", "message": "What is 3 x 4?"},
        {
            "step_id": 3,
            "source": "agent",
            "message": "",
            "reasoning_content": "I multiply.",
            "model_name": "m",
            "tool_calls": [{"tool_call_id": "c1", "function_name": "multiply", "arguments": {"a": 3, "b": 4}}],
            "observation": {"results": [{"source_call_id": "c1", "content": "12\nexactly"}]},
            "metrics": {"prompt_tokens": 20, "completion_tokens": 5},
        },
        {"step_id": 4, "source": "agent", "message": [{"type": "text", "text": "12"}, {"type": "image", "source": {"path": "p.png"}}]},
    ],
}  # fmt: skip


@pytest.fixture
def work(tmp_path: Path) -> Path:
    work = make_workspace(tmp_path / "w")
    root = work / ".osmosis/evals"
    first = [graded(0, 1.0), graded(1, 0.0), record(2, **FAILED), record(3, status="skipped"), graded(4, 0.5)]
    make_run(root, "calm-owl-1", first)
    (root / "calm-owl-1/trajectories/row_4_run_0.json").write_text(json.dumps(TRAJECTORY))
    second = [graded(row, 1.0) for row in range(12)]
    make_run(root, "calm-owl-2", second)
    return work


def test_rollouts_are_listed_the_worst_first(work: Path):
    done = osmosis("--json", "eval", "view", "calm-owl-1", cwd=work)
    assert [item["source_row_index"] for item in done.json["items"]] == [2, 1, 4, 0, 3]
    assert done.json["items"][0]["message"] == "no tool\nfor you"
    assert (done.json["total_count"], done.json["has_more"], done.json["next_offset"]) == (5, False, None)
    page = osmosis("--json", "eval", "view", "calm-owl-1", "--limit", "2", cwd=work).json
    assert (len(page["items"]), page["total_count"], page["has_more"], page["next_offset"]) == (2, 5, True, 2)
    failed = osmosis("--json", "eval", "view", "calm-owl-1", "--failed", cwd=work).json
    assert [item["source_row_index"] for item in failed["items"]] == [2]
    text = osmosis("eval", "view", "calm-owl-1", cwd=work).stdout
    assert "not passed" in text and "passed" in text and "skipped" in text and "failed" in text
    plain = osmosis("--plain", "eval", "view", "calm-owl-1", cwd=work).stdout.splitlines()
    assert plain[0].split("\t")[:2] == ["2", "failed"]


def test_one_rollout_is_told_in_full(work: Path):
    text = osmosis("--plain", "eval", "view", "calm-owl-1", "--row", "4", cwd=work).stdout
    assert "Reward: 0.5\n" in text
    assert "user  (step 2)\n  What is 3 x 4?\n" in text
    assert "  → multiply(a=3, b=4)\n  ← 12\n    exactly\n" in text
    assert "  12\n  (image: p.png)\n" in text
    assert "(thinking)\n  I multiply.\n" in text
    assert "tokens 20 in, 5 out" in text
    data = osmosis("--json", "eval", "view", "calm-owl-1", "--row", "4", cwd=work).json["data"]
    assert data["trajectory"] == TRAJECTORY
    assert (data["reward"], data["passed"], data["failure"]) == (0.5, False, None)


def test_a_failure_is_told_with_its_traceback(work: Path):
    text = osmosis("eval", "view", "calm-owl-1", "--row", "2", cwd=work).stdout
    assert "agent error\n" in text
    assert "no tool\n  for you" in text
    assert "ValueError: no tool" in text
    assert "none was written" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["calm-owl-1", "--row", "99"], "5 rows from 0 to 4"),
        (["calm-owl-1", "--row", "0", "--run", "3"], "no attempt 3"),
        (["calm-owl-1", "--row", "0", "--failed"], "failed"),
        (["calm-owl-3"], "Did you mean"),
        (["./nowhere"], "./nowhere"),
        (["data"], "holds no run"),
        (["calm-owl-1", "--run", "0"], "--row"),
        (["calm-owl-1", "--all", "--limit", "3"], "--limit"),
    ],
)
def test_what_is_not_there_is_named(work: Path, arguments: list[str], said: str):
    done = osmosis("--json", "eval", "view", *arguments, cwd=work)
    assert done.status == 1
    assert done.error["code"] in ("NOT_FOUND", "VALIDATION")
    assert said in done.error["message"]


def test_runs_are_found_by_path_without_a_workspace(work: Path, tmp_path: Path):
    done = osmosis("--json", "eval", "view", str(work / ".osmosis/evals/calm-owl-1"), cwd=tmp_path)
    assert done.json["total_count"] == 5
    bare = osmosis("--json", "eval", "view", "calm-owl-1", cwd=tmp_path)
    assert bare.error["code"] == "NOT_FOUND"


def test_commands_to_copy_survive_odd_paths(tmp_path: Path):
    a = make_run(tmp_path / "my runs; rm", "a", [graded(0, 0.0), graded(1, 1.0)])
    b = make_run(tmp_path / "my runs; rm", "b", [graded(0, 1.0), graded(1, 1.0)])
    assert f"osmosis eval view '{a}' --row 0" in osmosis("eval", "view", str(a), cwd=tmp_path).stdout
    said = comparison_result(compare(read_run(a), read_run(b)), str(a), str(b)).hints
    assert said == [f"Look at a row in both: osmosis eval view '{a}' --row 0; osmosis eval view '{b}' --row 0"]


def test_a_damaged_run_is_named_with_file_and_line(work: Path):
    (work / ".osmosis/evals/calm-owl-1/events.jsonl").write_text('{"row_index": 0}\n')
    done = osmosis("--json", "eval", "view", "calm-owl-1", cwd=work)
    assert (done.status, done.error["code"]) == (1, "VALIDATION")
    assert "line 1" in done.error["message"]


def test_a_damaged_trajectory_is_named(work: Path):
    (work / ".osmosis/evals/calm-owl-1/trajectories/row_4_run_0.json").write_text("{")
    done = osmosis("--json", "eval", "view", "calm-owl-1", "--row", "4", cwd=work)
    assert (done.status, done.error["code"]) == (1, "VALIDATION")


def test_attempts_of_a_row_are_told_apart(work: Path):
    make_run(work / ".osmosis/evals", "twice", [graded(0, 0.0), graded(0, 1.0, run=1) | {"run_index": 1}], n=2)
    first = osmosis("--plain", "eval", "view", "twice", "--row", "0", cwd=work).stdout
    assert "Row: 0, attempt 0 of 0 to 1\n" in first
    assert "--row 0 --run 1" in first
    assert "Reward: 1.0\n" in osmosis("--plain", "eval", "view", "twice", "--row", "0", "--run", "1", cwd=work).stdout


def test_odd_trajectories_are_shown_as_far_as_they_go():
    odd = {
        "steps": [None, {"message": 3}, {"source": "agent", "tool_calls": [{"arguments": "raw"}], "observation": []}]
    }
    assert trajectory_blocks(odd)
    assert trajectory_blocks({}) == []
    assert content_lines("\x00") == ["\x00"]


@pytest.mark.parametrize("format", [[], ["--plain"]])
def test_nothing_a_model_or_an_agent_says_steers_the_terminal(tmp_path: Path, format: list[str]):
    evil = "\x1b[2J\x1b]0;title\x07\r\x9b31m\u202e[/red]"
    failure = {**FAILED, "error": {**FAILED["error"], "message": evil, "traceback_tail": evil}}
    run = make_run(tmp_path, "evil", [record(0, **failure), graded(1, 0.0)])
    step = {
        "step_id": 1, "source": "agent" + evil, "message": evil, "reasoning_content": evil, "model_name": evil,
        "tool_calls": [{"tool_call_id": evil, "function_name": evil, "arguments": {evil: evil}}],
        "observation": {"results": [{"source_call_id": evil, "content": evil}]},
    }  # fmt: skip
    document = {**TRAJECTORY, "steps": [step], "extra": {"osmosis": {"rollout_id": record(1)["rollout_id"]}}}
    (run / "trajectories/row_1_run_0.json").write_text(json.dumps(document))
    for words in ([], ["--failed"], ["--row", "0"], ["--row", "1"]):
        done = osmosis(*format, "eval", "view", str(run), *words, cwd=tmp_path)
        assert done.status == 0
        assert not set(done.stdout) & set("\x1b\x07\r\x9b\u202e"), words
    assert done.stdout.count("\\x1b[2J") >= 5


def test_flips_come_first_with_their_row_numbers(work: Path):
    done = osmosis("eval", "compare", "calm-owl-1", "calm-owl-2", cwd=work)
    assert done.status == 0
    assert done.stdout.lstrip("─ ").startswith("Got better: 3 rows")
    assert "A and B are not told apart by pass rate" in done.stdout
    assert "fewer than 6" in done.stdout
    assert "7 only in B (rows 5-11)" in done.stdout
    data = osmosis("--json", "eval", "compare", "calm-owl-1", "calm-owl-2", cwd=work).json["data"]
    assert [flip["source_row_index"] for flip in data["flips"]] == [1, 2, 4]
    assert data["mcnemar"]["gained"] == 3
    assert data["not_compared"] == [3]


def test_a_clear_difference_is_called_one(work: Path):
    root = work / ".osmosis/evals"
    make_run(root, "bad", [graded(row, 0.0) for row in range(12)])
    done = osmosis("--plain", "eval", "compare", "calm-owl-2", "bad", cwd=work)
    assert "Got worse: 12 rows" in done.stdout
    assert "The pass rate of B is lower than A's" in done.stdout
    same = osmosis("--plain", "eval", "compare", "calm-owl-2", "calm-owl-2", cwd=work)
    assert "The pass rate is the same in every row compared." in same.stdout


def test_many_flips_are_listed_compactly(work: Path):
    root = work / ".osmosis/evals"
    a = make_run(root, "many-a", [graded(row, 0.0) for row in range(40)])
    b = make_run(root, "many-b", [graded(row, 1.0) for row in range(40)])
    table = comparison_result(compare(read_run(a), read_run(b)), "many-a", "many-b").blocks[0]
    assert table.note == "all 40 rows: 0-39"


def test_runs_of_different_datasets_are_refused(work: Path):
    make_run(work / ".osmosis/evals", "else", [graded(0, 1.0)], sha="b" * 64)
    done = osmosis("--json", "eval", "compare", "calm-owl-1", "else", cwd=work)
    assert (done.status, done.error["code"]) == (1, "VALIDATION")
    allowed = osmosis("--json", "eval", "compare", "calm-owl-1", "else", "--any-dataset", cwd=work)
    assert allowed.status == 0
    assert allowed.json["data"]["warnings"]
