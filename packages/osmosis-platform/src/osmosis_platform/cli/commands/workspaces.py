"""`osmosis-platform workspace`: workspaces and their members, for whoever sits at the machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from osmosis_platform.cli.main import DATA_DIR, opened
from osmosis_platform.cli.tables import moment, show

if TYPE_CHECKING:
    from osmosis_platform.db.database import UnitOfWork
    from osmosis_platform.db.repositories.workspaces import Workspace

ROLES = ["owner", "admin", "member", "viewer"]


@click.group("workspace")
def workspace() -> None:
    """Add, list and change workspaces and their members."""


@workspace.command("list")
@DATA_DIR
def list_workspaces(data_dir: Path | None) -> None:
    """List every workspace."""
    from osmosis_platform.db.repositories.memberships import MembershipRepository
    from osmosis_platform.db.repositories.workspaces import WorkspaceRepository

    with opened(data_dir) as services, services.database.read() as work:
        rows = [
            [each.name, str(len(MembershipRepository(work).all(each.id))), moment(each.created_at), each.id]
            for each in WorkspaceRepository(work).all()
        ]
    show(
        ["Name", "Members", "Created", "ID"], rows, empty="None yet: osmosis-platform workspace add NAME --owner EMAIL"
    )


@workspace.command("add")
@click.argument("name")
@click.option("--owner", required=True, metavar="EMAIL", help="Its first owner.")
@DATA_DIR
def add(name: str, owner: str, data_dir: Path | None) -> None:
    """Add a workspace with its own Git repository."""
    from osmosis_platform.cli.commands.users import person_of
    from osmosis_platform.identity.accounts import create_workspace

    with opened(data_dir) as services, services.database.write() as work:
        made = create_workspace(services, work, person_of(work, owner), name)
    click.echo(f"Added {made.name}, owned by {owner.strip().lower()}.")


@workspace.command("members")
@click.argument("name")
@DATA_DIR
def members(name: str, data_dir: Path | None) -> None:
    """List who is in a workspace."""
    from osmosis_platform.db.repositories.memberships import MembershipRepository

    with opened(data_dir) as services, services.database.read() as work:
        people = MembershipRepository(work).all(workspace_of(work, name).id)
    rows = [[each.email, each.name or "-", each.role, moment(each.joined_at)] for each in people]
    show(["E-mail", "Name", "Role", "Joined"], rows, empty="Nobody.")


@workspace.command("add-member")
@click.argument("name")
@click.argument("email")
@click.option("--role", type=click.Choice(ROLES), default="member", show_default=True)
@DATA_DIR
def add_member(name: str, email: str, role: str, data_dir: Path | None) -> None:
    """Put a person into a workspace, or change their role."""
    from osmosis_platform.cli.commands.users import person_of
    from osmosis_platform.domain.permissions import Role
    from osmosis_platform.identity.members import place_member

    with opened(data_dir) as services, services.database.write() as work:
        place, person = workspace_of(work, name), person_of(work, email)
        place_member(work, place.id, person.id, Role(role))
    click.echo(f"{person.email} is {role} of {place.name}.")


@workspace.command("billing")
@click.argument("name")
@click.argument("state", type=click.Choice(["ready", "not-ready"]))
@DATA_DIR
def billing(name: str, state: str, data_dir: Path | None) -> None:
    """Say whether billing is settled; it matters only where `require_billing` is set."""
    from osmosis_platform.db.repositories.audit import AuditRepository
    from osmosis_platform.db.repositories.workspaces import WorkspaceRepository

    with opened(data_dir) as services, services.database.write() as work:
        place = workspace_of(work, name)
        WorkspaceRepository(work).set_billing_ready(place.id, state == "ready")
        AuditRepository(work).record(place.id, None, "workspace.billing", "workspace", place.id, {"state": state})
    click.echo(f"Billing of {place.name} is {state}.")


def workspace_of(work: UnitOfWork, name: str) -> Workspace:
    """The workspace of a name or id.

    Raises:
        MissingError: There is none.
    """
    from osmosis_platform.db.repositories.workspaces import WorkspaceRepository
    from osmosis_platform.errors import MissingError

    found = WorkspaceRepository(work).by_name(name) or WorkspaceRepository(work).find(name)
    if found is None:
        raise MissingError(f"There is no workspace {name}. See `osmosis-platform workspace list`.")
    return found
