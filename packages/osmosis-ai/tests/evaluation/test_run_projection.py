"""The derived files of a run: made from the journal, cheap for each item, and left alone when nothing was done."""

import json
import os
import random
import shutil
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from osmosis_ai.errors import OsmosisError
from osmosis_ai.evaluation import artifacts, projection
from osmosis_ai.evaluation.journal import FileJournal
from osmosis_ai.evaluation.manifest import Manifest, read_manifest, write_manifest
from osmosis_ai.evaluation.projection import Projection
from osmosis_ai.evaluation.verdict import Failure, Fault, ItemKey, Outcome, Verdict

PUBLISHED = Path(__file__).parent / "pub"


class Run:
    """A run directory with its journal; `invoke` starts another invocation."""

    def __init__(self, run_dir: Path, rows: int = 4, n: int = 1) -> None:
        self.dir = run_dir
        self.rows = rows
        self.manifest: Manifest = write_manifest(
            run_dir,
            run_name=run_dir.name,
            inputs={"model_path": "openai/m", "n": n, "rollout": {"name": "adder"}},
            pass_threshold=1.0,
        )
        (run_dir / "rollout_trials").mkdir()
        self.warnings: list[str] = []
        self.invoke()

    def invoke(self) -> Projection:
        self.journal = FileJournal.open(self.dir)
        self.projection = Projection(
            self.dir,
            self.manifest,
            self.journal.records(),
            dataset_name="sums",
            total_dataset_rows=9,
            sampled_rows=self.rows,
            pass_threshold=1.0,
            warn=self.warnings.append,
        )
        return self.projection

    def trial(self, rollout_id: str, trajectory: Any = None, files: dict[str, str] | None = None) -> Path:
        trial = self.dir / "rollout_trials" / rollout_id
        (trial / "artifacts").mkdir(parents=True)
        if trajectory is not None:
            text = trajectory if isinstance(trajectory, str) else json.dumps(trajectory)
            (trial / "trajectory.json").write_text(text)
        for name, text in (files or {}).items():
            path = trial / "artifacts" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return trial

    async def record(self, row: int, run: int = 0, rollout_id: str = "", **more: Any) -> Verdict:
        rollout_id = rollout_id or f"{row:016x}{run:016x}"
        facts: dict[str, Any] = {"outcome": Outcome.GRADED, "reward": 1.0, "duration_ms": 2.5, **more}
        verdict = Verdict(row, run, rollout_id, **facts)
        await self.journal.record(verdict)
        self.projection.verdict(verdict)
        return verdict

    def text(self, name: str) -> str:
        return (self.dir / name).read_text()

    def index(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text("index.jsonl").splitlines()]

    def copies(self, key: ItemKey) -> dict[str, str]:
        root = self.dir / "artifacts" / artifacts.item_name(key)
        return {
            path.relative_to(root).as_posix(): path.read_text() for path in sorted(root.rglob("*")) if path.is_file()
        }


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run_dir = tmp_path / "calm-otter-7"
    run_dir.mkdir()
    return Run(run_dir)


def trajectory(rollout_id: str, **more: Any) -> dict[str, Any]:
    return {"schema_version": "ATIF-v1.7", "session_id": rollout_id, **more}


