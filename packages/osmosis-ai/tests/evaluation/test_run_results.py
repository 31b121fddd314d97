"""Reading runs back, and comparing two of them."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from osmosis_ai.errors import NotFoundError, ValidationError
from osmosis_ai.evaluation import statistics as stats
from osmosis_ai.evaluation.compare import compare
from osmosis_ai.evaluation.events import json_line, verdict_line
from osmosis_ai.evaluation.manifest import write_manifest
from osmosis_ai.evaluation.results import RunResults, outcome_counts, read_run
from osmosis_ai.evaluation.verdict import Failure, Fault, Outcome, Verdict

PUBLISHED = Path(__file__).parent / "pub"


def test_a_published_run_is_read() -> None:
    run = read_run(PUBLISHED)
    assert (run.name, run.model, run.rollout, run.status) == (
        "pub", "openai/multiply:wrong-3", "multiply-local-loop", "finished",
    )  # fmt: skip
    assert (run.n, run.pass_threshold, run.total_items, run.pending_items) == (2, 1.0, 14, 0)
    assert [run.source_row(row) for row in range(8)] == [0, 1, 2, 3, 6, 8, 9, None]
    assert list(run.verdicts) == sorted(run.verdicts)
    assert outcome_counts(run.verdicts) == {"graded": 14, "skipped": 0, "failed": 0}
    path = run.trajectory_path((0, 1))
    assert path is not None
    assert json.loads(path.read_text())["session_id"] == run.verdicts[0, 1].rollout_id
    whole = run.verdict((0, 1))
    assert whole is not None
    assert whole.rollout_id == run.verdicts[0, 1].rollout_id
    assert list(run.attempts()) == []


def test_a_downloaded_run_is_read_from_its_summary(tmp_path: Path) -> None:
    for name in ("summary.jsonl", "metrics.json"):
        shutil.copy(PUBLISHED / name, tmp_path)
    run = read_run(tmp_path)
    assert run.manifest is None
    assert (run.name, run.model, run.n, len(run.verdicts)) == ("pub", "openai/multiply:wrong-3", 2, 14)
    assert run.source_row(0) is None
    assert (
        compare(read_run(PUBLISHED), run, any_dataset=False)
        .warnings[0]
        .startswith("The dataset of run 'pub' is not recorded")
    )


def test_a_run_that_goes_on_is_read_up_to_its_last_whole_line(tmp_path: Path) -> None:
    shutil.copy(PUBLISHED / "manifest.json", tmp_path)
    (tmp_path / "progress.json").write_text('{"total_runs": 14}')
    lines = (PUBLISHED / "events.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "events.jsonl").write_bytes(b"".join(lines[:5]) + lines[5][:20])
    (tmp_path / "metrics.json").write_text('{"torn')
    run = read_run(tmp_path)
    assert (len(run.verdicts), run.pending_items, run.status) == (5, 9, "")


def test_attempts_and_messages_are_read_on_demand(tmp_path: Path) -> None:
    make(tmp_path, "a", {0: [None]}, message="x" * 1000)
    attempt = {
        "row_index": 0, "run_index": 0, "rollout_id": "a", "number": 1,
        "failure": {"fault": "infrastructure", "code": "server_died", "message": "gone", "traceback_tail": None},
    }  # fmt: skip
    (tmp_path / "a/attempts.jsonl").write_bytes(
        json_line(attempt) + b'{"torn"\n{}\n' + json_line({**attempt, "number": 2})
    )
    run = read_run(tmp_path / "a")
    assert [(found.number, found.failure.code) for found in run.attempts()] == [(1, "server_died"), (2, "server_died")]
    whole = run.verdict((0, 0))
    assert whole is not None
    assert whole.failure is not None
    assert len(whole.failure.message) == 1000
    assert run.verdict((9, 9)) is None


def test_what_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="There is no run at"):
        read_run(tmp_path / "no")
    with pytest.raises(NotFoundError, match="holds no run"):
        read_run(tmp_path)
    (tmp_path / "summary.jsonl").write_text('{"row_index": 0}\n')
    with pytest.raises(ValidationError, match=r"summary\.jsonl, line 1"):
        read_run(tmp_path)


def make(
    root: Path,
    name: str,
    rows: dict[int, list[Any]],
    *,
    sha256: str = "a" * 64,
    threshold: float = 1.0,
    fault: Fault = Fault.AGENT,
    message: str = "boom",
) -> RunResults:
    """A run: source row -> outcome of each attempt: a reward, None (failed) or "skip"."""
    run_dir = root / name
    run_dir.mkdir()
    attempts = max(map(len, rows.values()))
    selector = ",".join(map(str, rows))
    write_manifest(
        run_dir,
        run_name=name,
        inputs={
            "model_path": f"openai/{name}",
            "n": attempts,
            "dataset": {"sha256": sha256, "selected_source_rows": selector},
        },
        pass_threshold=threshold,
    )
    with (run_dir / "events.jsonl").open("wb") as stream:
        for row_index, (source, results) in enumerate(rows.items()):
            for run_index, result in enumerate(results):
                facts: dict[str, Any] = {"outcome": Outcome.GRADED, "reward": result}
                if result is None:
                    facts = {"outcome": Outcome.FAILED, "failure": Failure(fault, "agent_error", message)}
                elif result == "skip":
                    facts = {"outcome": Outcome.SKIPPED}
                stream.write(
                    verdict_line(
                        Verdict(row_index, run_index, f"{source}-{run_index}", source_row_index=source, **facts)
                    )
                )
    return read_run(run_dir)


def test_flips_come_first_losses_before_gains_with_both_positions(tmp_path: Path) -> None:
    a = make(tmp_path, "a", {row: [1.0 if row < 6 else 0.0] for row in range(10)})
    b = make(tmp_path, "b", {row: [1.0 if row in (0, 1, 2, 7) else 0.0] for row in range(1, 10)})
    result = compare(a, b)
    assert result.rows == 9
    assert [(flip.source_row_index, flip.a_row, flip.b_row, flip.lost) for flip in result.flips] == [
        (3, 3, 2, True),
        (4, 4, 3, True),
        (5, 5, 4, True),
        (7, 7, 6, False),
    ]
    assert result.only_a == (0,)
    assert result.only_b == ()
    assert (result.a.pass_rate, result.b.pass_rate) == (5 / 9, 3 / 9)
    assert result.passes is not None
    assert result.passes.mean == pytest.approx(-2 / 9)
    assert result.mcnemar == stats.mcnemar(1, 3)
    assert result.passes.p_value == result.mcnemar.p_exact
    assert result.rewards is None
    assert any("Only 4 rows differ" in warning for warning in result.warnings)
    json.dumps(result.to_json(), allow_nan=False)


def test_rewards_between_zero_and_one_get_a_test_of_their_own(tmp_path: Path) -> None:
    a = make(tmp_path, "a", {row: [row / 10] for row in range(10)}, threshold=0.5)
    b = make(tmp_path, "b", {row: [row / 10 + 0.01 * (1 + row % 2)] for row in range(10)}, threshold=0.5)
    result = compare(a, b)
    assert result.rewards is not None
    assert result.rewards.mean == pytest.approx(0.015)
    assert result.rewards.p_value == pytest.approx(2 / 1024)
    assert result.rewards.interval is not None
    assert result.flips == ()


def test_changes_that_are_all_alike_get_no_interval_of_no_width(tmp_path: Path) -> None:
    a = make(tmp_path, "a", {row: [row / 10] for row in range(4)}, threshold=0.5)
    b = make(tmp_path, "b", {row: [row / 10 + 0.01] for row in range(4)}, threshold=0.5)
    result = compare(a, b)
    assert result.rewards is not None
    assert (result.rewards.interval, result.rewards.p_value) == (None, 2 / 16)


def test_no_pass_rate_is_said_to_change_by_more_than_all_of_it(tmp_path: Path) -> None:
    a = make(tmp_path, "a", {row: [0.0] for row in range(16)})
    b = make(tmp_path, "b", {row: [1.0 if row else 0.0] for row in range(16)})
    passes = compare(a, b).passes
    assert passes is not None and passes.interval is not None
    assert passes.interval.high == 1.0
    assert 0.5 < passes.interval.low < passes.mean


def test_rows_with_several_attempts_are_compared_by_their_rates(tmp_path: Path) -> None:
    a = make(tmp_path, "a", {0: [1.0, 0.0], 1: [1.0, 1.0], 2: [0.0, 0.0]})
    b = make(tmp_path, "b", {0: [1.0, 1.0], 1: [0.0, 1.0], 2: [0.0, 0.0]})
    result = compare(a, b)
    assert [(flip.source_row_index, flip.a_rate, flip.b_rate) for flip in result.flips] == [
        (1, 1.0, 0.5),
        (0, 0.5, 1.0),
    ]
    assert result.mcnemar is None
    assert result.passes is not None
    assert result.passes.p_value == 1.0


def test_what_is_not_the_agents_doing_does_not_count_and_is_counted(tmp_path: Path) -> None:
    rows = {0: [1.0], 1: [1.0], 2: [1.0], 3: [1.0]}
    a = make(tmp_path, "a", rows)
    broken = make(tmp_path, "b", {**rows, 0: [None], 1: ["skip"]}, fault=Fault.INFRASTRUCTURE)
    result = compare(a, broken)
    assert result.not_compared == (0, 1)
    assert (result.rows, result.left_out_attempts, result.flips) == (2, 2, ())
    assert result.b.counts == {"graded": 2, "skipped": 1, "failed": 1}
    slow = make(tmp_path, "c", {**rows, 0: [None]}, fault=Fault.AGENT)
    result = compare(a, slow)
    assert [(flip.source_row_index, flip.lost, flip.b_reward) for flip in result.flips] == [(0, True, None)]


def test_a_run_against_itself_differs_in_nothing(tmp_path: Path) -> None:
    a = make(tmp_path, "a", {row: [float(row % 2)] for row in range(8)})
    result = compare(a, a)
    assert result.flips == ()
    assert result.passes is not None
    assert (result.passes.p_value, result.passes.interval, result.passes.differing_rows) == (1.0, None, 0)
    assert result.warnings == ()


def test_different_datasets_are_refused_unless_allowed(tmp_path: Path) -> None:
    a = make(tmp_path, "a", {0: [1.0]})
    b = make(tmp_path, "b", {0: [1.0]}, sha256="b" * 64)
    with pytest.raises(ValidationError, match="different datasets"):
        compare(a, b)
    assert "different datasets" in compare(a, b, any_dataset=True).warnings[0]


def test_nothing_in_common_and_nothing_recorded_are_errors(tmp_path: Path) -> None:
    a, b = make(tmp_path, "a", {0: [1.0]}), make(tmp_path, "b", {1: [1.0]})
    with pytest.raises(ValidationError, match="no row in common"):
        compare(a, b)
    (tmp_path / "b/events.jsonl").write_bytes(b"")
    with pytest.raises(ValidationError, match=r"'b' .* has no results yet"):
        compare(a, read_run(tmp_path / "b"))


def test_other_thresholds_and_attempt_counts_are_warned_of(tmp_path: Path) -> None:
    a = make(tmp_path, "a", {0: [0.5], 1: [1.0]}, threshold=0.5)
    b = make(tmp_path, "b", {0: [0.5, 0.6], 1: [1.0, 1.0]}, threshold=1.0)
    result = compare(a, b)
    assert result.pass_threshold == 0.5
    assert result.flips == ()
    assert [text.split(" ")[2:5] for text in result.warnings] == [
        ["have", "different", "pass"],
        ["have", "different", "numbers"],
    ]
    assert len(compare(a, b, pass_threshold=1.0).flips) == 0
