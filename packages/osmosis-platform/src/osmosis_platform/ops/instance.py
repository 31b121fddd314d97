"""The data directory of one running platform: made, owned, locked, and where it says how it can be reached."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from osmosis_platform.errors import TakenError, UnavailableError
from osmosis_platform.settings import Settings

LOCK = "instance.lock"
URL_FILE = "instance.url"


class Instance:
    """Holds the lock of a data directory while a platform runs on it.

    Args:
        settings: What the administrator set.
    """

    def __init__(self, settings: Settings) -> None:
        self.directory = settings.data_dir
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Makes the directory (mode 700) and takes its lock; children inherit it, so that none of them outlives it unseen.

        Raises:
            TakenError: Another platform runs on this directory.
            UnavailableError: The directory cannot be made or written.
        """
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self.directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise UnavailableError(
                f"The data directory {self.directory} cannot be used: {error.strerror}. "
                "Choose another with --data-dir, or mend its owner and mode.",
                code="DATA_DIR",
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(self.directory / LOCK)
            os.close(descriptor)
            raise TakenError(
                f"A platform already runs on {self.directory}{holder}. Stop it first, or choose another --data-dir.",
                code="ALREADY_RUNNING",
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._descriptor = descriptor

    def release(self) -> None:
        """Gives the lock back."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _holder(path: Path) -> str:
    try:
        return f" (process {int(path.read_text())})"
    except (OSError, ValueError):
        return ""


def write_url(settings: Settings) -> None:
    """Notes how the running platform is reached, and its certificate, for commands on the same machine."""
    path = settings.data_dir / URL_FILE
    temporary = path.with_suffix(".tmp")
    temporary.write_text(f"{settings.base_url}\n{settings.tls_cert or ''}\n", encoding="utf-8")
    temporary.replace(path)


def read_url(settings: Settings) -> str | None:
    """How the platform of this data directory was reached last."""
    return _noted(settings, 0)


def read_certificate(settings: Settings) -> Path | None:
    """The certificate chain that it showed; None if it spoke plain http."""
    found = _noted(settings, 1)
    return None if found is None else Path(found)


def _noted(settings: Settings, line: int) -> str | None:
    try:
        lines = (settings.data_dir / URL_FILE).read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return lines[line].strip() or None if line < len(lines) else None
