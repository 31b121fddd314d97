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
_HOSTED = re.compile(r"(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::\d+)?(?:/[a-z0-9._~-]+)+")
_SCHEMES = ("https", "ssh", "git", "http")
_SCP_LIKE = re.compile(r"(?:(?P<user>[^@/:]+)@)(?P<host>[^:/]+):(?P<path>.+)")


@dataclass(frozen=True, slots=True)
class Origin:
    """The remote a work tree belongs to.

    Attributes:
        identity: `owner/repo` in lower case; with the host in front where that is not github.com.
        remote_url: The URL without credentials, query and fragment.
    """

    identity: str
    remote_url: str


@dataclass(frozen=True, slots=True)
class GitState:
    """What is checked out; None where unknown (no commit yet, detached head, no answer from git).

    Attributes:
        head: The commit, in full.
        branch: The branch.
        dirty: Whether anything is changed or untracked.
        upstream: The remote branch that it follows, such as `origin/main`; None when it follows none.
        ahead: Commits that the upstream lacks.
    """

    head: str | None = None
    branch: str | None = None
    dirty: bool | None = None
    upstream: str | None = None
    ahead: int | None = None


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
        known = not reason or "not a git repository (or any" in answer.stderr
        place = Path.cwd() / (start or "")
        here = f"{place} is in no Git repository; if it is your workspace, run `git init` in its root."
        raise WorkspaceRequiredError(f"{remedy}\n{here}" if known else f"{remedy}\n  git says: {reason[0]}")
    return Path(answer.stdout.rstrip("\n"))


def require_directories(work_tree: Path) -> None:
    """Check that the work tree has the directories of a workspace.

    Raises:
        ValidationError: Some are missing; all are listed, with a command that makes them.
    """
    missing = [name for name in REQUIRED_DIRECTORIES if not (work_tree / name).is_dir()]
    if missing:
        listed = "\n".join(f"  - {name}" for name in missing)
        raise ValidationError(
            f"The workspace directory {work_tree} lacks required directories:\n{listed}\n\n"
            "Create them with: osmosis doctor --fix"
        )


def read_origin(work_tree: Path, *, any_host: bool = False) -> Origin:
    """The repository that `origin` names.

    Args:
        work_tree: Root of the work tree.
        any_host: Whether other hosts than github.com will do, see `parse_origin`.

    Raises:
        ValidationError: There is no origin, or it is not a repository of a host that will do.
    """
    answer = _ask(work_tree, "config", "--get", "remote.origin.url")
    if not answer:
        raise ValidationError(
            f"The repository {work_tree} has no remote `origin`, so its workspace is not known. Set it to the repository"
            " that the workspace is connected to (git remote add origin URL), or name the workspace: osmosis --workspace"
            " NAME ... (not for commands that work on files of the repository)."
        )
    try:
        return parse_origin(answer, any_host=any_host)
    except ValidationError as error:
        written_out = _ask(work_tree, "remote", "get-url", "origin")  # a short form of the user's, by url.*.insteadOf
        if written_out and written_out != answer:
            return parse_origin(written_out, any_host=any_host)
        raise ValidationError(f"{error.message}\n  {work_tree} has the origin {without_login(answer)!r}") from None


def without_login(url: str) -> str:
    """A URL that may be shown: without user, password and query; only its beginning where these cannot be told."""
    beginning = re.match(r"[A-Za-z][A-Za-z0-9+.-]*://|", url)
    scheme = beginning[0] if beginning else ""
    authority, slash, path = url.removeprefix(scheme).partition("/")
    if scheme == "file://" and not authority:
        return url
    shown = "..." if "@" in path else re.split(r"[?#]", authority.rpartition("@")[2] + slash + path)[0]
    return f"{scheme}{shown}"


def has_origin(work_tree: Path) -> bool:
    """Whether the repository has an `origin` at all, suitable or not."""
    return bool(_ask(work_tree, "config", "--get", "remote.origin.url"))


