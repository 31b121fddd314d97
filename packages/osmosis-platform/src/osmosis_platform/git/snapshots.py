"""Source snapshots: a tree as one object that workers unpack without git or credentials; same tree, same bytes."""

from __future__ import annotations

import io
import posixpath
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from osmosis_platform.db.repositories.repositories import RepositoryRepository
from osmosis_platform.db.repositories.snapshots import Snapshot, SnapshotRepository
from osmosis_platform.errors import InvalidRequestError, MissingError
from osmosis_platform.git import hosting, plumbing
from osmosis_platform.git.plumbing import Objects, RepositoryLimitError, TreeEntry

if TYPE_CHECKING:
    from osmosis_platform.services import Services

MAX_ENTRIES = 100_000
_LEVEL = 6
_DEPTH = 64
_LINK_LENGTH = 4096
_TIMEOUT_S = 900.0


class UnsafeSourceError(InvalidRequestError):
    """A tree holds what must not be unpacked anywhere: a link that leads out of it, or a name that does."""

    code = "SOURCE_UNSAFE"


def snapshot(services: Services, workspace_id: str, commit_sha: str) -> Snapshot:
    """The snapshot of a commit of the workspace's repository, made if no commit with the same tree had one.

    Files keep their executable bit; times, owners and modes are the same everywhere. Submodules are empty folders, files
    of Git LFS are their pointers, attributes such as export-ignore do nothing: the snapshot is the tree.

    Raises:
        MissingError: No such commit.
        UnsafeSourceError: A symbolic link leads out of the tree, or a name is unsafe.
        RepositoryLimitError: Too many or too large files.
    """
    with services.database.read() as work:
        repository = RepositoryRepository(work).find_connected(workspace_id)
    if repository is None:
        raise MissingError("The workspace is not connected to a repository.", code="GIT_REPOSITORY_NOT_CONNECTED")
    path = hosting.place(services.settings, repository.id)
    with plumbing.open_objects(path, timeout_s=_TIMEOUT_S) as objects:
        commit = objects.commit(commit_sha)
        if commit is None:
            raise MissingError(f"{repository.full_name} has no commit {commit_sha}.", code="COMMIT_NOT_FOUND")
        with services.database.read() as work:
            known = SnapshotRepository(work).find(workspace_id, commit.tree_sha)
        if known is not None:
            return known
        folder = services.settings.data_dir / "tmp"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix="snapshot-", suffix=".tar.zst") as file:
            archive(objects, commit.tree_sha, Path(file.name), max_bytes=services.settings.max_push_bytes)
            key = f"{workspace_id}/src/{commit.tree_sha}.tar.zst"
            stored = services.blobs.put_file(key, Path(file.name))
            size, digest = stored.size_bytes, stored.sha256 or _digest(Path(file.name))
    with services.database.write() as work:
        return SnapshotRepository(work).add(workspace_id, commit.tree_sha, key, size, digest)


def archive(objects: Objects, tree_sha: str, target: Path, *, max_bytes: int) -> None:
    """Writes a tree as tar, compressed with zstd.

    Args:
        objects: Of the repository.
        tree_sha: The tree.
        target: A file to write.
        max_bytes: Most bytes of all files together, uncompressed.

    Raises:
        UnsafeSourceError: See `snapshot`.
        RepositoryLimitError: See `snapshot`.
    """
    import zstandard

    left = max_bytes
    compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
    with (
        target.open("wb") as file,
        compressor.stream_writer(file, closefd=False) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as tar,
    ):
        for count, (path, entry) in enumerate(_walk(objects, tree_sha)):
            if count >= MAX_ENTRIES:
                message = f"The source has more than {MAX_ENTRIES} files and folders; keep data in datasets."
                raise RepositoryLimitError(message, code="SOURCE_TOO_MANY_FILES")
            member = tarfile.TarInfo(path)
            if entry.mode in ("040000", "160000"):
                member.type, member.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(member)
                continue
            found = objects.info(entry.sha)
            if found is None or found[1] != "blob":
                raise MissingError(f"The repository lacks the content of {path}; push it again.", code="OBJECT_MISSING")
            left -= found[2]
            if left < 0:
                message = f"The source is larger than {max_bytes} bytes; keep data in datasets, not in the repository."
                raise RepositoryLimitError(message, code="SOURCE_TOO_LARGE")
            if entry.mode == "120000":
                member.type, member.linkname = tarfile.SYMTYPE, _link(objects, path, entry, found[2])
                tar.addfile(member)
                continue
            member.size, member.mode = found[2], 0o755 if entry.mode == "100755" else 0o644
            tar.addfile(member, _Stream(objects.stream(entry.sha, found[2])))


def _walk(objects: Objects, tree_sha: str, folder: str = "", depth: int = 0) -> Iterator[tuple[str, TreeEntry]]:
    listed = objects.tree(tree_sha)
    if listed is None:
        raise MissingError(f"The repository lacks the folder {folder or '/'}; push it again.", code="OBJECT_MISSING")
    if depth > _DEPTH:
        raise RepositoryLimitError(f"Folders are nested deeper than {_DEPTH}: {folder}.", code="SOURCE_TOO_DEEP")
    for entry in listed[1]:
        name = entry.name
        if name in ("", ".", "..") or "/" in name or name.lower() in (".git", "git~1"):
            raise UnsafeSourceError(f"The source holds an unsafe name in {folder or '/'}; remove it from the branch.")
        path = f"{folder}{name}"
        yield path, entry
        if entry.mode == "040000":
            yield from _walk(objects, entry.sha, f"{path}/", depth + 1)


def _link(objects: Objects, path: str, entry: TreeEntry, size: int) -> str:
    content = objects.blob(entry.sha, max_bytes=_LINK_LENGTH) if size <= _LINK_LENGTH else None
    target = (content or b"").decode("utf-8", "surrogateescape")
    landed = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    if not target or "\0" in target or target.startswith("/") or landed == ".." or landed.startswith("../"):
        shown = path.encode("utf-8", "replace").decode()
        message = f"The symbolic link {shown} leads out of the repository; replace it by a file, or remove it."
        raise UnsafeSourceError(message, details={"path": shown})
    return target


def _digest(path: Path) -> str:
    import hashlib

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class _Stream(io.RawIOBase):
    """Pieces as a file that tarfile reads."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._rest = pieces, b""

    def read(self, size: int = -1) -> bytes:
        parts, wanted = [], size
        while wanted:
            if not self._rest:
                self._rest = next(self._pieces, b"")
                if not self._rest:
                    break
            part, self._rest = self._rest[:wanted], self._rest[wanted:]
            parts.append(part)
            wanted -= len(part)
        return b"".join(parts)
