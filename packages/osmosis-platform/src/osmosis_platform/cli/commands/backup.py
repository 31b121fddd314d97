"""`osmosis-platform backup` and `restore`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from osmosis_platform.cli.main import DATA_DIR, opened, read_settings


@click.command("backup")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--key-passphrase-file",
    type=click.Path(path_type=Path),
    help="Put the master key in, encrypted under the first line of this file.",
)
@click.option(
    "--include-plain-key", is_flag=True, help="Put the master key in unprotected: FILE alone opens every secret."
)
@DATA_DIR
def command(file: Path, key_passphrase_file: Path | None, include_plain_key: bool, data_dir: Path | None) -> None:
    """Write everything into FILE, a tar, while the platform runs: rows, objects, repositories.

    Unless asked for, the master key is not in it. Keep a copy of the key somewhere else: without it no secret of a backup
    can be read, and with it whoever has the backup can read them all.
    """
    from osmosis_platform.ops.backup import back_up
    from osmosis_platform.secrets.key_parcel import read_passphrase

    if include_plain_key and key_passphrase_file is not None:
        raise click.UsageError(
            "--key-passphrase-file protects the key, --include-plain-key does not; give one of them."
        )
    passphrase = None if key_passphrase_file is None else read_passphrase(key_passphrase_file)
    with_key = include_plain_key or passphrase is not None
    with opened(data_dir) as services:
        facts = back_up(services, file.absolute(), with_key=with_key, passphrase=passphrase, say=_say)
        key = services.vault.master_key_source
    _say("")
    click.echo(f"Wrote {file}: {_counts(facts)}.")
    if passphrase is not None:
        click.echo("The master key is in it, encrypted; keep the passphrase in another place.")
    elif include_plain_key:
        click.echo(f"WARNING: the master key is in it, unprotected. Whoever reads {file} has every secret.", err=True)
    else:
        click.echo(f"The master key is not in it; keep a copy of {key} in another place.")


@click.command("restore")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--key-passphrase-file",
    type=click.Path(path_type=Path),
    help="Its first line opens the master key that the backup carries.",
)
@DATA_DIR
def restore_command(file: Path, key_passphrase_file: Path | None, data_dir: Path | None) -> None:
    """Bring the backup FILE back: into an empty data directory and database, with the master key it was made under.

    The key is the one of the data directory or of OSMOSIS_MASTER_KEY(_FILE), else the one that the backup carries.
    The database and objects may be other ones than those of the backup: SQLite or PostgreSQL, files or S3.
    """
    from osmosis_platform.ops.instance import Instance
    from osmosis_platform.ops.restore import restore
    from osmosis_platform.secrets.key_parcel import read_passphrase
    from osmosis_platform.services import open_services

    passphrase = None if key_passphrase_file is None else read_passphrase(key_passphrase_file)
    settings = read_settings(data_dir=data_dir, log_level="error", log_format="text")
    instance = Instance(settings)
    instance.acquire()
    services = open_services(settings)
    try:
        facts = restore(services, file, passphrase=passphrase, say=_say)
    finally:
        services.close()
        instance.release()
    _say("")
    click.echo(
        f"Restored into {settings.data_dir}: {_counts(facts)}. "
        f"Start it: osmosis-platform up --data-dir {shlex.quote(str(settings.data_dir))}"
    )


def _counts(facts: Mapping[str, Any]) -> str:
    return f"{facts['rows']} rows, repositories: {facts['repositories']}, objects: {facts['blobs']}"


def _say(text: str) -> None:
    """One line that is written over, on a terminal; silence elsewhere."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[2K{text[:100]}")
        sys.stderr.flush()