def find_origin(work_tree: Path, *, any_host: bool = False) -> Origin | None:
    """`read_origin`, or None where a command can do without."""
    try:
        return read_origin(work_tree, any_host=any_host)
    except ValidationError:
        return None


def parse_origin(url: str, *, any_host: bool = False) -> Origin:
    """Normalise a remote: https, ssh, git and scp-like forms, host without case, optional `.git`.

    Args:
        url: As git has it.
        any_host: Take other hosts than github.com too; their identity is `host[:port]/path`, all in lower case.

    Raises:
        ValidationError: It is not `github.com` with an owner and a repository, or no repository of any host.
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
    on_github = host.lower() == "github.com"
    if scheme not in (("https", "ssh", "git") if on_github or not any_host else _SCHEMES) or not host:
        raise ValidationError("Git remote URL must be an https, ssh or git URL of a host; see `git remote -v`.")
    if not on_github and not any_host:
        raise ValidationError(
            "Git remote URL must be hosted on github.com, which is what the platform connects. Set `origin` to such a"
            " repository, or choose a platform that hosts others (OSMOSIS_PLATFORM_URL or --platform)."
        )
    if re.search(r"%2f|%5c|\\", path, re.IGNORECASE):
        raise ValidationError("Git remote URL must not hold encoded or backward slashes.")
    repository = unquote(path.strip("/")).removesuffix(".git")
    if not on_github:
        return _elsewhere(scheme, shown_host, user, path, repository)
    if not _IDENTITY.fullmatch(repository.lower()) or repository.rsplit("/", 1)[-1] in (".", ".."):
        raise ValidationError("Git remote URL must name exactly an owner and a repository: github.com/<owner>/<repo>.")
    prefix = f"{user}@" if user else ""
    return Origin(repository.lower(), f"{scheme}://{prefix}{shown_host}{path}")


def _elsewhere(scheme: str, host: str, user: str | None, path: str, repository: str) -> Origin:
    """A repository of another host than github.com."""
    identity = f"{host}/{repository}".lower()
    if not _HOSTED.fullmatch(identity) or {".", ".."} & set(repository.split("/")):
        raise ValidationError("Git remote URL must name a host and a repository: https://<host>/<path>.")
    prefix = f"{user}@" if user else ""
    return Origin(identity, f"{scheme}://{prefix}{host}{path}")


def read_git_state(work_tree: Path) -> GitState:
    """What is checked out in the work tree; never fails."""
    answer = _ask(work_tree, "status", "--porcelain=v2", "--branch", "--untracked-files=normal")
    if answer is None:
        return GitState()
    head = branch = upstream = ahead = None
    dirty = False
    for line in answer.splitlines():
        if line.startswith("# branch.oid "):
            head = None if line.endswith("(initial)") else line.rsplit(" ", 1)[-1]
        elif line.startswith("# branch.head "):
            branch = None if line.endswith("(detached)") else line.removeprefix("# branch.head ")
        elif line.startswith("# branch.upstream "):
            upstream = line.removeprefix("# branch.upstream ")
        elif line.startswith("# branch.ab +"):
            ahead = int(line.removeprefix("# branch.ab +").partition(" ")[0])
        elif not line.startswith("#"):
            dirty = True
    return GitState(head, branch, dirty, upstream, ahead)


def has_commit(work_tree: Path, commit: str) -> bool:
    """Whether the repository here has a commit, by its full or short hash."""
    return _ask(work_tree, "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}") is not None


def is_on_a_remote_branch(work_tree: Path, commit: str) -> bool:
    """Whether a branch that was fetched from a remote holds a commit."""
    return bool(_ask(work_tree, "for-each-ref", "--contains", commit, "--count=1", "refs/remotes"))


def remote_branches(work_tree: Path) -> tuple[str, ...]:
    """The branches of `origin` as they were last fetched or pushed."""
    answer = _ask(work_tree, "for-each-ref", "--format=%(refname:lstrip=3)", "refs/remotes/origin")
    return tuple(name for name in (answer or "").splitlines() if name != "HEAD")


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
