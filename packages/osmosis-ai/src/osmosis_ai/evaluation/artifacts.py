"""Copies of what an attempt left behind: its trajectory and its artifact files, safe to show and to hand on.

The originals under rollout_trials/ are never changed. What cannot be copied safely (links, devices, names no other
system can hold) is left out and named.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from osmosis_ai.evaluation.atomic import write_atomic
from osmosis_ai.evaluation.jsontext import printable
from osmosis_ai.evaluation.verdict import ItemKey

trials_name = "rollout_trials"
trajectory_name = "trajectory.json"
artifacts_name = "artifacts"
max_path_chars = 1024
_control = re.compile(r"[\x00-\x1f\x7f\\]")
_reserved = re.compile(r"(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(?:\..*)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Trajectory:
    """A trajectory that belongs to the attempt it was found under.

    Attributes:
        tokens: Prompt plus completion tokens of its final metrics, when it states them.
    """

    data: bytes
    tokens: int | None


def item_name(key: ItemKey) -> str:
    """How an item's copies are called: `row_R_run_K`."""
    return f"row_{key[0]}_run_{key[1]}"


def read_trajectory(run_dir: Path, rollout_id: str) -> Trajectory | None:
    """Read an attempt's trajectory; None when there is none, it does not parse or it is another rollout's."""
    from osmosis_ai.rollout.trajectory.atif import total_tokens, trajectory_identity

    path = run_dir / trials_name / rollout_id / trajectory_name
    try:
        with os.fdopen(_open_regular(path), "rb") as stream:
            data = stream.read()
        document = json.loads(data)
    except (OSError, ValueError, RecursionError):
        return None
    if trajectory_identity(document) != rollout_id:
        return None
    return Trajectory(data, total_tokens(document))


def write_trajectory(run_dir: Path, key: ItemKey, trajectory: Trajectory | None) -> None:
    """Make trajectories/row_R_run_K.json the copy of this trajectory; without one there is no file.

    Raises:
        OsmosisError: The disk is full or refuses.
    """
    target = run_dir / "trajectories" / f"{item_name(key)}.json"
    if trajectory is None:
        target.unlink(missing_ok=True)
        return
    target.parent.mkdir(exist_ok=True)
    write_atomic(target, trajectory.data, durable=False)


def copy_artifacts(run_dir: Path, key: ItemKey, rollout_id: str, warn: Callable[[str], None]) -> bool:
    """Make artifacts/row_R_run_K/ the copy of an attempt's artifacts; without files there is no directory.

    Args:
        run_dir: The run's directory.
        key: The item.
        rollout_id: The attempt whose artifacts count.
        warn: Told once, with all that was left out.

    Returns:
        Whether there is a copy.

    Raises:
        OSError: The disk is full or refuses.
    """
    source = run_dir / trials_name / rollout_id / artifacts_name
    target = run_dir / artifacts_name / item_name(key)
    left_out: list[str] = []
    scratch: Path | None = None
    copied = False
    try:
        for path, relative in _safe_files(source, left_out):
            if scratch is None:
                target.parent.mkdir(exist_ok=True)
                scratch = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
                scratch.mkdir()
            copied |= _copy(path, scratch / relative, relative, left_out)
        if target.is_symlink():
            target.unlink()
        elif target.exists():
            shutil.rmtree(target)
        if copied and scratch is not None:
            scratch.rename(target)
            scratch = None
    finally:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)
    if left_out:
        shown = ", ".join(left_out[:5]) + (f" and {len(left_out) - 5} more" if len(left_out) > 5 else "")
        warn(printable(f"Artifacts of row {key[0]}, run {key[1]} ({source}): left out {shown}."))
    return copied


def clear_scratch(run_dir: Path) -> None:
    """Remove what copies that were cut off left behind."""
    for path in (run_dir / artifacts_name).glob(".row_*.tmp"):
        shutil.rmtree(path, ignore_errors=True)
    for directory in (run_dir, run_dir / "trajectories"):
        for path in directory.glob(".*.tmp"):
            if path.is_file() and not path.is_symlink():
                path.unlink(missing_ok=True)


def _safe_files(root: Path, left_out: list[str]) -> Iterator[tuple[Path, str]]:
    """Regular files under `root` with their relative POSIX paths, links never followed."""
    trial = root.parent
    if root.is_symlink() or trial.is_symlink():
        left_out.append(f"everything ({root if root.is_symlink() else trial} is a symlink)")
        return
    if not root.is_dir():
        return
    stack = [(root, "")]
    while stack:
        directory, prefix = stack.pop()
        try:
            entries = sorted(os.scandir(directory), key=lambda entry: entry.name, reverse=True)
        except OSError as error:
            left_out.append(f"{prefix or root} ({error.strerror})")
            continue
        subdirectories: list[tuple[Path, str]] = []
        for entry in reversed(entries):
            relative = prefix + entry.name
            if relative == "manifest.json":
                continue
            if reason := _unsafe(entry, relative):
                left_out.append(f"{relative[:80]!r} ({reason})")
            elif entry.is_dir(follow_symlinks=False):
                subdirectories.append((Path(entry.path), f"{relative}/"))
            else:
                yield Path(entry.path), relative
        stack.extend(reversed(subdirectories))


def _unsafe(entry: os.DirEntry[str], relative: str) -> str | None:
    if entry.is_symlink():
        return "symlink"
    if not entry.is_dir(follow_symlinks=False) and not entry.is_file(follow_symlinks=False):
        return "no regular file"
    if len(relative) > max_path_chars:
        return f"path of {len(relative)} characters"
    if _control.search(entry.name) or not entry.name.isprintable():
        return "control character or backslash in its name"
    if _reserved.fullmatch(entry.name) or entry.name[-1] in " .":
        return "reserved name"
    return None


def _copy(path: Path, target: Path, relative: str, left_out: list[str]) -> bool:
    try:
        source = os.fdopen(_open_regular(path), "rb")
    except OSError as error:
        left_out.append(f"{relative[:80]!r} ({error.strerror})")
        return False
    with source:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as copy:
            shutil.copyfileobj(source, copy, 1 << 20)
    return True


def _open_regular(path: Path) -> int:
    """Open a regular file without following a link at its end and without waiting for a pipe's writer."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, "no regular file", str(path))
    return descriptor
