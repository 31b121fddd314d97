"""Rollouts that the platform found in the repository, as a result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from osmosis_ai.cli.dates import ABSENT, day_text
from osmosis_ai.cli.listing import Listing, show_list
from osmosis_ai.cli.results import Cell, Column, ListResult

if TYPE_CHECKING:
    from osmosis_ai.cli.root import Invocation
    from osmosis_ai.client.wire import Record

_SHORT_COMMIT = 8


def rollout_record(rollout: Record) -> dict[str, Any]:
    """A rollout with the keys of the JSON contract."""
    return {
        "id": rollout.text("id"),
        "name": rollout.maybe_text("name") or "",
        "description": rollout.maybe_text("description"),
        "repo_full_name": rollout.maybe_text("repo_full_name"),
        "last_synced_commit_sha": rollout.maybe_text("last_synced_commit_sha"),
        "last_synced_at": rollout.maybe_text("last_synced_at"),
        "created_at": rollout.maybe_text("created_at") or "",
    }


def _row(item: Mapping[str, Any]) -> list[Cell]:
    return [item["name"], (item["last_synced_commit_sha"] or ABSENT)[:_SHORT_COMMIT], day_text(item["created_at"])]


def list_rollouts(invocation: Invocation, branch: str | None, limit: int, everything: bool) -> ListResult:
    """The rollouts of a branch, of the default branch unless one is named. Always those of this repository.

    Raises:
        OsmosisError: Options that exclude each other, no repository, no login, or the platform's error.
    """
    from osmosis_ai.client.scope import resolve_git_scope

    place = f"the branch {branch}" if branch else "the default branch"
    listing = Listing(
        path="/rollouts",
        key="rollouts",
        record=rollout_record,
        columns=(Column("Name", keep=True), Column("Commit"), Column("Created")),
        row=_row,
        empty=f"The platform has found no rollouts on {place}. Make one, then push: osmosis rollout init NAME",
        params={"branch": branch} if branch else {},
    )
    extras = {"branch": branch} if branch else {}
    return show_list(invocation, listing, "rollouts", limit, everything, scope=resolve_git_scope, extras=extras)
