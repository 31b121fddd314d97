"""A training as the user asks for it, and the directory it works in: names, manifest, lock, what is gone on from."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from osmosis_ai.consts import PACKAGE_VERSION
from osmosis_ai.errors import ConflictError, NotFoundError, ValidationError
from osmosis_ai.evaluation.atomic import json_bytes, storage_error, write_atomic
from osmosis_ai.evaluation.dataset import Dataset, read_rows
from osmosis_ai.evaluation.hosting import RolloutSource
from osmosis_ai.evaluation.manifest import manifest_name, utc_timestamp
from osmosis_ai.evaluation.rows import RowContent, format_selector, normalise
from osmosis_ai.workspace.source import source_digest
from osmosis_ai.workspace.training_config import TrainingFile

from osmosis_trainer.engines import ENGINES
from osmosis_trainer.loop.config import TrainingConfig

type Warn = Callable[[str | None, str], None]
"""Takes a warning's code, or None, and its text."""

# Options that may change when a training goes on: they decide how far it goes and what is kept, not what it is.
_FREE = frozenset(
    {
        "agent_workflow_timeout_s", "checkpoint_save_freq", "eval_interval", "grader_timeout_s", "keep_checkpoints",
        "max_in_flight", "max_steps", "no_signal_steps", "state_save_freq", "total_epochs", "writers",
    }
)  # fmt: skip
_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class TrainingRequest:
    """What the user asked for.

    Attributes:
        workspace_dir: Root of the Git work tree.
        file: The training file.
        dataset: The rows.
        output_root: Absolute; trainings and their locks lie in it.
        dataset_source: `explicit`, `cache` or `download`.
        rows: Positions of the rows to use, ascending; None takes all.
        name: The run's name; with `resume` an existing one. None makes one up, or takes the latest of the file.
        resume: Go on with an existing training.
        engine: One of `engines.ENGINES`.
        max_steps: Stop after so many steps; wins over the file.
        verbose: The observer gets every log line.
        options: Values of options that win over the file's.
    """

    workspace_dir: Path
    file: TrainingFile
    dataset: Dataset
    output_root: Path
    dataset_source: str = "explicit"
    rows: tuple[int, ...] | None = None
    name: str | None = None
    resume: bool = False
    engine: Literal["numpy", "torch"] = "numpy"
    max_steps: int | None = None
    verbose: bool = False
    options: Mapping[str, Any] | None = None

    @property
    def config(self) -> TrainingConfig:
        """The options.

        Raises:
            ValidationError: Some are out of range, all at once.
        """
        config = TrainingConfig.of_file(self.file)
        changes = dict(self.options or {})
        if self.max_steps is not None:
            changes["max_steps"] = self.max_steps
        return replace(config, **changes) if changes else config

    @property
    def source(self) -> RolloutSource:
        """The rollout's code."""
        file = self.file
        folder = self.workspace_dir / "rollouts" / file.rollout
        return RolloutSource(folder, file.entrypoint, f"rollouts/{file.rollout}/{file.entrypoint}", file.path)

    def check(self) -> None:
        """Find what is wrong before anything is made or started.

        Raises:
            ValidationError: A value, the rollout's folder or the output root is wrong.
        """
        if self.engine not in ENGINES:
            raise ValidationError(f"--engine must be one of {', '.join(ENGINES)}, got {self.engine!r}.")
        self.source.check(self.output_root)


def read_contents(dataset: Dataset) -> Sequence[RowContent]:
    """What the rollouts get of each row of a dataset.

    Raises:
        ValidationError: Rows cannot be used; the first twenty are named.
    """
    contents, problems = [], []
    for row in read_rows(dataset):
        content, findings = normalise(row, dataset.format)
        contents.append(content)
        problems += findings
    if problems:
        lines = [f"  - {finding}" for finding in problems[:20]]
        more = [f"  ... and {len(problems) - 20} more"] if len(problems) > 20 else []
        raise ValidationError("\n".join([f"Dataset {dataset.path} has rows that cannot be trained on:", *lines, *more]))
    return contents


