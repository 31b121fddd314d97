"""The lock of a run: one process at a time works on a run directory. Lock files are made once and never deleted."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from osmosis_ai.errors import ConflictError, OsmosisError
from osmosis_ai.evaluation.names import check_run_name, lock_directory


def lock_path(output_root: Path, name: str) -> Path:
    """Where the lock of run `name` lies: beside the run directories, so `--fresh` cannot move it away."""
    return output_root / lock_directory / f"{check_run_name(name)}.lock"


@contextmanager
def run_lock(output_root: Path, name: str) -> Generator[Path]:
    """Hold the lock of a run; the kernel releases it even when this process is killed.

    Yields:
        The lock file's path.

    Raises:
        ConflictError: Another process holds it.
        OsmosisError: The lock file cannot be made or the file system has no locks.
    """
    path = lock_path(output_root, name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Close-on-exec (Python's default) keeps the lock out of the rollout server: it must die with this process.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise _unusable(path, error) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise _unusable(path, error) from error
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            by = f" (process {holder})" if holder.isdigit() else ""
            raise ConflictError(
                f"Run '{name}' is in use by another process{by}. Wait for it to end, or choose another name with "
                "--name.",
                details={"run_name": name, "lock": str(path)},
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield path
    finally:
        os.close(descriptor)


def _unusable(path: Path, error: OSError) -> OsmosisError:
    return OsmosisError(
        f"The lock file {path} cannot be used: {error.strerror or error}. Check the directory's permissions, or choose "
        "another output root with --output.",
        details={"lock": str(path)},
    )
