"""Clones of workspaces: finding the one there is, and making one where the person wants it.

Owns: these questions and the one `git clone`. Which repository it is, the caller knows.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from osmosis_ai.client.clones import remember_clone, remembered_clone
from osmosis_ai.client.scope import find_git_scope
from osmosis_ai.errors import NotFoundError, PlatformError, WorkspaceRequiredError

if TYPE_CHECKING:
    from osmosis_ai.cli.output import Output

_ON_GITHUB = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9._-]+")
_ELSEWHERE = re.compile(r"(?P<host>[A-Za-z0-9._-]+(?::\d+)?)/(?P<path>[A-Za-z0-9._~-]+(?:/[A-Za-z0-9._~-]+)+)")


def find_clone(platform_url: str, workspace_id: str, repository: str) -> Path | None:
    """The clone around the current directory, else the remembered one; None where neither is the repository's."""
    for start in (None, remembered_clone(platform_url, workspace_id)):
        if start is not None and not start.is_dir():
            continue
        scope = find_git_scope(start)
        if scope is not None and scope.identity == repository.lower():
            _remember(platform_url, workspace_id, scope.work_tree)
            return scope.work_tree
    return None


def make_clone(output: Output, platform_url: str, workspace_id: str, repository: str) -> Path:
    """Ask where, and clone.

    Raises:
        Cancelled: The person left a question.
        NotFoundError: git is not installed.
        PlatformError: The repository's name is none, or git could not clone it.
    """
    if shutil.which("git") is None:
        raise NotFoundError("git is not on PATH; install it, then run 'osmosis quickstart' again.")
    urls = clone_urls(repository)
    target = _ask_place(output, repository)
    if find_git_scope(target) is None or not (target / ".git").exists():
        url = urls[0][1]
        if len(urls) > 1:
            from osmosis_ai.cli.prompts import choose

            url = urls[choose("Clone over", [label for label, _ in urls])][1]
        _clone(output, url, target)
    _remember(platform_url, workspace_id, target)
    return target.resolve()


def clone_urls(repository: str) -> list[tuple[str, str]]:
    """The addresses of a repository, each with the name of its way.

    Raises:
        PlatformError: It is no repository's name.
    """
    if _ON_GITHUB.fullmatch(repository):
        return [
            ("HTTPS", f"https://github.com/{repository}.git"),
            ("SSH", f"git@github.com:{repository}.git"),
        ]
    found = _ELSEWHERE.fullmatch(repository)
    if found is None or {".", ".."} & set(repository.split("/")):
        raise PlatformError(f"The platform names a repository that cannot be cloned: {repository!r}.")
    from osmosis_ai.client.address import is_loopback

    scheme = "http" if is_loopback(found["host"].rsplit(":", 1)[0]) else "https"
    return [("HTTPS", f"{scheme}://{found['host']}/{found['path']}.git")]


def _ask_place(output: Output, repository: str) -> Path:
    """Where to clone to: a new or empty folder, or the clone that is there already."""
    from osmosis_ai.cli.prompts import ask_text, confirm

    name = repository.rpartition("/")[2]
    while True:
        given = ask_text("Clone into", default=f"./{name}")
        try:
            target = Path(given).expanduser().absolute()
        except RuntimeError:
            output.note(f"{given}: there is no such user.")
            continue
        if target.is_dir() and any(target.iterdir()):
            scope = find_git_scope(target)
            if scope is not None and scope.identity == repository.lower() and scope.work_tree == target.resolve():
                return target
            output.note(f"{target} is not empty. Name a new folder.")
            continue
        if target.exists() and not target.is_dir():
            output.note(f"{target} is a file. Name a new folder.")
            continue
        around = _work_tree_around(target)
        if around is not None:
            output.warn(f"{target} lies inside another repository, {around}.")
            if not confirm("Clone there all the same?", default=False):
                continue
        return target


def _work_tree_around(target: Path) -> Path | None:
    from osmosis_ai.workspace.repository import find_work_tree

    start = next((folder for folder in (target, *target.parents) if folder.is_dir()), None)
    try:
        return find_work_tree(start)
    except WorkspaceRequiredError:
        return None


def _clone(output: Output, url: str, target: Path) -> None:
    """Clone; git asks on the terminal itself where it needs a name or a key."""
    output.note(f"Cloning {url} ...")
    done = subprocess.run(["git", "clone", "--quiet", "--", url, str(target)], check=False)
    if done.returncode != 0:
        raise PlatformError(
            f"git could not clone {url} (its message is above). Check that this machine may read it, then run 'osmosis"
            " quickstart' again, or choose the other way (HTTPS or SSH)."
        )


def _remember(platform_url: str, workspace_id: str, path: Path) -> None:
    try:
        remember_clone(platform_url, workspace_id, path)
    except OSError:
        return  # it is only a hint for the next time
