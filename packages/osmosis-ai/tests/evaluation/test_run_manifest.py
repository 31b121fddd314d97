"""The manifest: what a run is made of, and when a later start is the same run."""

import hashlib
import json
import re
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest
from osmosis_ai.errors import ValidationError
from osmosis_ai.evaluation.dataset import Dataset, open_dataset
from osmosis_ai.evaluation.manifest import (
    ResolvedInputs,
    archive_run,
    build_inputs,
    change_text,
    changed_inputs,
    read_manifest,
    write_manifest,
)
from osmosis_ai.evaluation.rows import select

PUBLISHED = Path(__file__).parent / "pub"


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    path = tmp_path / "d.csv"
    path.write_text("user_prompt,label\n" + "a,b\n" * 64)
    return open_dataset(path)


def inputs(dataset: Dataset, **changes: object) -> ResolvedInputs:
    facts: dict = {
        "model_path": "openai/gpt-5-mini",
        "dataset": dataset,
        "selection": select(dataset, rows="0-3,6"),
        "n": 2,
        "rollout": "adder",
        "entrypoint": "main.py",
        "source_digest": "d" * 64,
        "env": {"B": "2", "A": "1"},
        "secret_names": {"Z_KEY", "A_KEY"},
        "agent_timeout_s": 30.0,
    }
    return build_inputs(**{**facts, **changes})


def test_the_inputs_are_the_published_ones() -> None:
    """Same keys, nesting and nulls as in a manifest that 0.3.8 wrote."""
    theirs = json.loads((PUBLISHED / "manifest.json").read_text())["inputs"]

    class Facts:
        sha256 = theirs["dataset"]["sha256"]

    class Selection:
        selector = theirs["dataset"]["selected_source_rows"]

    ours = build_inputs(
        model_path=theirs["model_path"],
        dataset=Facts(),  # type: ignore[arg-type]
        selection=Selection(),  # type: ignore[arg-type]
        n=theirs["n"],
        rollout=theirs["rollout"]["name"],
        entrypoint=theirs["rollout"]["entrypoint"],
        source_digest=theirs["rollout"]["source_digest"],
        env={"FOO": "b"},
        secret_names=[],
    )
    assert ours == theirs
    manifest = read_manifest(PUBLISHED)
    assert manifest is not None
    assert manifest.pass_threshold is None
    assert changed_inputs(manifest, ours, pass_threshold=0.25) == []


def test_a_manifest_is_written_once_and_read_back(tmp_path: Path, dataset: Dataset) -> None:
    written = write_manifest(
        tmp_path,
        run_name="calm-otter-7",
        inputs=inputs(dataset),
        pass_threshold=0.5,
        provenance={"sdk_version": "0.3.9", "git_head": None, "git_dirty": False},
    )
    assert read_manifest(tmp_path) == written
    path = tmp_path / "manifest.json"
    document = json.loads(path.read_text())
    assert list(document) == [
        "schema_version",
        "local_run_id",
        "run_name",
        "created_at",
        "inputs",
        "pass_threshold",
        "provenance",
    ]
    assert document["inputs"]["timeouts"] == {"agent_timeout_sec": 30.0, "grader_timeout_sec": None}
    assert list(document["inputs"]["env"]) == ["A", "B"]
    assert document["inputs"]["secret_names"] == ["A_KEY", "Z_KEY"]
    assert document["provenance"] == {"sdk_version": "0.3.9", "git_dirty": False}
    assert re.fullmatch(r"[0-9a-f]{32}", written.local_run_id)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", written.created_at)
    assert written.digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_directory_without_a_manifest_has_none(tmp_path: Path) -> None:
    assert read_manifest(tmp_path) is None


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model_path": "other"}, ["model_path"]),
        ({"n": 3}, ["n"]),
        ({"entrypoint": "other.py"}, ["rollout"]),
        ({"source_digest": "e" * 64}, ["rollout"]),
        ({"env": {"A": "1"}}, ["env"]),
        ({"secret_names": ["A_KEY"]}, ["secret_names"]),
        ({"agent_timeout_s": 31}, ["timeouts"]),
        ({"agent_timeout_s": 30}, []),
        ({"n": 3, "model_path": "other"}, ["model_path", "n"]),
    ],
)
def test_changes_are_named_by_their_top_level_key(
    tmp_path: Path, dataset: Dataset, change: dict, named: list[str]
) -> None:
    manifest = write_manifest(tmp_path, run_name="a", inputs=inputs(dataset), pass_threshold=1.0)
    assert changed_inputs(manifest, inputs(dataset, **change), pass_threshold=1.0) == named


