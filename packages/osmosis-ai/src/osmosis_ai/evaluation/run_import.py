"""What a finished run directory declares to a platform: checked strictly, every file with its size and digest.

Owns: which files are published, and what must hold before one byte leaves. Nothing here writes or talks to anybody.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

from osmosis_ai.errors import ValidationError
from osmosis_ai.evaluation.artifacts import trials_name
from osmosis_ai.evaluation.events import index_name
from osmosis_ai.evaluation.manifest import Manifest, read_manifest, schema_version
from osmosis_ai.evaluation.projection import metrics_name, progress_name
from osmosis_ai.evaluation.runlog import logs_name
from osmosis_ai.evaluation.verdict import ItemKey

_HEX32 = re.compile(r"[0-9a-f]{32}")
_TRAJECTORY = re.compile(r"trajectory[A-Za-z0-9._-]*\.json")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\\]")
_LONGEST_PATH = 1024
_STATUSES = ("success", "failed", "skipped")
_PROVENANCE = (
    "sdk_version",
    "git_head",
    "git_branch",
    "git_dirty",
    "config_branch",
    "config_commit_sha",
    "config_path",
)

type _Stamp = tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class ImportFile:
    """One file as it was when it was declared.

    Attributes:
        path: Relative to the run directory.
        size: Bytes.
        sha256: Of its content.
        stamp: Device, inode, size and times: whether it is still the same file.
    """

    path: str
    size: int
    sha256: str
    stamp: _Stamp

    def to_json(self) -> dict[str, Any]:
        """As it is declared."""
        return {"path": self.path, "size": self.size, "sha256": self.sha256}


@dataclass(frozen=True, slots=True)
class RunImport:
    """A run that may be published.

    Attributes:
        run_dir: Its directory.
        manifest: Its manifest, which stays here.
        files: What is published, by path.
        run: The `run` part of the declaration.
    """

    run_dir: Path
    manifest: Manifest
    files: tuple[ImportFile, ...]
    run: Mapping[str, Any]

    def declaration(self, *, reimport: bool) -> dict[str, Any]:
        """The body that starts an import.

        Args:
            reimport: Whether the results that were published before are replaced.
        """
        provenance = self.manifest.provenance
        return {
            "schema_version": 1,
            "local_run_id": self.manifest.local_run_id,
            "manifest_digest": self.manifest.digest,
            "run": self.run,
            "schema_versions": self.manifest.inputs.get("versions", {}),
            "provenance": {key: provenance[key] for key in _PROVENANCE if provenance.get(key) is not None},
            "files": [file.to_json() for file in self.files],
            "reimport": reimport,
        }

    def check_unchanged(self, file: ImportFile) -> Path:
        """The file's path, if it is still what was declared.

        Raises:
            ValidationError: It was changed or replaced meanwhile.
        """
        path = self.run_dir / file.path
        try:
            same = _stamp(path.lstat()) == file.stamp
        except OSError:
            same = False
        if not same:
            raise ValidationError(f"{path} was changed while the run was published; run the command again.")
        return path


def prepare_import(run_dir: Path) -> RunImport:
    """Check a run directory and read what it declares; the caller holds the run's lock.

    Raises:
        ValidationError: Something in it is missing, damaged or does not fit together; names the file and the place.
    """
    _require_directory(run_dir)
    manifest = _manifest(run_dir)
    index_bytes, index_file = _read(run_dir, index_name)
    progress_bytes, progress_file = _read(run_dir, progress_name)
    metrics = _object(run_dir / metrics_name, _read(run_dir, metrics_name)[0])
    items = list(_index_items(run_dir / index_name, index_bytes))
    _check_counts(run_dir, manifest, items, _object(run_dir / progress_name, progress_bytes))
    run = _run(run_dir, manifest, metrics)
    files = [index_file, progress_file]
    if _exists(run_dir / logs_name):
        files.append(_hashed(run_dir, logs_name))
    if _exists(run_dir / trials_name):
        _require_directory(run_dir / trials_name)
    for item in items:
        files += _trial_files(run_dir, item)
    files.sort(key=lambda file: file.path)
    return RunImport(run_dir, manifest, tuple(files), run)


def _refuse(path: Path, problem: str) -> NoReturn:
    raise ValidationError(f"{path} cannot be published: {problem}.")


def _exists(path: Path) -> bool:
    return os.path.lexists(path)


def _require_directory(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except OSError as error:
        _refuse(path, f"{error.strerror or error}")
    if not stat.S_ISDIR(mode):
        _refuse(path, "a directory is needed, and no link")


def _manifest(run_dir: Path) -> Manifest:
    path = run_dir / "manifest.json"
    _read(run_dir, "manifest.json")  # a regular file
    manifest = read_manifest(run_dir)
    if manifest is None:
        _refuse(path, f"a manifest of schema {schema_version} is needed")
    if not _HEX32.fullmatch(manifest.local_run_id):
        _refuse(path, "local_run_id is not 32 hex digits")
    if manifest.run_name != run_dir.name:
        _refuse(path, f"it is of run {manifest.run_name!r}, and the directory is called {run_dir.name!r}")
    return manifest


@dataclass(frozen=True, slots=True)
class _Item:
    key: ItemKey
    rollout_id: str
    trajectory: str | None


def _index_items(path: Path, data: bytes) -> Iterator[_Item]:
    """The lines of the index, each checked by itself and against the ones before."""
    if data and not data.endswith(b"\n"):
        _refuse(path, "its last line is not complete")
    rollout_ids: set[str] = set()
    last: ItemKey | None = None
    for number, line in enumerate(data.split(b"\n")[:-1], 1):
        where = f"line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            _refuse(path, f"{where} is no JSON")
        if not isinstance(record, dict):
            _refuse(path, f"{where} is no object")
        row, run, rollout_id = (record.get(key) for key in ("row_index", "run_index", "rollout_id"))
        if not (_is_position(row) and _is_position(run)):
            _refuse(path, f"{where}: row_index and run_index must be whole numbers of 0 or more")
        if not isinstance(rollout_id, str) or not _HEX32.fullmatch(rollout_id):
            _refuse(path, f"{where}: rollout_id is not 32 hex digits")
        if rollout_id in rollout_ids:
            _refuse(path, f"{where}: rollout {rollout_id} occurs twice")
        rollout_ids.add(rollout_id)
        if record.get("status") not in _STATUSES:
            _refuse(path, f"{where}: the status is none of {', '.join(_STATUSES)}")
        trajectory = record.get("trajectory_filename")
        if trajectory is not None and not (isinstance(trajectory, str) and _TRAJECTORY.fullmatch(trajectory)):
            _refuse(path, f"{where}: trajectory_filename is no trajectory's name")
        if last is not None and (row, run) <= last:
            _refuse(path, f"{where}: rows and runs are not in order")
        last = (row, run)
        yield _Item(last, rollout_id, trajectory)


def _is_position(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _check_counts(run_dir: Path, manifest: Manifest, items: list[_Item], progress: Mapping[str, Any]) -> None:
    """Every run of every row must be there."""
    path = run_dir / progress_name
    total, rows, available = (progress.get(key) for key in ("total_runs", "sampled_rows", "total_dataset_rows"))
    if not (isinstance(rows, int) and isinstance(available, int) and all(map(_is_position, (total, rows, available)))):
        _refuse(path, "total_runs, sampled_rows and total_dataset_rows must be whole numbers")
    n = manifest.inputs.get("n")
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        _refuse(run_dir / "manifest.json", "inputs.n is no whole number of 1 or more")
    if total != rows * n or rows > available:
        _refuse(path, f"{rows} rows of {available} with {n} runs each do not make {total} runs")
    wanted = [(row, run) for row in range(rows) for run in range(n)]
    if [item.key for item in items] != wanted:
        missing = len(wanted) - len(items)
        problem = f"{missing} of {len(wanted)} work items have no verdict yet; finish the run first"
        _refuse(run_dir / index_name, problem if missing > 0 else "its rows and runs are not those of the manifest")


def _run(run_dir: Path, manifest: Manifest, metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The `run` part of the declaration, from metrics and manifest that tell of the same run."""
    path = run_dir / metrics_name
    run, summary = metrics.get("eval_run"), metrics.get("summary")
    if not isinstance(run, dict) or not isinstance(summary, dict):
        _refuse(path, "eval_run or summary is missing")
    if run.get("status") != "finished":
        _refuse(path, f"the run is {run.get('status')!r}, not finished; finish it first")
    inputs = manifest.inputs
    rollout, dataset = inputs.get("rollout"), inputs.get("dataset")
    if not isinstance(rollout, dict) or not isinstance(dataset, dict):
        _refuse(run_dir / "manifest.json", "inputs.rollout or inputs.dataset is missing")
    expected = {
        "id": manifest.local_run_id,
        "name": manifest.run_name,
        "model_name": inputs.get("model_path"),
        "rollout_name": rollout.get("name"),
    }
    for key, value in expected.items():
        if run.get(key) != value:
            _refuse(path, f"its {key} is {run.get(key)!r}, and the manifest says {value!r}")
    threshold = summary.get("pass_threshold")
    if isinstance(threshold, bool) or not isinstance(threshold, int | float):
        _refuse(path, "summary.pass_threshold is no number")
    for key in ("started_at", "completed_at"):
        if not isinstance(run.get(key), str):
            _refuse(path, f"eval_run.{key} is missing")
    provenance = manifest.provenance
    pin = {"branch": provenance.get("config_branch"), "commit_sha": provenance.get("config_commit_sha")}
    return {
        "name": manifest.run_name,
        "started_at": run["started_at"],
        "completed_at": run["completed_at"],
        "experiment_config": {
            "rollout": {
                "name": rollout.get("name"),
                "source_digest": rollout.get("source_digest"),
                **{key: value for key, value in pin.items() if value is not None},
            },
            "entrypoint": rollout.get("entrypoint"),
            "model_path": inputs.get("model_path"),
            "dataset": {
                "name": run.get("dataset_name"),
                "sha256": dataset.get("sha256"),
                "selected_source_rows": dataset.get("selected_source_rows"),
            },
        },
        "evaluation_config": {"n": inputs["n"], "pass_threshold": float(threshold)},
    }


