"""`osmosis-platform settings`: what an administrator can set, where each value comes from, and changing the file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

import click

from osmosis_platform.cli.main import DATA_DIR, CommandGroup, read_settings
from osmosis_platform.cli.tables import AS_JSON, show


@click.group("settings", cls=CommandGroup)
def settings() -> None:
    """Show and set what an administrator can set."""


@settings.command("show")
@click.argument("name", required=False)
@AS_JSON
@DATA_DIR
def show_settings(name: str | None, as_json: bool, data_dir: Path | None) -> None:
    """Show every setting, or one with what it means; secrets are not shown."""
    from osmosis_platform.errors import MissingError
    from osmosis_platform.ops.settings_file import shown

    found = shown(read_settings(data_dir=_directory(data_dir)))
    if name is not None:
        found = [one for one in found if one.name == name]
        if not found:
            raise MissingError(f"There is no setting {name[:60]!r}. See `osmosis-platform settings show`.")
    rows = [[one.name, one.value, one.source, *([one.about] if name or as_json else [])] for one in found]
    headings = ["Setting", "Value", "From", *(["What"] if name or as_json else [])]
    show(headings, rows, empty="", as_json=as_json)


@settings.command("set")
@click.argument("pairs", nargs=-1, required=True, metavar="NAME VALUE [NAME VALUE]...")
@DATA_DIR
def set_some(pairs: tuple[str, ...], data_dir: Path | None) -> None:
    """Set some in platform.toml of the data directory, together.

    The value `-` is a line of standard input, which is how secrets must be given.
    """
    from osmosis_platform.ops.settings_file import change, is_secret, names

    directory = _directory(data_dir)
    if len(pairs) % 2:
        raise click.UsageError("Give a value after each name: osmosis-platform settings set NAME VALUE.")
    given = dict(zip(pairs[::2], pairs[1::2], strict=True))
    secrets = {name for name in given if name in names() and is_secret(name)}
    for name, value in given.items():
        if name in secrets and value != "-":
            raise click.UsageError(f"{name} is a secret, which others see on a command line. Give - and pipe it in.")
        if value == "-":
            given[name] = sys.stdin.readline().rstrip("\r\n")
    for name, value in change(directory, given).items():
        click.echo(f"{name} is {'set' if name in secrets else _text(value)} in {directory / 'platform.toml'}.")
    _remind(given)


@settings.command("unset")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@DATA_DIR
def unset_some(names: tuple[str, ...], data_dir: Path | None) -> None:
    """Take some out of platform.toml, so that they have their defaults."""
    from osmosis_platform.ops.settings_file import change
    from osmosis_platform.settings import Settings

    change(_directory(data_dir), dict.fromkeys(names))
    for name in names:
        click.echo(f"{name} has its default, {_text(Settings.model_fields[name].default)}.")
    _remind(names)


def _directory(data_dir: Path | None) -> Path:
    """The data directory alone: a file that is wrong must not keep anybody from mending it."""
    from osmosis_platform.errors import MissingError
    from osmosis_platform.settings import DEFAULT_DATA_DIR

    found = Path(data_dir or os.environ.get("OSMOSIS_PLATFORM_DATA_DIR") or DEFAULT_DATA_DIR).expanduser().absolute()
    if not found.is_dir():
        message = f"There is no platform in {found}. Start one with `osmosis-platform up`, or give --data-dir."
        raise MissingError(message)
    return found


def _remind(names: Iterable[str]) -> None:
    from osmosis_platform.ops.settings_file import variable_of

    for name in names:
        if variable_of(name) in os.environ:
            click.echo(f"The variable {variable_of(name)} is set here and stands before the file.", err=True)
    click.echo("It counts from the next start of `osmosis-platform up` on.")


def _text(value: object) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
