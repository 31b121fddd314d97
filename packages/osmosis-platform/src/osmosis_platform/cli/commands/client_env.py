"""`osmosis-platform client-env`: what a client, the unchanged published one too, and Git need to reach this platform."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from osmosis_platform.cli.main import read_settings
from osmosis_platform.ops.client_environment import client_environment

_PATH = click.Path(path_type=Path)


@click.command("client-env")
@click.option("--data-dir", type=_PATH, help="Where this platform keeps its files.")
@click.option("--url", help="How clients reach the platform; default: the running one's.")
@click.option("--token-file", type=_PATH, help="A file with an access token, to log in with.")
@click.option("--ca-file", type=_PATH, help="Certificates (PEM) that clients must trust.")
@click.option("--portable", is_flag=True, help="For a machine that has only the published client, and python3.")
@click.option("--clone", type=_PATH, help="Write what Git needs into this clone instead, so that it lasts.")
def command(
    data_dir: Path | None,
    url: str | None,
    token_file: Path | None,
    ca_file: Path | None,
    portable: bool,
    clone: Path | None,
) -> None:
    """Print shell lines for `eval "$(osmosis-platform client-env)"`. They hold no secret.

    They set the platform's URL, lead Git to the login (the token file, OSMOSIS_TOKEN, or what `osmosis auth login` or
    `osmosis quickstart` stored), and make addresses of github.com lead to this platform, which the published client
    needs: it clones from there only. Repositories that are really on github.com cannot be reached under them.
    """
    if portable and clone is not None:
        raise click.UsageError("--clone writes into a clone on this machine; it does not go with --portable.")
    settings = read_settings(data_dir=data_dir)
    found = client_environment(settings, url=url, token_file=token_file, authority=ca_file, portable=portable)
    if clone is not None:
        found.write_into(clone)
        click.echo(f"Git in {clone} reaches {found.url} from any shell.")
        return
    for line in found.lines():
        click.echo(line)
    if sys.stdout.isatty():
        click.echo('# to set them in this shell: eval "$(osmosis-platform client-env)"', err=True)
