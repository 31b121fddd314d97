"""The workspace a request is about: the repository around the current directory, or a workspace named by the user.

Owns: how each is found, the header that carries it, and how results name it. Git itself is read by the workspace room.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from osmosis_ai.client.address import PRODUCTION_URL, active_platform_url
from osmosis_ai.errors import ValidationError

GIT_HEADER = "X-Osmosis-Git"
WORKSPACE_HEADER = "X-Osmosis-Workspace"


@dataclass(frozen=True, slots=True)
class GitScope:
    """The workspace that the work tree's repository is connected to.

    Attributes:
        identity: `owner/repo` in lower case, with the host in front where that is not github.com.
        remote_url: The origin without credentials.
        work_tree: Root of the work tree.
    """

    identity: str
    remote_url: str
    work_tree: Path

    def __str__(self) -> str:
        return f"the repository '{self.identity}'"

    def headers(self) -> dict[str, str]:
        """The one scope header of a request."""
        return {GIT_HEADER: self.identity}

    def extras(self) -> dict[str, Any]:
        """What results carry about the scope."""
        return {
            "git": {"identity": self.identity, "remote_url": self.remote_url},
            "workspace_directory": str(self.work_tree),
        }

    @property
    def base_directory(self) -> Path:
        """Where outputs go by default."""
        return self.work_tree


@dataclass(frozen=True, slots=True)
class WorkspaceScope:
    """A workspace by its exact name.

    Attributes:
        name: As the user gave it, without outer white space.
        work_tree: The clone a source-backed submit reads, where there is one.
    """

    name: str
    work_tree: Path | None = None

    def __str__(self) -> str:
        return f"the workspace '{self.name}'"

    def headers(self) -> dict[str, str]:
        """The one scope header of a request."""
        return {WORKSPACE_HEADER: self.name}

    def extras(self) -> dict[str, Any]:
        """What results carry about the scope."""
        return {"workspace": {"name": self.name}}

    @property
    def base_directory(self) -> Path:
        """Where outputs go by default."""
        return Path.cwd()


type Scope = GitScope | WorkspaceScope


def resolve_scope(workspace: str | None) -> Scope:
    """The scope of a command that works with `--workspace` or in a repository.

    Args:
        workspace: Value of `--workspace`, or None.

    Raises:
        WorkspaceRequiredError: No name was given and the current directory is in no Git work tree.
        ValidationError: Required directories or the origin are missing, or the name cannot stand in a header.
    """
    return resolve_git_scope() if workspace is None else named_scope(workspace)


def named_scope(workspace: str) -> WorkspaceScope:
    """The scope of `--workspace NAME`.

    Raises:
        ValidationError: The name is blank or has characters that no header can carry.
    """
    name = workspace.strip()
    if not name:
        raise ValidationError("--workspace requires a non-empty name.")
    if any(not ("\xa0" <= letter <= "\xff" or " " <= letter <= "~") for letter in name):
        raise ValidationError(
            f"--workspace {name!r} holds characters that a workspace name cannot have; copy the name from the platform."
        )
    return WorkspaceScope(name)


def resolve_git_scope(start: Path | None = None) -> GitScope:
    """The scope of a command that needs the repository around `start` (the current directory).

    Raises:
        WorkspaceRequiredError: Not inside a Git work tree.
        ValidationError: Required directories or the origin are missing.
    """
    from osmosis_ai.workspace.repository import find_work_tree, read_origin, require_directories

    work_tree = find_work_tree(start)
    require_directories(work_tree)
    origin = read_origin(work_tree, any_host=takes_any_host())
    return GitScope(origin.identity, origin.remote_url, work_tree)


def find_git_scope(start: Path | None = None) -> GitScope | None:
    """The repository around `start` where a command can do without one: no required directories, no errors."""
    from osmosis_ai.errors import OsmosisError
    from osmosis_ai.workspace.repository import find_work_tree, read_origin

    try:
        work_tree = find_work_tree(start)
        origin = read_origin(work_tree, any_host=takes_any_host())
    except OsmosisError:
        return None
    return GitScope(origin.identity, origin.remote_url, work_tree)


def takes_any_host() -> bool:
    """The production platform connects GitHub repositories only; others may host repositories of their own."""
    return active_platform_url() != PRODUCTION_URL
