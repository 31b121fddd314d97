"""Repositories on this machine's disk: where they lie, how a hosted one is made, and that the disk follows the database.

The row is the truth. A hosted repository is made from the workspace template when it is first needed and has never been
synced, in a folder of another name that is renamed when it is whole; so a kill at any moment leaves either nothing or all
of it, and whoever comes next makes it. Remotes are mirrored by git/remote.py into the same place.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from osmosis_platform import crashpoints
from osmosis_platform.db.database import UnitOfWork
from osmosis_platform.db.repositories.repositories import Repository, RepositoryIndex, RepositoryRepository
from osmosis_platform.errors import UnavailableError
from osmosis_platform.git.command import run
from osmosis_platform.ids import new_id

if TYPE_CHECKING:
    from osmosis_platform.services import Services
    from osmosis_platform.settings import Settings

log = structlog.get_logger(__name__)

DEFAULT_BRANCH = "main"
_NOT_COPIED = frozenset({"__pycache__", ".venv", ".git", "scaffold"})
_BUILDING = ".building-"
_ABANDONED_S = 7200.0  # longer than a push or a fetch may take
_LOCK_WAIT_S = 120.0


class RepositoryLostError(UnavailableError):
    """A hosted repository that was used is not on the disk any more."""

    code = "REPOSITORY_LOST"


def root(settings: Settings) -> Path:
    """The folder of all repositories."""
    return settings.data_dir / "repositories"


def place(settings: Settings, repository_id: str) -> Path:
    """Where a repository lies; by id, so that no rename moves it."""
    return root(settings) / f"{repository_id}.git"


def hosted_name(workspace_name: str) -> str:
    """What a workspace's repository is called: the name itself, with what URLs and clients do not take made hyphens."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", workspace_name).strip("-")[:64].strip("-")
    return name or "workspace"


def create_hosted(
    services: Services, work: UnitOfWork, workspace_id: str, workspace_name: str, user_id: str
) -> Repository:
    """Gives a workspace its hosted repository, with a first commit made from the workspace template on `main`.

    The row is written in the caller's transaction; the files come once it is committed, or when they are first needed.

    Args:
        services: Of this process.
        work: The transaction that makes the workspace.
        workspace_id: Whose it is.
        workspace_name: Full name and identity are `name/name`.
        user_id: Who made the workspace.
    """
    name = hosted_name(workspace_name)
    candidate, count, index = name, 1, RepositoryIndex(work)
    index.lock_names()
    while index.identity_is_hosted(f"{candidate}/{candidate}".lower()):
        count += 1
        candidate = f"{name}-{count}"
    values = {
        "id": new_id("re"),
        "kind": "hosted",
        "full_name": f"{candidate}/{candidate}",
        "identity": f"{candidate}/{candidate}".lower(),
        "default_branch": DEFAULT_BRANCH,
        "created_by": user_id,
    }
    repository = RepositoryRepository(work).add(workspace_id, values)
    work.after_commit(lambda: _make_now(services, repository))
    return repository


def _make_now(services: Services, repository: Repository) -> None:
    """Makes the files and looks at them. A failure is no fault of the caller's: whoever needs them tries again."""
    from osmosis_platform.git.sync import sync_now

    crashpoints.reach("git.before-create")
    try:
        sync_now(services, repository.workspace_id, repository.id, "connect")
    except Exception as error:
        log.warning("repository not made yet", repository=repository.id, cause=str(error))


def ensure(services: Services, repository: Repository) -> Path:
    """The hosted repository on the disk, made if it never was.

    Raises:
        RepositoryLostError: It was used before and is gone.
        UnavailableError: git is missing.
    """
    path = place(services.settings, repository.id)
    if path.is_dir():
        return path
    if repository.last_synced_at is not None:
        raise RepositoryLostError(
            f"The repository {repository.full_name} is missing from the platform's disk ({path.name}); an administrator "
            "must restore the folder `repositories` of the data directory from a backup."
        )
    root(services.settings).mkdir(mode=0o700, parents=True, exist_ok=True)
    building = path.with_name(f"{_BUILDING}{path.name}-{os.getpid()}-{time.monotonic_ns()}")
    try:
        init(building)
        _import_template(building, repository)
        crashpoints.reach("git.before-rename")
        building.rename(path)
    except OSError as error:
        # Another thread or process made it first: theirs is whole as well.
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or not path.is_dir():
            raise
    finally:
        shutil.rmtree(building, ignore_errors=True)
    sync_directory(path.parent)
    return path


