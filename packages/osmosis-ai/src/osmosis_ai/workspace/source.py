"""The digest of a source tree: which files make up a rollout, and one SHA-256 that names their content.

The published package computes the same value, so a run made by either is recognised by the other.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from osmosis_ai.errors import ValidationError

EXCLUDE_DIRS = frozenset(
    {".git", ".pytest_cache", ".ruff_cache", ".venv", "__pycache__", "build", "dist", "node_modules", "venv"}
)
EXCLUDE_PATTERNS = ("uv.lock", "*.egg-info")
_chunk_bytes = 1 << 20


class SourceError(ValidationError, ValueError):
    """A source tree holds a link that the digest cannot cover, or a file that cannot be read."""


def iter_source_files(root: Path, *, exclude: Path | None = None) -> Iterator[Path]:
    """Every regular file (or link to one) under `root` that counts as source, in no order.

    Args:
        root: The tree; a missing one has no files.
        exclude: A directory inside it that does not count, such as the output root.
    """
    for directory, names, files in os.walk(root):
        here = Path(directory)
        names[:] = [name for name in names if _counts(here / name, exclude)]
        for name in files:
            path = here / name
            if _counts(path, exclude) and path.is_file():
                yield path


def reject_directory_symlinks(root: Path, *, exclude: Path | None = None, label: str = "source") -> None:
    """Refuse links the digest would pass over: to directories, and to nothing.

    Raises:
        SourceError: Names the link, where it points and what to do.
    """
    for directory, names, files in os.walk(root):
        here = Path(directory)
        names[:] = [name for name in names if _counts(here / name, exclude)]
        for path in (here / name for name in (*names, *files)):
            if path.is_symlink() and _counts(path, exclude) and not path.is_file():
                raise SourceError(
                    f"{label} contains a directory or broken symlink: {path} -> {path.readlink()}; replace it with a "
                    "real directory or file, so that the digest covers what runs"
                )


def source_digest(root: Path, *, extra: str = "", exclude: Path | None = None) -> str:
    """The SHA-256 of a source tree: for each file, sorted, its relative path and then its bytes.

    Args:
        root: The tree.
        extra: Text that is hashed first.
        exclude: A directory inside it that does not count.

    Raises:
        SourceError: A file cannot be read.
    """
    digest = hashlib.sha256(extra.encode())
    for path in sorted(iter_source_files(root, exclude=exclude)):
        digest.update(path.relative_to(root).as_posix().encode("utf-8", "surrogateescape"))
        try:
            with path.open("rb") as stream:
                while chunk := stream.read(_chunk_bytes):
                    digest.update(chunk)
        except OSError as error:
            raise SourceError(f"{path} cannot be read: {error.strerror}. Check its permissions.") from error
    return digest.hexdigest()


def _counts(path: Path, exclude: Path | None) -> bool:
    """Whether a path is neither excluded nor named like something that is never source."""
    name = path.name
    if name in EXCLUDE_DIRS or any(fnmatchcase(name, pattern) for pattern in EXCLUDE_PATTERNS):
        return False
    return exclude is None or path != exclude
