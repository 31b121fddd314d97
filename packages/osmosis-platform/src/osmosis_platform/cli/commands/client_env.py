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
@click.option(
    "--git", is_flag=True, help="Also rewrite clone addresses of github.com: for the published client's wizard."
)
def command(data_dir: Path | None, url: str | None, token_file: Path | None, git: bool) -> None:
    """Print shell lines for `eval "$(osmosis-platform client-env)"`.

    They set the platform's URL, and how Git asks for a token: from a file or from the variable OSMOSIS_TOKEN, never
    inside an address. With --git, addresses of github.com lead to this platform, which the published client 0.3.8 needs
    for `osmosis quickstart`: it clones from there only.
    """
    settings = read_settings(data_dir=data_dir)
    values = client_environment(settings, url=url, token_file=token_file, rewrite_github=git)
    for name, value in values.items():
        click.echo(f"export {name}={shlex.quote(value)}")
    if sys.stdout.isatty():
        click.echo('# to set them in this shell: eval "$(osmosis-platform client-env)"', err=True)
