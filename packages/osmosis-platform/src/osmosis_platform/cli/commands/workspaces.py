"""`osmosis-platform workspace`: workspaces and their members, for whoever sits at the machine."""

from __future__ import annotations

import shlex
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from osmosis_platform.cli.main import DATA_DIR, CommandGroup, opened
from osmosis_platform.cli.tables import AS_JSON, show

if TYPE_CHECKING:
    from osmosis_platform.db.database import UnitOfWork
    from osmosis_platform.db.repositories.workspaces import Workspace

_CONFIRM = click.option("--confirm", metavar="NAME", help="Its name again, where no terminal can be asked.")

ROLES = ["owner", "admin", "member", "viewer"]


@click.group("workspace", cls=CommandGroup)
def workspace() -> None:
    """Add, list and change workspaces and their members."""


@workspace.command("list")
@click.option("--deleted", is_flag=True, help="Those that can still be brought back.")
@AS_JSON
@DATA_DIR
def list_workspaces(deleted: bool, as_json: bool, data_dir: Path | None) -> None:
    """List every workspace."""
    from osmosis_platform.db.repositories.memberships import MembershipRepository
    from osmosis_platform.db.repositories.workspaces import WorkspaceRepository

    with opened(data_dir) as services, services.database.read() as work:
        if deleted:
            lifetime = timedelta(days=services.settings.deleted_workspace_days)
            gone = WorkspaceRepository(work).deleted()
            headings = ["Name", "Deleted", "Removed for good from", "ID"]
            rows = [[each.name, each.deleted_at, each.deleted_at + lifetime, each.id] for each in gone]
            show(headings, rows, empty="None that could be brought back.", as_json=as_json)
            return
        rows = [
            [each.name, len(MembershipRepository(work).all(each.id)), each.created_at, each.id]
            for each in WorkspaceRepository(work).all()
        ]
    empty = "None yet: osmosis-platform workspace add NAME --owner EMAIL"
    show(["Name", "Members", "Created", "ID"], rows, empty=empty, as_json=as_json)


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
@AS_JSON
@DATA_DIR
def members(name: str, as_json: bool, data_dir: Path | None) -> None:
    """List who is in a workspace."""
    from osmosis_platform.db.repositories.memberships import MembershipRepository

    with opened(data_dir) as services, services.database.read() as work:
        people = MembershipRepository(work).all(workspace_of(work, name).id)
    rows = [[each.email, each.name, each.role, each.joined_at] for each in people]
    show(["E-mail", "Name", "Role", "Joined"], rows, empty="Nobody.", as_json=as_json)


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


@workspace.command("delete")
@click.argument("name")
@_CONFIRM
@DATA_DIR
def delete(name: str, confirm: str | None, data_dir: Path | None) -> None:
    """Take a workspace away from everybody; `recover` brings it back within the days of deleted_workspace_days."""
    from osmosis_platform.identity.removal import take_away

    with opened(data_dir) as services:
        with services.database.read() as work:
            found = workspace_of(work, name)
        _confirm(found.name, confirm)
        with services.database.write() as work:
            place = workspace_of(work, found.id)
            take_away(work, None, place)
        days = services.settings.deleted_workspace_days
    click.echo(
        f"{place.name} is deleted. For {days} days: osmosis-platform workspace recover {shlex.quote(place.name)}"
    )


@workspace.command("recover")
@click.argument("name")
@click.option("--as", "new_name", metavar="NAME", help="Under another name, if its own is taken by now.")
@DATA_DIR
def recover(name: str, new_name: str | None, data_dir: Path | None) -> None:
    """Bring a deleted workspace back, by its name or id; its revoked tokens stay revoked."""
    from osmosis_platform.identity.removal import bring_back, deleted_workspace

    with opened(data_dir) as services, services.database.write() as work:
        now = bring_back(work, deleted_workspace(work, name), new_name)
    click.echo(f"{now} is back, with its members, repository, datasets and secrets.")


@workspace.command("purge")
@click.argument("name")
@_CONFIRM
@DATA_DIR
def purge_now(name: str, confirm: str | None, data_dir: Path | None) -> None:
    """Remove all that a deleted workspace held, now and for good. Audit log and usage records stay."""
    from osmosis_platform.errors import TakenError
    from osmosis_platform.identity.removal import deleted_workspace, purge

    with opened(data_dir) as services:
        with services.database.read() as work:
            found = deleted_workspace(work, name)
        _confirm(found.name, confirm)
        if not purge(services, found):
            message = f"Jobs of {found.name} still run and were asked to stop; try again in a moment."
            raise TakenError(message, code="JOBS_RUNNING")
    click.echo(f"Nothing of {found.name} is left but its audit log and usage records.")


def _confirm(name: str, typed: str | None) -> None:
    """Lets only those go on who write the name out.

    Raises:
        click.UsageError: They wrote another, or there is no terminal to ask at.
    """
    if typed is None and sys.stdin.isatty():
        typed = click.prompt(f"Type {name} to go on")
    if typed != name:
        raise click.UsageError(f"To go on, write its name out: --confirm {shlex.quote(name)}. Nothing was changed.")


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
