"""`osmosis-platform user`: people, for whoever sits at the machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from osmosis_platform.cli.main import DATA_DIR, CommandGroup, opened
from osmosis_platform.cli.tables import AS_JSON, show

if TYPE_CHECKING:
    from osmosis_platform.db.database import UnitOfWork
    from osmosis_platform.db.repositories.users import User


_PASSWORD_STDIN = click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")


@click.group("user", cls=CommandGroup)
def user() -> None:
    """Add, list and change people."""


@user.command("list")
@AS_JSON
@DATA_DIR
def list_users(as_json: bool, data_dir: Path | None) -> None:
    """List everybody."""
    from osmosis_platform.db.repositories.users import UserRepository

    with opened(data_dir) as services, services.database.read() as work:
        people = UserRepository(work).all()
    rows = [
        [
            person.email,
            person.name,
            "administrator" if person.is_administrator else None,
            "disabled" if person.disabled_at else "active",
            person.created_at,
        ]
        for person in people
    ]
    headings = ["E-mail", "Name", "Platform role", "State", "Added"]
    show(headings, rows, empty="Nobody yet: open the set-up link of `up`.", as_json=as_json)


@user.command("add")
@click.argument("email")
@click.option("--name", help="As others see it.")
@click.option("--administrator", is_flag=True, help="Of the whole platform.")
@click.option("--no-password", is_flag=True, help="Signs in with tokens or an identity provider only.")
@_PASSWORD_STDIN
@DATA_DIR
def add(
    email: str, name: str | None, administrator: bool, no_password: bool, password_stdin: bool, data_dir: Path | None
) -> None:
    """Add a person. Asks for a password; `--no-password` makes an account without one."""
    from osmosis_platform.identity.accounts import create_user
    from osmosis_platform.identity.passwords import hash_password

    hashed = None if no_password else hash_password(_read_password(password_stdin))
    with opened(data_dir) as services, services.database.write() as work:
        person = create_user(work, email, name=name, password_hash=hashed, is_administrator=administrator)
    click.echo(f"Added {person.email}. Invite them into a workspace: osmosis-platform workspace add-member")


@user.command("set-password")
@click.argument("email")
@_PASSWORD_STDIN
@DATA_DIR
def set_password(email: str, password_stdin: bool, data_dir: Path | None) -> None:
    """Give a person a new password; ends their browser sessions."""
    from osmosis_platform.identity.accounts import change_password
    from osmosis_platform.identity.passwords import hash_password
    from osmosis_platform.identity.tokens import actor_of

    with opened(data_dir) as services:
        with services.database.read() as work:
            person = person_of(work, email)
        hashed = hash_password(_read_password(password_stdin))
        with services.database.write() as work:
            change_password(work, actor_of(person), hashed)
    click.echo(f"{person.email} has a new password and was signed out everywhere.")


@user.command("disable")
@click.argument("email")
@DATA_DIR
def disable(email: str, data_dir: Path | None) -> None:
    """Shut a person out: sessions and tokens end at once; what they made stays."""
    from osmosis_platform.identity.accounts import disable_user

    with opened(data_dir) as services, services.database.write() as work:
        person = person_of(work, email)
        disable_user(work, None, person.id)
    click.echo(f"{person.email} is shut out.")


@user.command("enable")
@click.argument("email")
@DATA_DIR
def enable(email: str, data_dir: Path | None) -> None:
    """Let a person in again; they need new tokens."""
    from osmosis_platform.db.repositories.audit import AuditRepository
    from osmosis_platform.db.repositories.users import UserRepository

    with opened(data_dir) as services, services.database.write() as work:
        person = person_of(work, email)
        UserRepository(work).set_disabled(person.id, False)
        AuditRepository(work).record(None, None, "user.enable", "user", person.id, {"email": person.email})
    click.echo(f"{person.email} may sign in again.")


@user.command("make-admin")
@click.argument("email")
@DATA_DIR
def make_admin(email: str, data_dir: Path | None) -> None:
    """Let a person administer the whole platform: its limits, its prices, its people's workspaces."""
    person = _set_administrator(email, True, data_dir)
    click.echo(f"{person.email} is an administrator of the platform.")


@user.command("revoke-admin")
@click.argument("email")
@DATA_DIR
def revoke_admin(email: str, data_dir: Path | None) -> None:
    """Take the administration of the platform from a person; their workspaces stay as they are."""
    person = _set_administrator(email, False, data_dir)
    click.echo(f"{person.email} is no administrator of the platform.")


def _set_administrator(email: str, is_administrator: bool, data_dir: Path | None) -> User:
    from osmosis_platform.db.repositories.audit import AuditRepository
    from osmosis_platform.db.repositories.users import UserRepository

    with opened(data_dir) as services, services.database.write() as work:
        person = person_of(work, email)
        if is_administrator and person.disabled_at is not None:
            from osmosis_platform.errors import TakenError

            message = f"{person.email} is shut out; let them in first: osmosis-platform user enable {person.email}"
            raise TakenError(message, code="USER_DISABLED")
        if person.is_administrator != is_administrator:
            UserRepository(work).set_administrator(person.id, is_administrator)
            action = "user.make_administrator" if is_administrator else "user.revoke_administrator"
            AuditRepository(work).record(None, None, action, "user", person.id, {"email": person.email})
        left = [one for one in UserRepository(work).all() if one.is_administrator and one.disabled_at is None]
    if not left:
        click.echo("Nobody administers the platform now: osmosis-platform user make-admin EMAIL", err=True)
    return person


def person_of(work: UnitOfWork, email: str) -> User:
    """The person of an e-mail address.

    Raises:
        MissingError: There is none.
    """
    from osmosis_platform.db.repositories.users import UserRepository
    from osmosis_platform.errors import MissingError

    person = UserRepository(work).by_email(email.strip().lower())
    if person is None:
        raise MissingError(f"There is no user {email}. See `osmosis-platform user list`.")
    return person


def _read_password(from_stdin: bool) -> str:
    if from_stdin:
        return sys.stdin.readline().rstrip("\r\n")
    if not sys.stdin.isatty():
        raise click.UsageError("There is no terminal to ask for a password at; pipe it in with --password-stdin.")
    return click.prompt("Password", hide_input=True, confirmation_prompt=True)
