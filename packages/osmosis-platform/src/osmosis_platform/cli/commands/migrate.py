"""`osmosis-platform migrate`: the schema of this version, for databases that several machines share."""

from __future__ import annotations

from pathlib import Path

import click

from osmosis_platform.cli.main import read_settings


@click.command("migrate")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Where this platform keeps its files.")
def command(data_dir: Path | None) -> None:
    """Bring the database to this version's schema. `up` does it by itself."""
    from osmosis_platform.db import schema
    from osmosis_platform.services import open_services

    services = open_services(read_settings(data_dir=data_dir))
    try:
        before, after = schema.migrate(services.database)
    finally:
        services.close()
    if before == after:
        click.echo(f"The database is at schema {after} already.")
    else:
        click.echo(f"The database went from {f'schema {before}' if before else 'empty'} to schema {after}.")
