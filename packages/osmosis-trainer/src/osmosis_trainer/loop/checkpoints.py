"""What a training can go on from: states after each step, and checkpoints that also hold the adapter for others.

A folder appears whole: filled under another name, every file forced to the disk, renamed, the directory forced. What a
folder holds is listed with digests in its `loop.json`; one that does not match is not used, and it is said aloud.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from osmosis_ai.errors import NotFoundError, ValidationError
from osmosis_ai.evaluation.atomic import json_bytes, storage_error, sync_directory

from osmosis_trainer.engine.protocol import PolicyEngine

CHECKPOINTS, STATES = "checkpoints", "state"
FACTS, STATE = "loop.json", "state.safetensors"
ADAPTER = ("adapter_model.safetensors", "adapter_config.json")
_STEP = re.compile(r"step_(\d+)")
_FORMAT = "osmosis-training-state-1"
# States kept: the last one, and the one before in case the last is damaged.
_STATES_KEPT = 2


@dataclass(frozen=True, slots=True)
class Saved:
    """A state or checkpoint on the disk.

    Attributes:
        step: Steps that were trained when it was saved.
        folder: Where it lies.
        facts: What the loop wrote.
    """

    step: int
    folder: Path
    facts: Mapping[str, Any]

    @property
    def state(self) -> Path:
        """The engine's part."""
        return self.folder / STATE


class CheckpointStore:
    """The states and checkpoints of a run directory.

    Args:
        run_dir: The run's.
        keep: Checkpoints to keep, the latest; 0 keeps all.
    """

    def __init__(self, run_dir: Path, *, keep: int = 0) -> None:
        self._run_dir = run_dir
        self._keep = keep

    def path(self, step: int) -> Path:
        """Where the checkpoint after so many steps lies."""
        return self._run_dir / CHECKPOINTS / f"step_{step}"

    async def save_state(self, engine: PolicyEngine, adapter: str, step: int, facts: Mapping[str, Any]) -> Path:
        """Save what a killed run goes on from; older states go.

        Raises:
            OsmosisError: The disk is full or refuses; what was saved before stays.
        """
        folder = self._run_dir / STATES / f"step_{step}"
        await self._save(folder, engine, adapter, None, step, facts)
        self._retain(self._run_dir / STATES, _STATES_KEPT)
        return folder

    async def save_checkpoint(
        self, engine: PolicyEngine, adapter: str, version: str, step: int, facts: Mapping[str, Any]
    ) -> Path:
        """Save a state together with the published version of it as a PEFT adapter.

        Raises:
            OsmosisError: The disk is full or refuses; what was saved before stays.
        """
        folder = self.path(step)
        if not folder.exists():
            await self._save(folder, engine, adapter, version, step, facts)
        if self._keep:
            self._retain(self._run_dir / CHECKPOINTS, self._keep)
        return folder

    def steps(self) -> list[int]:
        """The steps there are checkpoints of, ascending."""
        return sorted(step for step, _ in _folders(self._run_dir / CHECKPOINTS))

    def latest(self, warn: Callable[[str], None]) -> Saved | None:
        """The latest state or checkpoint that is whole; each damaged one before it is told.

        Args:
            warn: Takes a line for each one that cannot be used.
        """
        candidates = [*_folders(self._run_dir / STATES), *_folders(self._run_dir / CHECKPOINTS)]
        for _, folder in sorted(candidates, key=lambda found: found[0], reverse=True):
            try:
                return read_saved(folder)
            except ValidationError as error:
                warn(f"{error.message} Going on from the one before it.")
        return None

    def clear(self) -> None:
        """Remove what a killed save left."""
        for parent in (self._run_dir / STATES, self._run_dir / CHECKPOINTS):
            for leftover in parent.glob(".step_*.tmp"):
                shutil.rmtree(leftover, ignore_errors=True)

    def drop_after(self, step: int) -> None:
        """Remove states and checkpoints of later steps than the one that is gone on from: they are damaged."""
        for parent in (self._run_dir / STATES, self._run_dir / CHECKPOINTS):
            for found, folder in _folders(parent):
                if found > step:
                    shutil.rmtree(folder, ignore_errors=True)

    async def _save(
        self,
        folder: Path,
        engine: PolicyEngine,
        adapter: str,
        version: str | None,
        step: int,
        facts: Mapping[str, Any],
    ) -> None:
        temporary: Path | None = None
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".tmp", dir=folder.parent))
            await engine.save_state(adapter, temporary / STATE)
            if version is not None:
                await engine.export_peft(version, temporary / "adapter")
                for name in ADAPTER:
                    (temporary / "adapter" / name).rename(temporary / name)
                shutil.rmtree(temporary / "adapter")
            _finish(temporary, folder, [STATE, *(ADAPTER if version is not None else ())], {"step": step, **facts})
        except OSError as error:
            raise storage_error(folder, error) from error
        finally:
            if temporary is not None:
                shutil.rmtree(temporary, ignore_errors=True)

    def _retain(self, parent: Path, count: int) -> None:
        for _, folder in sorted(_folders(parent))[:-count]:
            shutil.rmtree(folder, ignore_errors=True)