def test_other_rows_another_dataset_and_another_threshold_are_changes(tmp_path: Path, dataset: Dataset) -> None:
    manifest = write_manifest(tmp_path, run_name="a", inputs=inputs(dataset), pass_threshold=1.0)
    assert changed_inputs(manifest, inputs(dataset, selection=select(dataset, limit=5)), pass_threshold=1.0) == [
        "dataset"
    ]
    other = tmp_path / "e.csv"
    other.write_text("user_prompt,label\n" + "a,c\n" * 64)
    assert changed_inputs(manifest, inputs(open_dataset(other)), pass_threshold=1.0) == ["dataset"]
    assert changed_inputs(manifest, inputs(dataset), pass_threshold=0.5) == ["pass_threshold"]
    assert changed_inputs(manifest, inputs(dataset), pass_threshold=1) == []


def test_a_change_is_told_with_both_values_where_they_are_short(tmp_path: Path, dataset: Dataset) -> None:
    manifest = write_manifest(
        tmp_path, run_name="a", inputs=inputs(dataset, env={"A": "1"}, secret_names=[]), pass_threshold=1.0
    )
    other = inputs(
        dataset,
        selection=select(dataset, limit=5),
        n=3,
        env={"A": "2"},
        source_digest="e" * 64,
        secret_names=["K" * 50],
    )
    changed = changed_inputs(manifest, other, pass_threshold=0.5)
    assert [change_text(manifest, other, 0.5, key) for key in changed] == [
        "dataset (rows 0-3,6, now 0-4)",
        "env (A)",
        "n 2, now 3",
        "rollout (other source files)",
        "other secret_names",
        "pass_threshold 1.0, now 0.5",
    ]


def test_another_spelling_of_the_same_rows_is_no_change(tmp_path: Path, dataset: Dataset) -> None:
    spelled = inputs(dataset)
    spelled["dataset"]["selected_source_rows"] = "0,1,2-3,6"
    manifest = write_manifest(tmp_path, run_name="a", inputs=spelled, pass_threshold=1.0)
    assert changed_inputs(manifest, inputs(dataset), pass_threshold=1.0) == []


@pytest.mark.parametrize(
    ("text", "mentioned"),
    [
        ("", "damaged"),
        ("[]", "no JSON object"),
        ('{"schema_version": 2}', "schema version 2"),
        ('{"local_run_id": "x"}', "schema version None"),
        ('{"schema_version": 1}', "'inputs' is missing"),
        ('{"schema_version": 1, "inputs": {}, "local_run_id": 5, "run_name": "a", "created_at": "x"}', "local_run_id"),
        ('{"schema_version": 1, "inputs": {}, "pass_threshold": true}', "pass_threshold"),
    ],
)
def test_a_manifest_that_cannot_be_trusted_is_refused_and_says_what_to_do(
    tmp_path: Path, text: str, mentioned: str
) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(ValidationError, match=mentioned) as caught:
        read_manifest(tmp_path)
    assert str(tmp_path / "manifest.json") in caught.value.message
    assert "--fresh" in caught.value.message


def test_archives_never_overwrite_each_other(tmp_path: Path) -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    names = []
    for number in range(3):
        run_dir = tmp_path / "calm-otter-7"
        run_dir.mkdir()
        (run_dir / "note").write_text(str(number))
        names.append(archive_run(run_dir, now=moment).name)
    stem = "calm-otter-7.archive-20260102T030405Z"
    assert names == [stem, f"{stem}-1", f"{stem}-2"]
    assert [(tmp_path / name / "note").read_text() for name in names] == ["0", "1", "2"]
