"""`osmosis-platform client-env`: what the unchanged published client, and Git, need to reach this platform."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from osmosis_platform.cli.main import read_settings
from osmosis_platform.ops.client_environment import client_environment


@click.command("client-env")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Where this platform keeps its files.")
@click.option("--url", help="How clients reach the platform; default: the running one's.")
@click.option("--token-file", type=click.Path(path_type=Path), help="A file with an access token, to log in with.")
def command(data_dir: Path | None, url: str | None, token_file: Path | None) -> None:
    """Print shell lines for `eval "$(osmosis-platform client-env)"`.

    They set the platform's URL and tell Git how to ask for a token (from a file or from the variable OSMOSIS_TOKEN, never
    inside an address), and that addresses of github.com lead to this platform, which the published client needs: it
    clones from there only. Repositories that are really on github.com cannot be reached under these variables.
    """
    settings = read_settings(data_dir=data_dir)
    values = client_environment(settings, url=url, token_file=token_file)
    for name, value in values.items():
        click.echo(f"export {name}={shlex.quote(value)}")
    if sys.stdout.isatty():
        click.echo('# to set them in this shell: eval "$(osmosis-platform client-env)"', err=True)