async def test_the_files_have_the_published_layout(run: Run) -> None:
    run.trial("a" * 32, trajectory("a" * 32), {"note.txt": "hi"})
    await run.record(1, rollout_id="a" * 32, tokens=65)
    failure = Failure(Fault.AGENT, "timeout", "too slow")
    await run.record(0, outcome=Outcome.FAILED, reward=None, failure=failure)
    await run.record(2, outcome=Outcome.SKIPPED, reward=None, duration_ms=None)
    document = run.projection.finish("incomplete")
    assert run.text("index.jsonl") == run.text("summary.jsonl")
    assert run.text("index.jsonl").splitlines() == [
        '{"row_index": 0, "run_index": 0, "rollout_id": "00000000000000000000000000000000", "status": "failed", "duration_ms": 2.5, "error_type": "timeout"}',
        '{"row_index": 1, "run_index": 0, "rollout_id": "' + "a" * 32 + '", "trajectory_filename": "trajectory.json", "status": "success", "reward": 1.0, "tokens": 65, "duration_ms": 2.5}',
        '{"row_index": 2, "run_index": 0, "rollout_id": "00000000000000020000000000000000", "status": "skipped"}',
    ]  # fmt: skip
    assert json.loads(run.text("progress.json")) == {"total_runs": 4, "sampled_rows": 4, "total_dataset_rows": 9}
    assert json.loads(run.text("metrics.json")) == document
    eval_run = document["eval_run"]
    assert list(eval_run) == [
        "id",
        "status",
        "name",
        "dataset_name",
        "model_name",
        "rollout_name",
        "duration_ms",
        "started_at",
    ]
    assert (eval_run["id"], eval_run["status"], eval_run["dataset_name"]) == (
        run.manifest.local_run_id,
        "incomplete",
        "sums",
    )
    assert document["summary"]["total_samples"] == 3
    assert run.text("trajectories/row_1_run_0.json") == run.text(f"rollout_trials/{'a' * 32}/trajectory.json")
    assert run.copies((1, 0)) == {"note.txt": "hi"}
    assert not (run.dir / "trajectories/row_0_run_0.json").exists()
    for name in ("index.jsonl", "summary.jsonl", "progress.json", "metrics.json", "trajectories/row_1_run_0.json"):
        assert stat.S_IMODE((run.dir / name).stat().st_mode) == 0o600
    assert not list(run.dir.rglob("*.tmp"))


async def test_a_finished_run_says_when_it_was_completed(run: Run) -> None:
    await run.record(0)
    eval_run = run.projection.finish("finished")["eval_run"]
    assert eval_run["status"] == "finished"
    assert eval_run["started_at"] < eval_run["completed_at"]
    assert eval_run["completed_at"].endswith("Z")


async def test_snapshots_come_at_a_bounded_rate_and_the_last_one_is_whole(run: Run) -> None:
    written = 0
    started = time.monotonic()
    for row in range(200):
        await run.record(row)
        written += run.projection.refresh()
    assert 1 <= written <= 1 + (time.monotonic() - started)
    assert len(run.index()) < 200
    run.projection.finish("finished")
    assert len(run.index()) == 200


