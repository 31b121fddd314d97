"""What engines write: saved states and exported folders, whole or not at all, checksummed, forced to the disk.

Leaves what is in them to the engines.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from osmosis_ai.errors import ConflictError, OsmosisError, ValidationError
from osmosis_ai.evaluation.atomic import storage_code, storage_error, sync_directory, write_atomic

from osmosis_trainer.engine.arrays import np
from osmosis_trainer.engine.weights import Array

_FORMAT = "osmosis-adapter-state-1"


def write_state(path: Path, tensors: Mapping[str, Array], facts: Mapping[str, Any]) -> None:
    """Write one file of arrays and facts; an older file of that name stays until the new one is safe.

    Args:
        path: Its directory is made if need be.
        tensors: Arrays by name.
        facts: JSON.

    Raises:
        OsmosisError: The disk is full or refuses.
    """
    from safetensors.numpy import save

    text = json.dumps(facts, sort_keys=True)
    # one entry: safetensors puts several in random order, and equal states are to be equal files
    metadata = {_FORMAT: json.dumps({"sha256": _digest(tensors, text), "facts": text})}
    data = save({name: np.ascontiguousarray(value) for name, value in tensors.items()}, metadata)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(path, error) from error
    write_atomic(path, data)


def read_state(path: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """Read what `write_state` wrote.

    Raises:
        ValidationError: The file is missing, torn, changed since, or something else.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}
    except FileNotFoundError as error:
        raise ValidationError(f"There is no saved state at {path}.") from error
    except (OSError, SafetensorError, ValueError) as error:
        raise ValidationError(
            f"{path} is corrupt: {error}. Delete it and load an earlier state.", details={"file": str(path)}
        ) from error
    if _FORMAT not in metadata:
        raise ValidationError(f"{path} is no saved state of an adapter, or of another version of osmosis-trainer.")
    try:
        stored = json.loads(metadata[_FORMAT])
        sound = stored["sha256"] == _digest(tensors, stored["facts"])
    except (ValueError, KeyError, TypeError, AttributeError):
        sound = False
    if not sound:
        raise ValidationError(
            f"{path} is corrupt: its checksum does not match its content. Delete it and load an earlier state.",
            details={"file": str(path)},
        )
    return tensors, json.loads(stored["facts"])


def write_folder(folder: Path, fill: Callable[[Path], None]) -> None:
    """Make a folder that appears whole: filled under another name, forced to the disk, renamed.

    Args:
        folder: Does not exist yet.
        fill: Writes the files into the folder it is given.

    Raises:
        ConflictError: The folder exists.
        OsmosisError: The disk is full or refuses.
    """
    if folder.exists():
        raise ConflictError(f"{folder} exists; choose a folder that does not.")
    from safetensors import SafetensorError

    temporary: Path | None = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".tmp", dir=folder.parent))
        fill(temporary)
        temporary.chmod(0o755)
        for path in temporary.iterdir():
            path.chmod(0o644)
            _sync_file(path)
        sync_directory(temporary)
        temporary.rename(folder)
        sync_directory(folder.parent)
    except OSError as error:
        raise storage_error(folder, error) from error
    except SafetensorError as error:  # what safetensors makes of the system's error
        raise OsmosisError(
            f"{folder} cannot be written: {error}. Check the disk and its free space, and try again.",
            details={"file": str(folder)},
            code=storage_code,
        ) from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file that people read."""
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _digest(tensors: Mapping[str, Array], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        value = np.ascontiguousarray(tensors[name])
        digest.update(f"\0{name}\0{value.dtype.str}\0{value.shape}\0".encode())
        digest.update(value.data)
    return digest.hexdigest()
