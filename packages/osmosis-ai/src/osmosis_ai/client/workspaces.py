"""The workspaces of an account and the state of setting one up: the calls that need no scope.

Owns: `/workspaces` and `/quickstart`. Commands inside one workspace use its scope instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from osmosis_ai.client.wire import Record

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
    """

    id: str
    name: str
    repository: str | None
    role: str | None = None
    billing_ready: bool | None = None

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
    """

    connected: bool
    repository: str | None
    billing_ready: bool
    completed: bool


def fetch_workspaces(client: PlatformClient) -> list[AccountWorkspace]:
    """Every workspace of the account, in the platform's order.

    Raises:
        OsmosisError: The platform's error, or a malformed answer.
    """
    found = []
    for one in Record(client.get("/workspaces"), "reply").records("workspaces"):
        repository = one.maybe_record("connected_repo")
        found.append(
            AccountWorkspace(
                one.text("id"),
                one.text("name"),
                repository.maybe_text("repo_full_name") if repository else None,
                one.maybe_text("role"),
                one.flag("has_billing_setup") if "has_billing_setup" in one else None,
            )
        )
    return found


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
    )


def record_intent(client: PlatformClient, workspace_id: str, intent: Intent) -> None:
    """Tell the platform that somebody is set up, and what for.

    Raises:
        OsmosisError: The platform's error.
    """
    client.post("/quickstart", {"organizationId": workspace_id, "intent": intent})
