"""Writing into a work tree only where the user can see it: through real folders, over plain files, never along a link.

Owns the refusals and the writing of one file. Which files are written is their owners' business (scaffold, recipes,
checkup).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from osmosis_ai.errors import ConflictError


def refuse_links(work_tree: Path, path: str) -> None:
    """A link on the way would make us write, or delete, somewhere else.

    Args:
        work_tree: The repository's root.
        path: A POSIX path relative to it.

    Raises:
        ConflictError: `path` or a folder above it is a symbolic link.
    """
    parts = Path(path).parts
    for depth in range(1, len(parts) + 1):
        step = work_tree.joinpath(*parts[:depth])
        if step.is_symlink():
            shown = step.relative_to(work_tree).as_posix()
            raise ConflictError(f"{shown} is a symbolic link: files are written only to real folders; remove the link")


def refuse_odd_targets(work_tree: Path, folders: Iterable[str], files: Iterable[str]) -> None:
    """Check that what has to be a folder or a plain file is one, where it exists.

    Raises:
        ConflictError: Something else is there.
    """
    for path in folders:
        target = work_tree / path
        if present(target) and not target.is_dir():
            raise ConflictError(f"{path} is not a folder: move it out of the way")
    for path in files:
        target = work_tree / path
        if present(target) and not stat.S_ISREG(target.lstat().st_mode):
            raise ConflictError(f"{path} is not a plain file: move it out of the way")


def present(path: Path) -> bool:
    """Whether anything is there, a dangling link included."""
    return os.path.lexists(path)


def write_file(target: Path, content: bytes) -> None:
    """Write a file, replacing its content; a link that appeared meanwhile is refused by the system."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    with os.fdopen(os.open(target, flags, 0o666), "wb") as file:
        file.write(content)