def identity(request: TrainingRequest, config: TrainingConfig, base_digest: str) -> dict[str, Any]:
    """What decides the course of a training; it goes on only where this is the same."""
    file = request.file
    return {
        "model_path": file.model_path,
        "model_digest": base_digest,
        "engine": request.engine,
        "dataset_sha256": request.dataset.sha256,
        "rows": format_selector(request.rows) if request.rows is not None else None,
        "rollout": {
            "name": file.rollout,
            "entrypoint": file.entrypoint,
            "source_digest": source_digest(request.source.rollout_dir, exclude=request.output_root),
        },
        "env": dict(sorted(file.env.items())),
        "secret_names": sorted(file.secret_names),
        "options": {key: value for key, value in config.to_json().items() if key not in _FREE},
    }


def write_manifest(run_dir: Path, name: str, request: TrainingRequest, inputs: Mapping[str, Any]) -> None:
    """Write the manifest of a new training; its directory is made.

    Raises:
        OsmosisError: The disk is full or refuses.
    """
    path = request.file.path
    shown = path.relative_to(request.workspace_dir) if path.is_relative_to(request.workspace_dir) else path
    document = {
        "schema_version": _SCHEMA,
        "kind": "training",
        "run_name": name,
        "created_at": utc_timestamp(),
        "sdk_version": PACKAGE_VERSION,
        "config_path": shown.as_posix(),
        "dataset": {
            "path": str(request.dataset.path),
            "name": request.dataset.name,
            "rows": request.dataset.total_rows,
        },
        "inputs": inputs,
    }
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(run_dir, error) from error
    write_atomic(run_dir / manifest_name, json_bytes(document))


def read_training_manifest(run_dir: Path) -> dict[str, Any] | None:
    """A training's manifest; None where there is none.

    Raises:
        ValidationError: It is damaged, or of another kind or version.
    """
    path = run_dir / manifest_name
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ValidationError(f"{path} cannot be read: {error}. Start another training with --name.") from error
    if not isinstance(document, dict) or document.get("kind") != "training":
        raise ValidationError(f"{path} is no training's. Choose another --name.")
    if document.get("schema_version") != _SCHEMA:
        raise ValidationError(
            f"{path} has schema version {document.get('schema_version')!r}, this osmosis reads {_SCHEMA}. Go on with the "
            "version that made the training."
        )
    return document


def changed(inputs: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
    """Names of what differs, options with their values."""
    ours, theirs = json.loads(json.dumps(inputs)), dict(before)
    options, earlier = ours.pop("options"), theirs.pop("options", {})
    found = [name for name in ours if ours[name] != theirs.get(name)]
    found += [
        f"{name} ({earlier.get(name)} is now {value})" for name, value in options.items() if earlier.get(name) != value
    ]
    return found


def latest_run(root: Path, config_path: Path, workspace: Path) -> str:
    """The latest training of a file.

    Raises:
        NotFoundError: There is none.
    """
    found: list[tuple[str, str]] = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(root):
            with contextlib.suppress(ValidationError):
                document = read_training_manifest(Path(entry.path))
                if document and (workspace / document.get("config_path", "")) == config_path:
                    found.append((document.get("created_at", ""), entry.name))
    if not found:
        raise NotFoundError(f"There is no training of {config_path} in {root} to go on with; leave --resume out.")
    return max(found)[1]


def refuse_existing(run_dir: Path, name: str) -> None:
    """Refuse a new training where something is.

    Raises:
        ConflictError: Something is there.
    """
    if run_dir.exists() and (left := sorted(entry.name for entry in run_dir.iterdir())):
        if manifest_name in left:
            raise ConflictError(
                f"There is a training '{name}' already. Go on with it with --resume, or choose another --name.",
                details={"run_name": name},
            )
        raise ConflictError(f"{run_dir} holds {', '.join(left[:3])} and is no training; choose another --name.")
