"""Reading bare repositories with git's plumbing: branches, trees, blobs, commits. Never a checkout; names are data."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from osmosis_platform.errors import ServiceError
from osmosis_platform.git.command import GitCommandError, run, started

MAX_BRANCHES = 10_000
MAX_BRANCH_NAME = 250
MAX_TREE_ENTRIES = 10_000
MAX_COMMIT_BYTES = 1 << 20
_HEX = re.compile(r"[0-9a-f]{40}")
_PERSON = re.compile(r"(.*?) ?<([^>]*)> \d+ [+-]\d{4}")
_SUBJECT_LENGTH = 500


class RepositoryLimitError(ServiceError):
    """A repository is beyond what a sync or a snapshot takes; `code` says which limit."""

    status = 400
    code = "REPOSITORY_OVER_LIMIT"


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """An entry of a tree.

    Attributes:
        mode: As git has it, for example `040000`, `100644`, `120000` (symbolic link), `160000` (submodule).
        name: The bytes of the name as text, surrogates for what is no UTF-8.
    """

    mode: str
    name: str
    sha: str


@dataclass(frozen=True, slots=True)
class Commit:
    """What a commit says.

    Attributes:
        author: Name, or e-mail where there is no name.
        subject: First line of its message.
    """

    sha: str
    tree_sha: str
    author: str
    subject: str


class Objects:
    """Objects of a repository through one `git cat-file` process."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._in: IO[bytes] = process.stdin
        self._out: IO[bytes] = process.stdout

    def info(self, name: str) -> tuple[str, str, int] | None:
        """Id, type and size of an object, by its id or an expression such as `<id>:rollouts`; None if it is missing."""
        return self._ask("info", name)

    def tree(self, name: str) -> tuple[str, list[TreeEntry]] | None:
        """A tree's id and entries, in git's order; None if there is no tree of that name.

        Raises:
            RepositoryLimitError: It has too many entries.
        """
        found = self._ask("info", name)
        if found is None or found[1] != "tree":
            return None
        if found[2] > MAX_TREE_ENTRIES * 300:
            raise _too_many_entries(name)
        content = self._contents(found[0])
        entries: list[TreeEntry] = []
        at = 0
        while at < len(content):
            end = content.index(b"\0", at)
            mode, _, raw = content[at:end].partition(b" ")
            name_text = raw.decode("utf-8", "surrogateescape")
            entries.append(TreeEntry(mode.decode().zfill(6), name_text, content[end + 1 : end + 21].hex()))
            at = end + 21
        if len(entries) > MAX_TREE_ENTRIES:
            raise _too_many_entries(name)
        return found[0], entries

    def commit(self, name: str) -> Commit | None:
        """A commit; None if it is missing or something else."""
        found = self._ask("info", name)
        if found is None or found[1] != "commit" or found[2] > MAX_COMMIT_BYTES:
            return None
        head, _, message = self._contents(found[0]).decode("utf-8", "replace").partition("\n\n")
        facts = dict(line.partition(" ")[::2] for line in reversed(head.split("\n")) if not line.startswith(" "))
        person = _PERSON.fullmatch(facts.get("author", ""))
        author = (person[1] or person[2]) if person else facts.get("author", "")
        lines = message.strip().splitlines()
        return Commit(found[0], facts.get("tree", ""), _shown(author), _shown(lines[0] if lines else ""))

    def blob(self, sha: str, *, max_bytes: int) -> bytes | None:
        """A blob's content; None if it is larger, missing or something else."""
        found = self._ask("info", sha)
        if found is None or found[1] != "blob" or found[2] > max_bytes:
            return None
        return self._contents(sha)

    def stream(self, sha: str, size: int, *, chunk: int = 1 << 20) -> Iterator[bytes]:
        """The content of a blob in pieces; all of them must be taken."""
        self._request("contents", sha)
        left = size
        if not left:
            self._out.read(1)
        while left:
            piece = self._out.read(min(chunk, left))
            if not piece:
                raise EOFError("git cat-file ended early")
            left -= len(piece)
            if not left:
                self._out.read(1)  # before the last piece is given: nobody asks for one more
            yield piece

    def _contents(self, sha: str) -> bytes:
        size = self._request("contents", sha)
        content = self._out.read(size)
        if len(content) != size:
            raise EOFError("git cat-file ended early")
        self._out.read(1)
        return content

    def _request(self, verb: str, sha: str) -> int:
        found = self._ask(verb, sha)
        if found is None:
            raise GitCommandError(f"The repository lacks the object {sha}; it may be damaged.", code="OBJECT_MISSING")
        return found[2]

    def _ask(self, verb: str, name: str) -> tuple[str, str, int] | None:
        if "\n" in name:
            return None
        self._in.write(f"{verb} {name}\n".encode("utf-8", "surrogateescape"))
        self._in.flush()
        answer = self._out.readline().decode("utf-8", "surrogateescape").rstrip("\n")
        if not answer:
            raise EOFError("git cat-file ended early")
        parts = answer.split(" ")
        if len(parts) == 3 and _HEX.fullmatch(parts[0]) and parts[2].isdigit():
            return parts[0], parts[1], int(parts[2])
        return None