def _trial_files(run_dir: Path, item: _Item) -> Iterator[ImportFile]:
    """The trajectory and the artifacts of the attempt that counts."""
    trial = f"{trials_name}/{item.rollout_id}"
    if _exists(run_dir / trial):
        _require_directory(run_dir / trial)
    if item.trajectory is not None:
        name = f"{trial}/{item.trajectory}"
        data, file = _read(run_dir, name)
        _check_trajectory(run_dir / name, data, item)
        yield file
    root = run_dir / trial / "artifacts"
    if not _exists(root):
        return
    _require_directory(root)
    for name in _tree(root, ""):
        if name != "manifest.json":
            yield _hashed(run_dir, f"{trial}/artifacts/{name}")


def _tree(folder: Path, prefix: str) -> Iterator[str]:
    """The regular files below a folder; a link or anything else there is refused."""
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        if entry.is_symlink():
            _refuse(Path(entry.path), "it is a link")
        if entry.is_dir(follow_symlinks=False):
            yield from _tree(Path(entry.path), f"{prefix}{entry.name}/")
        elif entry.is_file(follow_symlinks=False):
            yield f"{prefix}{entry.name}"
        else:
            _refuse(Path(entry.path), "it is neither a file nor a folder")


def _check_trajectory(path: Path, data: bytes, item: _Item) -> None:
    # only now: it loads pydantic, which the refusal of a missing run does without
    from osmosis_ai.rollout.trajectory.atif import trajectory_identity, validate_trajectory

    try:
        document = json.loads(data)
        validate_trajectory(document)
    except (ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0]
        _refuse(path, f"it is no valid trajectory ({reason})")
    if trajectory_identity(document) != item.rollout_id:
        _refuse(path, f"it is not of rollout {item.rollout_id}")
    extra = document.get("extra") or {}
    fields = (extra.get("osmosis") or {}).get("request_extra_fields") or {}
    if (fields.get("row_index"), fields.get("run_index")) != item.key:
        _refuse(path, f"it does not say that it is of row {item.key[0]}, run {item.key[1]}")


