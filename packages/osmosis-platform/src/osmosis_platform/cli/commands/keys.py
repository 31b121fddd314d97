"""`osmosis-platform keys`: the master key of the machine."""

from __future__ import annotations

from pathlib import Path

import click

from osmosis_platform.cli.main import DATA_DIR, CommandGroup, platform_there, read_settings


@click.group("keys", cls=CommandGroup)
def keys() -> None:
    """Rotate the key that encrypts secrets."""


@keys.command("rotate")
@click.option("--new-key-file", type=click.Path(path_type=Path), help="Where to write the new key [over the old file].")
@DATA_DIR
def rotate(new_key_file: Path | None, data_dir: Path | None) -> None:
    """Replace the master key. The platform must be stopped.

    Data keys are wrapped anew in one transaction; secrets stay as they are. Object links and browser forms of before end.
    Interrupted at any moment, the next start or rotation goes on: either key file that is needed is on the disk.
    """
    from osmosis_platform.ops.rotation import rotate_master_key
    from osmosis_platform.secrets.master_key import key_place

    settings = read_settings(data_dir=data_dir)
    platform_there(settings)
    count, path = rotate_master_key(settings, new_key_file)
    click.echo(
        f"{count} data keys are under a new master key, which is in {path}. Keep a copy apart from your backups."
    )
    if settings.master_key is not None:
        click.echo("Put its text into OSMOSIS_MASTER_KEY before the next start.")
    elif path != key_place(settings):
        click.echo(f"Set OSMOSIS_MASTER_KEY_FILE={path} before the next start.")