@contextmanager
def open_objects(repository: Path, *, timeout_s: float = 120.0) -> Generator[Objects]:
    """The objects of a repository for as long as the block runs.

    Raises:
        GitCommandError: git failed or took too long.
    """
    try:
        with started(
            ["cat-file", "--batch-command"], repository=repository, stdin=subprocess.PIPE, timeout_s=timeout_s
        ) as process:
            yield Objects(process)
    except (EOFError, BrokenPipeError) as error:
        raise GitCommandError(f"The repository cannot be read: {error}.", code="REPOSITORY_DAMAGED") from error


def branches(repository: Path) -> dict[str, str]:
    """Every branch and its commit, the most recently committed first.

    Raises:
        RepositoryLimitError: More than `MAX_BRANCHES`, or a name of more than `MAX_BRANCH_NAME` characters.
        GitCommandError: The repository cannot be read.
    """
    output = run(
        [
            "for-each-ref",
            f"--count={MAX_BRANCHES + 1}",
            "--format=%(objectname) %(objecttype) %(refname)",
            "refs/heads",
        ],
        repository=repository,
    )
    found: dict[str, str] = {}
    for line in output.decode("utf-8", "surrogateescape").split("\n")[:-1]:  # names hold other ends of lines
        sha, kind, name = line.split(" ", 2)
        name = _shown(name.removeprefix("refs/heads/"), None)
        if len(name) > MAX_BRANCH_NAME:
            message = (
                f"The branch {name[:60]}... has a name of {len(name)} characters, at most {MAX_BRANCH_NAME} are taken"
            )
            raise RepositoryLimitError(f"{message}. Rename or delete it, then sync again.", code="BRANCH_NAME_TOO_LONG")
        if kind == "commit":
            found[name] = sha
    if len(found) > MAX_BRANCHES:
        message = f"The repository has more than {MAX_BRANCHES} branches; delete some, then sync again."
        raise RepositoryLimitError(message, code="TOO_MANY_BRANCHES")
    return found


def matching_commits(repository: Path, prefix: str) -> list[str]:
    """Full ids of the commits that begin with 4 to 40 hex digits."""
    output = run(["rev-parse", f"--disambiguate={prefix}"], repository=repository, accept=(0, 128))
    names = output.decode().split()
    with open_objects(repository) as objects:
        return [name for name in names if (found := objects.info(name)) is not None and found[1] == "commit"]


def head_branch(repository: Path) -> str | None:
    """What the repository's HEAD points at, also before the branch exists."""
    output = run(["symbolic-ref", "--quiet", "HEAD"], repository=repository, accept=(0, 1, 128))
    name = output.decode("utf-8", "replace").strip()
    return name.removeprefix("refs/heads/") if name.startswith("refs/heads/") else None


def point_head(repository: Path, branch: str) -> None:
    """Lets clones check out a branch, and git refuse its deletion."""
    if head_branch(repository) != branch:
        run(["symbolic-ref", "HEAD", f"refs/heads/{branch}"], repository=repository)


def size_bytes(repository: Path) -> int:
    """What the repository takes on the disk."""
    return sum(file.lstat().st_size for file in repository.rglob("*") if file.is_file())


def _shown(text: str, length: int | None = _SUBJECT_LENGTH) -> str:
    """Text that databases and JSON take: no surrogates, no NUL."""
    return text.encode("utf-8", "replace").decode().replace("\0", "")[:length]


def _too_many_entries(name: str) -> RepositoryLimitError:
    return RepositoryLimitError(
        f"The folder {name.rpartition(':')[2] or '/'} has more than {MAX_TREE_ENTRIES} entries; split it up.",
        code="TREE_TOO_LARGE",
    )