async def test_an_item_costs_the_same_late_in_a_large_run(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # processor time is asked, not the disk's

    async def cost(rows: range) -> float:
        for row in rows:
            run.trial(f"{row:016x}{0:016x}", trajectory(f"{row:016x}{0:016x}", steps=["x" * 500] * 4), {"a": "b"})
        started = time.process_time()
        for row in rows:
            await run.record(row)
            run.projection.refresh()
        return time.process_time() - started

    first = await cost(range(50))
    await cost(range(50, 450))
    last = await cost(range(450, 500))
    assert last < 2 * first + 0.1


async def test_a_refresh_reads_no_trajectory_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for row in range(5):
        run.trial(f"{row:016x}{0:016x}", trajectory(f"{row:016x}{0:016x}"), {"a": "b"})
        await run.record(row)
    run.projection.refresh(force=True)

    def fail(*arguments: object) -> None:
        raise AssertionError(arguments)

    monkeypatch.setattr(artifacts, "read_trajectory", fail)
    monkeypatch.setattr(artifacts, "copy_artifacts", fail)
    run.projection.refresh(force=True)
    run.projection.finish("finished")
    run.invoke()  # nor does the next invocation
    run.projection.refresh(force=True)
    await run.journal.close()


@pytest.mark.parametrize(
    ("document", "belongs"),
    [
        ({"extra": {"osmosis": {"rollout_id": "a" * 32}}, "session_id": "other"}, True),
        ({"extra": {"osmosis": {"rollout_id": "other"}}, "session_id": "a" * 32}, False),
        ({"session_id": "a" * 32, "trajectory_id": "other"}, True),
        ({"trajectory_id": "a" * 32 + "/main"}, True),
        ({"trajectory_id": "other/" + "a" * 32}, False),
        ({}, False),
        ([], False),
        ("{torn", False),
    ],
)
async def test_a_trajectory_counts_only_for_the_rollout_it_says_it_is(run: Run, document: Any, belongs: bool) -> None:
    run.trial("a" * 32, document)
    await run.record(0, rollout_id="a" * 32)
    run.projection.finish("finished")
    assert ("trajectory_filename" in run.index()[0]) == belongs
    assert (run.dir / "trajectories/row_0_run_0.json").exists() == belongs


async def test_tokens_come_from_the_journal_else_from_the_trajectory(run: Run) -> None:
    final = {"total_prompt_tokens": 5, "total_completion_tokens": 2}
    for row, counted in ((0, 100), (1, None)):
        run.trial(f"{row:016x}{0:016x}", trajectory(f"{row:016x}{0:016x}", final_metrics=final))
        await run.record(row, tokens=counted)
    assert run.projection.finish("finished")["summary"]["tokens_used"] == 107
    assert [line["tokens"] for line in run.index()] == [100, 7]
    run.invoke()
    assert run.projection.metrics()["summary"]["tokens_used"] == 107


async def test_a_retry_replaces_the_copies_of_the_attempt_before(run: Run) -> None:
    run.trial("a" * 32, trajectory("a" * 32), {"old.txt": "old", "both.txt": "old"})
    await run.record(
        0, rollout_id="a" * 32, outcome=Outcome.FAILED, reward=None, failure=Failure(Fault.AGENT, "timeout")
    )
    run.projection.finish("incomplete")
    run.invoke()
    run.trial("b" * 32, trajectory("b" * 32), {"new.txt": "new", "both.txt": "new"})
    await run.record(0, rollout_id="b" * 32)
    run.projection.finish("finished")
    assert run.copies((0, 0)) == {"both.txt": "new", "new.txt": "new"}
    assert json.loads(run.text("trajectories/row_0_run_0.json"))["session_id"] == "b" * 32
    assert (run.dir / "rollout_trials" / ("a" * 32)).exists()
    run.trial("c" * 32)
    await run.record(0, rollout_id="c" * 32)
    run.projection.finish("finished")
    assert run.copies((0, 0)) == {}
    assert not (run.dir / "trajectories/row_0_run_0.json").exists()


async def test_what_a_killed_invocation_did_not_project_is_made_by_the_next(run: Run) -> None:
    for row in range(3):
        run.trial(f"{row:016x}{0:016x}", trajectory(f"{row:016x}{0:016x}"), {"a": str(row)})
        await run.record(row)
    run.projection.refresh(force=True)
    (run.dir / "trajectories/row_1_run_0.json").unlink()
    shutil.rmtree(run.dir / "artifacts/row_2_run_0")
    (run.dir / "artifacts/.row_9_run_0.x.tmp").mkdir()
    (run.dir / ".index.jsonl.x.tmp").touch()
    late = Verdict(3, 0, "d" * 32, Outcome.GRADED, reward=0.0)
    run.trial("d" * 32, trajectory("d" * 32), {"a": "late"})
    await run.journal.record(late)  # durable, and killed before its projection
    run.invoke()
    run.projection.refresh(force=True)
    assert [line["row_index"] for line in run.index()] == [0, 1, 2, 3]
    assert all(line["resumed"] is True for line in run.index())
    assert len(list((run.dir / "trajectories").iterdir())) == 4
    assert [run.copies((row, 0))["a"] for row in range(4)] == ["0", "1", "2", "late"]
    assert not list(run.dir.rglob("*.tmp"))


@pytest.mark.parametrize("seed", range(5))
async def test_derived_files_are_the_same_however_often_the_run_was_killed(run: Run, tmp_path: Path, seed: int) -> None:
    generator = random.Random(seed)
    for step in range(40):
        rollout_id = f"{step:032x}"
        row = generator.randrange(8)
        files = {"a.txt": str(step)} if generator.random() < 0.7 else {}
        run.trial(rollout_id, trajectory(rollout_id) if generator.random() < 0.7 else None, files)
        verdict = Verdict(row, 0, rollout_id, Outcome.GRADED, reward=float(generator.randrange(2)), tokens=step)
        await run.journal.record(verdict)
        if generator.random() < 0.8:  # else killed between the journal and the copies
            run.projection.verdict(verdict)
        if generator.random() < 0.5:
            run.projection.refresh(force=True)
        if generator.random() < 0.3:
            run.invoke()
    await run.journal.close()
    rebuilt = tmp_path / "rebuilt"
    shutil.copytree(run.dir, rebuilt)
    for name in ("trajectories", "artifacts"):
        shutil.rmtree(rebuilt / name)
    for name in ("index.jsonl", "summary.jsonl", "metrics.json", "progress.json"):
        (rebuilt / name).unlink()
    run.invoke().finish("incomplete")
    await run.journal.close()
    kept, run.dir = run.dir, rebuilt
    run.invoke().finish("incomplete")
    await run.journal.close()
    for name in ("index.jsonl", "summary.jsonl", "progress.json"):
        assert (kept / name).read_bytes() == (rebuilt / name).read_bytes()
    for name in ("trajectories", "artifacts"):
        assert tree(kept / name) == tree(rebuilt / name)


async def test_a_damaged_index_is_made_again(run: Run) -> None:
    run.trial("a" * 32, trajectory("a" * 32))
    await run.record(0, rollout_id="a" * 32)
    run.projection.finish("incomplete")
    whole = run.text("index.jsonl")
    (run.dir / "index.jsonl").write_text("{torn\n\n[]\n")
    run.invoke()
    run.projection.finish("incomplete")
    assert [{**line, "resumed": True} for line in map(json.loads, whole.splitlines())] == run.index()


def snapshot(directory: Path) -> dict[str, tuple[bytes, int]]:
    return {
        path.relative_to(directory).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


async def test_a_finished_run_stays_as_it_is_until_work_is_done(run: Run) -> None:
    await run.record(0)
    first = run.projection.finish("finished")
    await run.journal.close()
    before = snapshot(run.dir)
    run.invoke()
    assert not run.projection.refresh(force=True)
    assert run.projection.finish("incomplete") == first
    assert run.projection.finish("finished") == first
    await run.journal.close()
    assert snapshot(run.dir) == before
    run.invoke()
    await run.record(0)
    second = run.projection.finish("finished")
    assert second["eval_run"]["started_at"] == first["eval_run"]["started_at"]
    assert second["eval_run"]["completed_at"] > first["eval_run"]["completed_at"]
    assert second["eval_run"]["duration_ms"] > first["eval_run"]["duration_ms"]  # of both invocations


async def test_an_unfinished_run_is_marked_running_from_its_start(run: Run) -> None:
    assert run.projection.refresh()
    assert json.loads(run.text("metrics.json"))["eval_run"]["status"] == "running"
    assert run.text("index.jsonl") == ""


async def test_a_run_of_the_published_package_is_projected_to_the_same_files(tmp_path: Path) -> None:
    run_dir = tmp_path / "pub"
    shutil.copytree(PUBLISHED, run_dir)
    theirs = {name: (run_dir / name).read_text() for name in ("index.jsonl", "progress.json", "metrics.json")}
    for name in (*theirs, "summary.jsonl"):
        (run_dir / name).unlink()
    for name in ("trajectories", "artifacts"):
        shutil.rmtree(run_dir / name)
    manifest = read_manifest(run_dir)
    assert manifest is not None
    journal = FileJournal.open(run_dir)
    projected = Projection(
        run_dir,
        manifest,
        journal.records(),
        dataset_name="multiply",
        total_dataset_rows=64,
        sampled_rows=7,
        pass_threshold=1.0,
    ).finish("finished")
    await journal.close()
    assert (run_dir / "index.jsonl").read_text().replace(', "resumed": true', "") == theirs["index.jsonl"]
    assert (run_dir / "progress.json").read_text() == theirs["progress.json"]
    assert projected["summary"] == json.loads(theirs["metrics.json"])["summary"]
    assert list(projected["eval_run"]) == list(json.loads(theirs["metrics.json"])["eval_run"])
    for kind in ("trajectories", "artifacts"):
        assert tree(run_dir / kind) == tree(PUBLISHED / kind)


def tree(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def deep(root: Path, length: int) -> None:
    """A file whose path below `root` has `length` characters."""
    here = os.open(root, os.O_RDONLY)
    left = length
    while left > 201:
        os.mkdir("d" * 200, dir_fd=here)
        deeper = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here, left = deeper, left - 201
    os.close(os.open("f" * left, os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)


UNSAFE: dict[str, Callable[[Path], object]] = {
    "symlink": lambda root: (root / "link").symlink_to("/etc/hostname"),
    "'sub/link' (symlink)": lambda root: ((root / "sub").mkdir(), (root / "sub/link").symlink_to("..")),
    "no regular file": lambda root: os.mkfifo(root / "pipe"),
    "path of 1025 characters": lambda root: deep(root, 1025),
    "reserved name": lambda root: (root / "NUL.txt").touch(),
    "'con' (reserved": lambda root: (root / "con").mkdir(),
    "'dot.' (reserved": lambda root: (root / "dot.").touch(),
    "control character": lambda root: (root / "a\nb").touch(),
    "backslash": lambda root: (root / "a\\b").touch(),
}


@pytest.mark.parametrize("reason", UNSAFE)
async def test_artifacts_that_cannot_be_copied_safely_are_left_out_with_one_warning(run: Run, reason: str) -> None:
    trial = run.trial("a" * 32, None, {"good.txt": "good", "sub dir/also.txt": "x"})
    UNSAFE[reason](trial / "artifacts")
    await run.record(0, rollout_id="a" * 32)
    assert run.copies((0, 0)) == {"good.txt": "good", "sub dir/also.txt": "x"}
    assert len(run.warnings) == 1
    assert reason in run.warnings[0]
    assert "row 0, run 0" in run.warnings[0]


async def test_a_path_of_1024_characters_is_copied(run: Run) -> None:
    trial = run.trial("a" * 32)
    deep(trial / "artifacts", 1024)
    await run.record(0, rollout_id="a" * 32)
    assert run.warnings == []
    assert len(run.copies((0, 0))) == 1


@pytest.mark.parametrize("which", ["artifacts", "trial"])
async def test_linked_roots_give_nothing(run: Run, tmp_path: Path, which: str) -> None:
    outside = tmp_path / "outside"
    (outside / "artifacts").mkdir(parents=True)
    (outside / "artifacts/secret").write_text("secret")
    trial = run.dir / "rollout_trials" / ("a" * 32)
    if which == "trial":
        trial.symlink_to(outside)
    else:
        trial.mkdir()
        (trial / "artifacts").symlink_to(outside / "artifacts")
    await run.record(0, rollout_id="a" * 32)
    assert run.copies((0, 0)) == {}
    assert "everything" in run.warnings[0]


async def test_a_manifest_at_the_top_of_artifacts_is_passed_over_silently(run: Run) -> None:
    run.trial("a" * 32, None, {"manifest.json": "{}", "sub/manifest.json": "{}"})
    await run.record(0, rollout_id="a" * 32)
    assert run.copies((0, 0)) == {"sub/manifest.json": "{}"}
    assert run.warnings == []


async def test_a_link_in_place_of_a_copy_is_replaced_not_followed(run: Run, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "keep").touch()
    (run.dir / "artifacts").mkdir()
    (run.dir / "artifacts/row_0_run_0").symlink_to(outside)
    run.trial("a" * 32, None, {"a": "b"})
    await run.record(0, rollout_id="a" * 32)
    assert run.copies((0, 0)) == {"a": "b"}
    assert (outside / "keep").exists()
    assert [path.name for path in outside.iterdir()] == ["keep"]


async def test_a_directory_that_cannot_be_written_warns_during_the_run_and_fails_at_its_end(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run.record(0)

    def refuse(path: Path, data: bytes, *, durable: bool = True) -> None:
        raise OsmosisError(f"{path} cannot be written: No space left on device.", code="STORAGE")

    monkeypatch.setattr(projection, "write_atomic", refuse)
    run.projection.refresh(force=True)
    assert "No space left" in run.warnings[0]
    with pytest.raises(OsmosisError, match="No space left"):
        run.projection.finish("finished")
