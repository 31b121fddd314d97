"""`osmosis-platform audit`: whether the log of who did what is as it was written."""

from __future__ import annotations

from pathlib import Path

import click

from osmosis_platform.cli.main import DATA_DIR, CommandGroup, opened
from osmosis_platform.cli.tables import AS_JSON, show


@click.group("audit", cls=CommandGroup)
def audit() -> None:
    """Verify the audit log."""


@audit.command("verify")
@click.argument("export", required=False, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@AS_JSON
@DATA_DIR
def verify(export: Path | None, as_json: bool, data_dir: Path | None) -> None:
    """Recompute the hash chains: of every workspace and of the platform.

    A changed or removed entry breaks its chain from there on. Newest entries that are gone show only against something kept
    elsewhere: the head that this prints, or an EXPORT (`GET /api/v1/workspaces/NAME/audit.ndjson`), which is then checked
    line by line. Exits with 1 when anything is other than it was written.
    """
    from osmosis_platform.ops.audit_check import check_chains, check_export

    with opened(data_dir) as services:
        found = [check_export(services.database, export)] if export else check_chains(services.database)
    rows = []
    for one in found:
        state = "ok" if one.broken_at is None else f"broken at {one.broken_at}"
        rows.append((one.workspace or one.chain, one.chain, one.entries, state, one.head))
    show(("Of", "Chain", "Entries", "State", "Head"), rows, empty="Nothing was done yet.", as_json=as_json)
    if broken := [one for one in found if one.broken_at is not None]:
        names = ", ".join(f"{one.workspace or one.chain} from entry {one.broken_at}" for one in broken)
        click.echo(
            f"The audit log was changed: {names}. Compare it with a backup of before; no command of the platform does this.",
            err=True,
        )
        raise click.exceptions.Exit(1)