def _object(path: Path, data: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        _refuse(path, "it is no JSON")
    if not isinstance(document, dict):
        _refuse(path, "it is no JSON object")
    return document


def _read(run_dir: Path, name: str) -> tuple[bytes, ImportFile]:
    """The content of a regular file, and what is declared of it."""
    with _opened(run_dir / name) as descriptor:
        before = os.fstat(descriptor)
        with open(descriptor, "rb", closefd=False) as stream:
            data = stream.read()
    return data, ImportFile(_checked(run_dir, name), len(data), hashlib.sha256(data).hexdigest(), _stamp(before))


def _hashed(run_dir: Path, name: str) -> ImportFile:
    """What is declared of a file that may be large."""
    with _opened(run_dir / name) as descriptor:
        before = os.fstat(descriptor)
        with open(descriptor, "rb", closefd=False) as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return ImportFile(_checked(run_dir, name), before.st_size, digest, _stamp(before))


class _opened:
    """A descriptor of a regular file; links are refused."""

    def __init__(self, path: Path) -> None:
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            _refuse(path, "it is a link" if path.is_symlink() else f"{error.strerror or error}")
        if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            os.close(self._descriptor)
            _refuse(path, "it is no regular file")

    def __enter__(self) -> int:
        return self._descriptor

    def __exit__(self, *_error: object) -> None:
        os.close(self._descriptor)


def _checked(run_dir: Path, name: str) -> str:
    """A path that every platform can hold."""
    if len(name) > _LONGEST_PATH or _CONTROL.search(name) or not name.isprintable():
        _refuse(
            run_dir / name, f"its path is longer than {_LONGEST_PATH} characters or holds characters that no path may"
        )
    if PurePosixPath(name).as_posix() != name or ".." in name.split("/"):
        _refuse(run_dir / name, "its path is not relative and plain")
    return name


def _stamp(found: os.stat_result) -> _Stamp:
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
