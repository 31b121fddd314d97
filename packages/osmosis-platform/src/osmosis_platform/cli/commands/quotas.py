"""`osmosis-platform quota` and `price`: what workspaces may use, and what it costs."""

from __future__ import annotations

from pathlib import Path

import click

from osmosis_platform.cli.main import DATA_DIR, CommandGroup, opened
from osmosis_platform.cli.tables import AS_JSON, show

_WORKSPACE = click.option("--workspace", "workspace_name", metavar="NAME", help="Only for this workspace [for all].")


@click.group("quota", cls=CommandGroup)
def quota() -> None:
    """Limit what workspaces may use."""


@quota.command("list")
@click.option("--workspace", "workspace_name", metavar="NAME", help="The limits that hold there, and what is used.")
@AS_JSON
@DATA_DIR
def list_quotas(workspace_name: str | None, as_json: bool, data_dir: Path | None) -> None:
    """List every limit that can be set, and its value."""
    from osmosis_platform.cli.commands.workspaces import workspace_of
    from osmosis_platform.db.repositories.usage import EVERYBODY, QuotaRepository
    from osmosis_platform.usage.quotas import NAMES, used_of

    with opened(data_dir) as services, services.database.read() as work:
        repository = QuotaRepository(work)
        general = repository.own(EVERYBODY)
        if workspace_name is None:
            headings = ["Name", "Limit", "What"]
            rows = [[name, general.get(name), what] for name, what in NAMES.items()]
        else:
            place = workspace_of(work, workspace_name)
            own = repository.own(place.id)
            headings = ["Name", "Limit", "Used", "Set for", "What"]
            rows = [
                [
                    name,
                    own.get(name, general.get(name)),
                    used_of(work, place.id, name),
                    place.name if name in own else "all" if name in general else None,
                    what,
                ]
                for name, what in NAMES.items()
            ]
    show(headings, rows, empty="There are none.", as_json=as_json)


@quota.command("set")
@click.argument("name")
@click.argument("value", type=float)
@_WORKSPACE
@DATA_DIR
def set_limit(name: str, value: float, workspace_name: str | None, data_dir: Path | None) -> None:
    """Set a limit, at once; NAME is one of `quota list`."""
    where = _put_quota(data_dir, name, value, workspace_name)
    click.echo(f"{name} is limited to {value:.15g} {where}.")


@quota.command("unset")
@click.argument("name")
@_WORKSPACE
@DATA_DIR
def unset_limit(name: str, workspace_name: str | None, data_dir: Path | None) -> None:
    """Remove a limit; a workspace without its own has the one of all."""
    where = _put_quota(data_dir, name, None, workspace_name)
    click.echo(f"{name} has no limit of its own {where}.")


@click.group("price", cls=CommandGroup)
def price() -> None:
    """Set what a unit of use costs, for the accounts."""


@price.command("list")
@AS_JSON
@DATA_DIR
def list_prices(as_json: bool, data_dir: Path | None) -> None:
    """List the prices."""
    from osmosis_platform.usage.prices import prices

    with opened(data_dir) as services, services.database.read() as work:
        rows = [[kind, usd] for kind, usd in prices(work).items()]
    empty = "None: use is counted and not priced. Set one: osmosis-platform price set job.cpu_seconds 0.00001"
    show(["Kind", "USD"], rows, empty=empty, as_json=as_json)


@price.command("set")
@click.argument("kind")
@click.argument("usd", type=float)
@DATA_DIR
def set_price_of(kind: str, usd: float, data_dir: Path | None) -> None:
    """Set what one unit of KIND costs from now on, in US dollars; see `usage` for kinds and units."""
    _put_price(data_dir, kind, usd)
    click.echo(f"One unit of {kind} costs {usd:.15g} USD from now on.")


@price.command("unset")
@click.argument("kind")
@DATA_DIR
def unset_price_of(kind: str, data_dir: Path | None) -> None:
    """Count KIND without a price from now on."""
    _put_price(data_dir, kind, None)
    click.echo(f"{kind} has no price from now on.")


def _put_quota(data_dir: Path | None, name: str, value: float | None, workspace_name: str | None) -> str:
    from osmosis_platform.cli.commands.workspaces import workspace_of
    from osmosis_platform.db.repositories.audit import AuditRepository
    from osmosis_platform.usage.quotas import set_quota

    with opened(data_dir) as services, services.database.write() as work:
        place = None if workspace_name is None else workspace_of(work, workspace_name)
        workspace_id = None if place is None else place.id
        set_quota(work, workspace_id, name, value)
        AuditRepository(work).record(workspace_id, None, "quota.set", "quota", name, {"value": value})
    return "for every workspace without its own" if place is None else f"for {place.name}"


def _put_price(data_dir: Path | None, kind: str, usd: float | None) -> None:
    from osmosis_platform.db.repositories.audit import AuditRepository
    from osmosis_platform.usage.prices import set_price

    with opened(data_dir) as services, services.database.write() as work:
        set_price(work, kind, usd)
        AuditRepository(work).record(None, None, "price.set", "price", kind, {"usd": usd})