def _finish(temporary: Path, folder: Path, names: Sequence[str], facts: Mapping[str, Any]) -> None:
    """Describe a filled folder and put it in its place."""
    files = {name: _digest(temporary / name) for name in names}
    _write(temporary / FACTS, json_bytes({"format": _FORMAT, **facts, "files": files}))
    temporary.chmod(0o755)
    sync_directory(temporary)
    if folder.exists():
        shutil.rmtree(folder)
    temporary.rename(folder)
    sync_directory(folder.parent)


def read_saved(folder: Path) -> Saved:
    """Read and verify a state or checkpoint.

    Raises:
        ValidationError: A file is missing, torn or changed.
    """
    path = folder / FACTS
    try:
        document = json.loads(path.read_bytes())
        if document.get("format") != _FORMAT:
            raise ValueError(f"its format is {document.get('format')!r}, not {_FORMAT!r}")
        step, files = int(document["step"]), dict(document["files"])
        for name, digest in files.items():
            if _digest(folder / name) != digest:
                raise ValueError(f"{name} has changed since it was saved")
    except FileNotFoundError as error:
        missing = Path(str(error.filename)).name
        raise ValidationError(f"{folder} is not whole: {missing} is missing.") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValidationError(f"{folder} is damaged: {error}.", details={"folder": str(folder)}) from error
    return Saved(step, folder, document)


def find_checkpoint(run_dir: Path, step: int | None) -> Path:
    """The checkpoint of a run after so many steps, or its last one.

    Raises:
        NotFoundError: There is no such run or checkpoint; those there are are named.
        ValidationError: It is damaged; the last whole one before it is named, never taken in silence.
    """
    if not run_dir.is_dir():
        raise NotFoundError(f"There is no training {run_dir.name!r} in {run_dir.parent}.")
    store = CheckpointStore(run_dir)
    steps = store.steps()
    if not steps:
        raise NotFoundError(f"The training {run_dir.name!r} has no checkpoint yet.")
    if step is not None:
        if step not in steps:
            there = ", ".join(map(str, steps))
            raise NotFoundError(f"The training {run_dir.name!r} has no checkpoint after step {step}; it has {there}.")
        return read_saved(store.path(step)).folder
    damage: ValidationError | None = None
    for latest in reversed(steps):
        try:
            found = read_saved(store.path(latest)).folder
        except ValidationError as error:
            damage = damage or error
            continue
        if damage is not None:
            raise ValidationError(f"{damage.message} The last whole one is @{run_dir.name}/{latest}; ask for it.")
        return found
    raise ValidationError(f"Every checkpoint of the training {run_dir.name!r} is damaged.")


def _folders(parent: Path) -> list[tuple[int, Path]]:
    try:
        entries = list(parent.iterdir())
    except OSError:
        return []
    return [(int(match[1]), entry) for entry in entries if (match := _STEP.fullmatch(entry.name)) and entry.is_dir()]


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
