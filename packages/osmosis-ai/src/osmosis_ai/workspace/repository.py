"""The Git side of a workspace: where the work tree is, what it must hold, which repository it belongs to.

Owns: every `git` call of the command line. Reads only; nothing here changes a repository.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from osmosis_ai.errors import ValidationError, WorkspaceRequiredError

REQUIRED_DIRECTORIES = ("rollouts/", "configs/training/", "configs/eval/", "data/")
_GIT_TIMEOUT_S = 30
_IDENTITY = re.compile(r"[a-z0-9][a-z0-9-]*/[a-z0-9._-]+")
_SCP_LIKE = re.compile(r"(?:(?P<user>[^@/:]+)@)(?P<host>[^:/]+):(?P<path>.+)")


@dataclass(frozen=True, slots=True)
class Origin:
    """The remote a work tree belongs to.

    Attributes:
        identity: `owner/repo` in lower case.
        remote_url: The URL without credentials, query and fragment.
    """

    identity: str
    remote_url: str


@dataclass(frozen=True, slots=True)
class GitState:
    """What is checked out; None where unknown (no commit yet, detached head, no answer from git)."""

    head: str | None = None
    branch: str | None = None
    dirty: bool | None = None


def find_work_tree(start: Path | None = None) -> Path:
    """Root of the Git work tree around `start` (the current directory).

    Raises:
        WorkspaceRequiredError: Not inside a work tree, or git is not installed.
    """
    remedy = (
        "Run this command from an Osmosis workspace directory: a Git repository with rollouts/, configs/ and data/."
    )
    try:
        answer = _git("rev-parse", "--show-toplevel", cwd=start)
    except FileNotFoundError as error:
        if error.filename != "git":
            raise WorkspaceRequiredError(f"The current directory no longer exists. {remedy}") from None
        raise WorkspaceRequiredError("git is not on PATH; install it, then run the command again.") from None
    except (OSError, subprocess.SubprocessError) as error:
        raise WorkspaceRequiredError(f"git did not answer ({error}). {remedy}") from None
    if answer.returncode != 0 or not answer.stdout.strip():
        reason = answer.stderr.strip().splitlines()
        known = not reason or "not a git repository" in answer.stderr
        raise WorkspaceRequiredError(remedy if known else f"{remedy}\n  git says: {reason[0]}")
    return Path(answer.stdout.rstrip("\n"))


def require_directories(work_tree: Path) -> None:
    """Check that the work tree has the directories of a workspace.

    Raises:
        ValidationError: Some are missing; all are listed, with a command that makes them.
    """
    missing = [name for name in REQUIRED_DIRECTORIES if not (work_tree / name).is_dir()]
    if missing:
        listed = "\n".join(f"  - {name}" for name in missing)
        made = " ".join(name.rstrip("/") for name in missing)
        raise ValidationError(
            f"The workspace directory {work_tree} lacks required directories:\n{listed}\n\n"
            f"Make them in the repository's root: mkdir -p {made}"
        )


def read_origin(work_tree: Path) -> Origin:
    """The repository that `origin` names.

    Raises:
        ValidationError: There is no origin, or it is not a GitHub repository.
    """
    answer = _ask(work_tree, "config", "--get", "remote.origin.url")
    if not answer:
        raise ValidationError(
            "Set `origin` to the Platform-connected repository, or clone the repository from Platform."
        )
    return parse_origin(answer)


def find_origin(work_tree: Path) -> Origin | None:
    """`read_origin`, or None where a command can do without."""
    try:
        return read_origin(work_tree)
    except ValidationError:
        return None


def parse_origin(url: str) -> Origin:
    """Normalise a GitHub remote: https, ssh, git and scp-like forms, host without case, optional `.git`.

    Raises:
        ValidationError: It is not exactly `github.com` with an owner and a repository.
    """
    if re.search(r"[\s\x00-\x1f\x7f]", url):
        raise ValidationError("Git remote URL must not hold white space or control characters.")
    if "://" not in url and (scp := _SCP_LIKE.fullmatch(url)):
        scheme, host, path, shown_host = "ssh", scp["host"], "/" + scp["path"].lstrip("/"), scp["host"]
        user = scp["user"]
    else:
        try:
            parts = urlsplit(url)
            scheme, host, path = parts.scheme.lower(), parts.hostname or "", parts.path
            _ = parts.port  # raises when it is no number
        except ValueError:
            raise ValidationError("Git remote URL is malformed; check it with `git remote -v`.") from None
        shown_host = parts.netloc.rpartition("@")[2]
        user = parts.username if scheme == "ssh" else None
    if scheme not in ("https", "ssh", "git") or host.lower() != "github.com":
        raise ValidationError("Git remote URL must be hosted on github.com.")
    if re.search(r"%2f|%5c|\\", path, re.IGNORECASE):
        raise ValidationError("Git remote URL must not hold encoded or backward slashes.")
    repository = unquote(path.strip("/")).removesuffix(".git")
    if not _IDENTITY.fullmatch(repository.lower()) or repository.rsplit("/", 1)[-1] in (".", ".."):
        raise ValidationError("Git remote URL must name exactly an owner and a repository: github.com/<owner>/<repo>.")
    prefix = f"{user}@" if user else ""
    return Origin(repository.lower(), f"{scheme}://{prefix}{shown_host}{path}")


def read_git_state(work_tree: Path) -> GitState:
    """What is checked out in the work tree; never fails."""
    answer = _ask(work_tree, "status", "--porcelain=v2", "--branch", "--untracked-files=normal")
    if answer is None:
        return GitState()
    head = branch = None
    dirty = False
    for line in answer.splitlines():
        if line.startswith("# branch.oid "):
            head = None if line.endswith("(initial)") else line.rsplit(" ", 1)[-1]
        elif line.startswith("# branch.head "):
            branch = None if line.endswith("(detached)") else line.removeprefix("# branch.head ")
        elif not line.startswith("#"):
            dirty = True
    return GitState(head, branch, dirty)


def _ask(work_tree: Path, *arguments: str) -> str | None:
    """The answer of a git command, or None when it has none."""
    try:
        answer = _git(*arguments, cwd=work_tree)
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.rstrip("\n") if answer.returncode == 0 else None


def _git(*arguments: str, cwd: Path | None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", *arguments],
        cwd=cwd,
        env={**os.environ, "LC_ALL": "C"},  # its messages are compared
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        timeout=_GIT_TIMEOUT_S,
        check=False,
    )