def forget(settings: Settings, repository_id: str) -> None:
    """Removes a repository from the disk, for good."""
    path = place(settings, repository_id)
    if path.is_dir():
        gone = path.with_name(f"{_BUILDING}{path.name}-gone")  # half deleted it is no repository, and the sweep ends it
        shutil.rmtree(gone, ignore_errors=True)
        path.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)
    path.with_suffix(".lock").unlink(missing_ok=True)


def init(path: Path) -> None:
    """An empty bare repository."""
    run(["init", "--quiet", "--bare", "--template=", f"--initial-branch={DEFAULT_BRANCH}", str(path)])
    path.chmod(0o700)


def sync_directory(path: Path) -> None:
    """Makes names in a folder last through a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _import_template(path: Path, repository: Repository) -> None:
    from osmosis_ai.workspace.template_source import open_template

    moment = int(repository.created_at.timestamp())
    who = f"Osmosis <osmosis@localhost> {moment} +0000"
    message = b"Start from the workspace template"
    with open_template(os.environ) as source:
        stream = bytearray(f"commit refs/heads/{DEFAULT_BRANCH}\nauthor {who}\ncommitter {who}\n".encode())
        stream += b"data %d\n%s\n" % (len(message), message)
        for name, mode, content in _template_files(source.root):
            stream += f"M {mode} inline {_quoted(name)}\n".encode() + b"data %d\n%s\n" % (len(content), content)
    stream += b"done\n"
    # One pack instead of a file for each object: one fsync instead of sixty.
    run(["fast-import", "--quiet", "--done"], repository=path, input=bytes(stream), config=["fastimport.unpackLimit=1"])


def _template_files(folder: Path) -> Iterator[tuple[str, str, bytes]]:
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if path.is_file() and not path.is_symlink() and not _NOT_COPIED.intersection(relative.parts):
            mode = "100755" if os.access(path, os.X_OK) else "100644"
            yield relative.as_posix(), mode, path.read_bytes()


def _quoted(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


@contextmanager
def locked(settings: Settings, repository_id: str, *, wait_s: float = _LOCK_WAIT_S) -> Generator[None]:
    """One sync or fetch of a repository at a time, whichever process of this machine does it. A kill gives it back.

    Raises:
        UnavailableError: Another one holds it for too long.
    """
    root(settings).mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(root(settings) / f"{repository_id}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + wait_s
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    message = "The repository is being synced by another process; try again in a moment."
                    raise UnavailableError(message, code="REPOSITORY_BUSY") from None
                time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)


def reconcile(services: Services) -> int:
    """Brings disk and rows together after a kill: makes what is missing, syncs what was pushed and not noted, sweeps.

    Returns:
        How many repositories were synced.
    """
    from osmosis_platform.git.sync import is_behind, sync_now

    _sweep(root(services.settings))
    with services.database.read() as work:
        hosted = [found for found in RepositoryIndex(work).connected() if found.kind == "hosted"]
    synced = 0
    for repository in hosted:
        try:
            ensure(services, repository)
            if is_behind(services, repository):
                sync_now(services, repository.workspace_id, repository.id, "poll")
                synced += 1
        except Exception as error:  # one repository must not keep the poll from the others
            log.warning("repository not reconciled", repository=repository.id, cause=str(error))
    return synced


def _sweep(folder: Path) -> None:
    """Removes what a killed process left half made: repositories, pushes that were arriving, packs of fetches."""
    for pattern in (f"{_BUILDING}*", "*.git/objects/*incoming-*", "*.git/objects/pack/tmp_*"):
        for path in folder.glob(pattern):
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > _ABANDONED_S:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
