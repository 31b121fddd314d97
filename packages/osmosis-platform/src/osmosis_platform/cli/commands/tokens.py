"""`osmosis-platform token`: access tokens of people, for whoever sits at the machine."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import click

from osmosis_platform.cli.main import DATA_DIR, CommandGroup, opened
from osmosis_platform.cli.tables import AS_JSON, show


@click.group("token", cls=CommandGroup)
def token() -> None:
    """Create, list and revoke access tokens."""


@token.command("create")
@click.argument("email")
@click.option("--name", default="administrator", show_default=True, help="What its owner knows it by.")
@click.option("--days", type=click.IntRange(1, 3650), help="How long it counts [the setting token_days].")
@click.option(
    "--scope", "scopes", multiple=True, default=["all"], show_default=True, help="What it may do; repeatable."
)
@click.option("--workspace", "workspace_name", metavar="NAME", help="Only for this workspace.")
@DATA_DIR
def create(
    email: str, name: str, days: int | None, scopes: tuple[str, ...], workspace_name: str | None, data_dir: Path | None
) -> None:
    """Make a token and print it, once."""
    from osmosis_platform.cli.commands.users import person_of
    from osmosis_platform.cli.commands.workspaces import workspace_of
    from osmosis_platform.db.repositories.audit import AuditRepository
    from osmosis_platform.identity.tokens import issue_token

    with opened(data_dir) as services, services.database.write() as work:
        person = person_of(work, email)
        place = None if workspace_name is None else workspace_of(work, workspace_name).id
        expires_at = work.clock() + timedelta(days=days or services.settings.token_days)
        issued = issue_token(
            work, person.id, kind="personal", name=name, scopes=scopes, expires_at=expires_at, workspace_id=place
        )
        facts = {"name": name, "scopes": list(scopes), "workspace_id": place}
        AuditRepository(work).record(None, None, "token.create", "token", issued.id, facts)
    click.echo(issued.secret)


@token.command("list")
@click.argument("email")
@AS_JSON
@DATA_DIR
def list_tokens(email: str, as_json: bool, data_dir: Path | None) -> None:
    """List a person's tokens, without their texts."""
    from osmosis_platform.cli.commands.users import person_of
    from osmosis_platform.db.repositories.tokens import TokenRepository

    with opened(data_dir) as services, services.database.read() as work:
        found = TokenRepository(work).of_user(person_of(work, email).id)
    rows = [[each.id, each.name, each.kind, list(each.scopes), each.expires_at, each.last_used_at] for each in found]
    headings = ["ID", "Name", "Kind", "Scopes", "Expires", "Last used"]
    show(headings, rows, empty=f"None: osmosis-platform token create {email}", as_json=as_json)


@token.command("revoke")
@click.argument("email")
@click.argument("token_id")
@DATA_DIR
def revoke(email: str, token_id: str, data_dir: Path | None) -> None:
    """End a token at once."""
    from osmosis_platform.cli.commands.users import person_of
    from osmosis_platform.db.repositories.audit import AuditRepository
    from osmosis_platform.db.repositories.tokens import TokenRepository
    from osmosis_platform.errors import MissingError

    with opened(data_dir) as services, services.database.write() as work:
        if not TokenRepository(work).revoke(person_of(work, email).id, token_id):
            message = f"{email} has no token {token_id} that counts. See `osmosis-platform token list {email}`."
            raise MissingError(message)
        AuditRepository(work).record(None, None, "token.revoke", "token", token_id, {})
    click.echo(f"Revoked {token_id}.")
