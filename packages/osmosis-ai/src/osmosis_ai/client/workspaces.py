"""The workspaces of an account and the state of setting one up: the calls that need no scope.

Owns: `/workspaces` and `/quickstart`. Commands inside one workspace use its scope instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from osmosis_ai.client.wire import Record
from osmosis_ai.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from osmosis_ai.client.session import PlatformClient

type Intent = Literal["train", "eval", "benchmark", "explore"]
"""What somebody wants to do first."""


@dataclass(frozen=True, slots=True)
class AccountWorkspace:
    """A workspace the account belongs to.

    Attributes:
        id: The platform's.
        name: What `--workspace` takes.
        repository: `owner/repo` of the connected repository, as the platform spells it.
        role: The account's role in it.
        billing_ready: Whether billing is set up; None where the platform does not say.
        clone_url: Where the repository is cloned from; None means GitHub.
    """

    id: str
    name: str
    repository: str | None
    role: str | None = None
    billing_ready: bool | None = None
    clone_url: str | None = None

    def to_json(self) -> dict[str, Any]:
        """As lists show it."""
        return {
            "id": self.id,
            "name": self.name,
            "role": self.role,
            "repository": self.repository,
            "has_billing_setup": self.billing_ready,
        }


@dataclass(frozen=True, slots=True)
class SetUp:
    """How far the setting up of a workspace is.

    Attributes:
        connected: Whether a repository is connected.
        repository: Its `owner/repo`.
        billing_ready: Whether billing is set up.
        completed: Whether somebody went through it before.
        clone_url: Where the repository is cloned from; None means GitHub.
    """

    connected: bool
    repository: str | None
    billing_ready: bool
    completed: bool
    clone_url: str | None = None


def fetch_workspaces(client: PlatformClient) -> list[AccountWorkspace]:
    """Every workspace of the account, in the platform's order.

    Raises:
        OsmosisError: The platform's error, or a malformed answer.
    """
    records = Record(client.get("/workspaces"), "reply").records("workspaces")
    return [_workspace(one, client.platform_url) for one in records]


def create_workspace(client: PlatformClient, name: str) -> AccountWorkspace:
    """Make a workspace, where the platform lets accounts do that from here.

    Raises:
        OsmosisError: The platform's error, or a malformed answer.
    """
    return _workspace(Record(client.post("/workspaces", {"name": name}), "reply"), client.platform_url)


def find_named(workspaces: Sequence[AccountWorkspace], name: str, *, any_case: bool = False) -> AccountWorkspace | None:
    """The workspace of a name; exactly that name unless `any_case`."""
    exact = next((one for one in workspaces if one.name == name), None)
    if exact is not None or not any_case:
        return exact
    return next((one for one in workspaces if one.name.casefold() == name.casefold()), None)


def fetch_set_up(client: PlatformClient, workspace_id: str) -> SetUp:
    """How far the workspace is.

    Raises:
        OsmosisError: The platform's error, or a malformed answer.
    """
    reply = Record(client.get("/quickstart", params={"organizationId": workspace_id}), "reply")
    repository = reply.maybe_record("repo")
    return SetUp(
        connected=repository.flag("connected") if repository else False,
        repository=repository.maybe_text("full_name") if repository else None,
        billing_ready=reply.flag("billing_ready"),
        completed=reply.flag("completed"),
        clone_url=_clone_url(repository, client.platform_url),
    )


def is_clone_of(identity: str, repository: str, clone_url: str | None) -> bool:
    """Whether a clone's identity (see `GitScope`) is that of a workspace's repository.

    Args:
        identity: Of the clone.
        repository: `owner/repo`.
        clone_url: Where the platform says it is cloned from; a repository that it hosts may also be known by another
            name of its host.
    """
    from osmosis_ai.workspace.repository import parse_origin

    name = repository.lower()
    if identity == name or clone_url is None:
        return identity == name
    try:
        known = parse_origin(clone_url, any_host=True).identity
    except ValidationError:
        return False
    hosted = f"/git/{name}"
    return identity == known or (known.endswith(hosted) and identity.endswith(hosted))


def _workspace(one: Record, platform_url: str) -> AccountWorkspace:
    repository = one.maybe_record("connected_repo")
    return AccountWorkspace(
        one.text("id"),
        one.text("name"),
        repository.maybe_text("repo_full_name") if repository else None,
        one.maybe_text("role"),
        one.flag("has_billing_setup") if "has_billing_setup" in one else None,
        _clone_url(repository, platform_url),
    )


def _clone_url(repository: Record | None, platform_url: str) -> str | None:
    """Where to clone from; a path is one of the platform itself, by the address it is known by here."""
    given = repository.maybe_text("clone_url") if repository else None
    return platform_url + given if given and given.startswith("/") else given


def record_intent(client: PlatformClient, workspace_id: str, intent: Intent) -> None:
    """Tell the platform that somebody is set up, and what for.

    Raises:
        OsmosisError: The platform's error.
    """
    client.post("/quickstart", {"organizationId": workspace_id, "intent": intent})
