"""Clones of workspaces: finding the one there is, and making one where the person wants it.

Owns: these questions, the one `git clone`, and the clone's way to the login. Which repository it is, the caller knows.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from osmosis_ai.client.clones import remember_clone, remembered_clone
from osmosis_ai.client.scope import find_git_scope
from osmosis_ai.client.workspaces import is_clone_of
from osmosis_ai.errors import NotFoundError, PlatformError, ValidationError, WorkspaceRequiredError

if TYPE_CHECKING:
    from osmosis_ai.cli.output import Output
    from osmosis_ai.client.workspaces import SetUp

_ON_GITHUB = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9._-]+")


def find_clone(platform_url: str, workspace_id: str, set_up: SetUp) -> Path | None:
    """The clone around the current directory, else the remembered one; None where neither is the repository's."""
    for start in (None, remembered_clone(platform_url, workspace_id)):
        if start is not None and not start.is_dir():
            continue
        scope = find_git_scope(start)
        if scope is not None and is_clone_of(scope.identity, set_up.repository or "", set_up.clone_url):
            _lead_to_login(scope.work_tree, scope.remote_url, platform_url)
            _remember(platform_url, workspace_id, scope.work_tree)
            return scope.work_tree
    return None


def make_clone(output: Output, platform_url: str, workspace_id: str, set_up: SetUp) -> Path:
    """Ask where, and clone.

    Raises:
        Cancelled: The person left a question.
        NotFoundError: git is not installed.
        PlatformError: The repository's name is none, or git could not clone it.
    """
    if shutil.which("git") is None:
        raise NotFoundError("git is not on PATH; install it, then run 'osmosis quickstart' again.")
    urls = clone_urls(set_up.repository or "", set_up.clone_url)
    target = _ask_place(output, set_up)
    if find_git_scope(target) is None or not (target / ".git").exists():
        url = urls[0][1]
        if len(urls) > 1:
            from osmosis_ai.cli.prompts import choose

            url = urls[choose("Clone over", [label for label, _ in urls])][1]
        _clone(output, url, target, platform_url)
    _remember(platform_url, workspace_id, target)
    return target.resolve()


def clone_urls(repository: str, clone_url: str | None = None) -> list[tuple[str, str]]:
    """The addresses of a repository, each with the name of its way.

    Args:
        repository: `owner/repo`.
        clone_url: Where the platform says that it is; GitHub where it does not say.

    Raises:
        PlatformError: It is no repository's name or address.
    """
    if clone_url is not None:
        from osmosis_ai.client.address import ALLOW_INSECURE_VARIABLE, is_private_in_transit
        from osmosis_ai.workspace.repository import parse_origin

        try:
            parse_origin(clone_url, any_host=True)
        except ValidationError as error:
            raise PlatformError(f"The platform names a repository that cannot be cloned: {error.message}") from None
        is_plain = clone_url.lower().startswith(("http:", "git:"))
        if is_plain and not is_private_in_transit(clone_url) and os.environ.get(ALLOW_INSECURE_VARIABLE) != "1":
            raise PlatformError(f"The repository is at {clone_url}, where others can read it on the way; use https.")
        return [("HTTPS" if clone_url.lower().startswith("http") else "SSH", clone_url)]
    if not _ON_GITHUB.fullmatch(repository):
        raise PlatformError(f"The platform names a repository that cannot be cloned: {repository!r}.")
    return [
        ("HTTPS", f"https://github.com/{repository}.git"),
        ("SSH", f"git@github.com:{repository}.git"),
    ]


def _ask_place(output: Output, set_up: SetUp) -> Path:
    """Where to clone to: a new or empty folder, or the clone that is there already."""
    from osmosis_ai.cli.prompts import ask_text, confirm

    repository = set_up.repository or ""
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
            ours = scope is not None and is_clone_of(scope.identity, repository, set_up.clone_url)
            if ours and scope is not None and scope.work_tree == target.resolve():
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


def _clone(output: Output, url: str, target: Path, platform_url: str) -> None:
    """Clone; where the platform is not the host, git asks on the terminal itself for a name or a key."""
    output.note(f"Cloning {url} ...")
    settings = []
    for name, value in _login_settings(url, platform_url):
        settings += ["--config", f"{name}={value}"]
    done = subprocess.run(["git", "clone", "--quiet", *settings, "--", url, str(target)], check=False)
    if done.returncode != 0:
        raise PlatformError(
            f"git could not clone {url} (its message is above). Check that this machine may read it, then run 'osmosis"
            " quickstart' again."
        )
    if settings:
        output.note("Git in this clone takes the login of osmosis: push and pull from any shell.")


def _login_settings(url: str, platform_url: str) -> list[tuple[str, str]]:
    """What makes Git take the login of `osmosis` in a clone of the platform's, and no other helper see it."""
    if not url.startswith(f"{platform_url}/"):
        return []
    from osmosis_ai.client.git_login import helper

    name = f"credential.{platform_url}.helper"
    return [(name, ""), (name, helper(platform_url))]  # an empty one ends the list of the helpers before it


def _lead_to_login(work_tree: Path, url: str, platform_url: str) -> None:
    """Write the settings into a clone that has none, or those of a program that is gone; a hint only, so never fails."""
    settings = _login_settings(url, platform_url)
    if not settings:
        return
    name, wanted = settings[0][0], [value for _, value in settings]
    ask = ["git", "-C", str(work_tree), "config", "--local"]
    answer = subprocess.run([*ask, "--get-all", name], capture_output=True, text=True, check=False)
    if answer.stdout.splitlines() != wanted:
        subprocess.run([*ask, "--replace-all", name, wanted[0]], check=False)
        subprocess.run([*ask, "--add", name, wanted[1]], check=False)


def _remember(platform_url: str, workspace_id: str, path: Path) -> None:
    try:
        remember_clone(platform_url, workspace_id, path)
    except OSError:
        return  # it is only a hint for the next time
