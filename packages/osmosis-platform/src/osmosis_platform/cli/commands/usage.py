"""`osmosis-platform usage`: what workspaces used, and what it cost where prices are set."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import click

from osmosis_platform.cli.main import DATA_DIR, opened
from osmosis_platform.cli.tables import AS_JSON, show


@click.command("usage")
@click.option("--workspace", "workspace_name", metavar="NAME", help="Only this one [every one].")
@click.option("--days", type=click.IntRange(1, 3650), default=30, show_default=True, help="How far back.")
@AS_JSON
@DATA_DIR
def command(workspace_name: str | None, days: int, as_json: bool, data_dir: Path | None) -> None:
    """Show what workspaces used and what it cost.

    A cost is shown where `osmosis-platform price` had set one when it was used; `-` is not zero. Deleted workspaces
    are listed under their ids.
    """
    from osmosis_platform.cli.commands.workspaces import workspace_of
    from osmosis_platform.db.repositories.usage import UsageRepository, WorkspacesUsage
    from osmosis_platform.db.repositories.workspaces import WorkspaceRepository

    rows = []
    with opened(data_dir) as services, services.database.read() as work:
        until = work.clock() + timedelta(seconds=1)
        since = until - timedelta(days=days)
        if workspace_name is not None:
            places = [workspace_of(work, workspace_name).id]
        else:
            places = WorkspacesUsage(work).ids(since, until)
        names = {each.id: each.name for each in WorkspaceRepository(work).all()}
        for place in sorted(places, key=lambda workspace_id: names.get(workspace_id, workspace_id).lower()):
            for total in UsageRepository(work).totals(place, since, until):
                facts = [total.kind, total.quantity, total.unit, total.records, total.cost_usd]
                rows.append([names.get(place, place), *facts])
    headings = ["Workspace", "Kind", "Quantity", "Unit", "Records", "Cost USD"]
    show(headings, rows, empty=f"Nothing was used in the last {days} days.", as_json=as_json)
