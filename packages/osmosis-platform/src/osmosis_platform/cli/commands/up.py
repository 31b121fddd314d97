"""`osmosis-platform up`: everything that a first start and every other start needs, in one command."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from osmosis_platform.cli.main import read_settings


@click.command("up")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Where to keep everything [~/.osmosis-platform].")
@click.option("--host", help="Address to listen on [127.0.0.1].")
@click.option("--port", type=int, help="Port to listen on, 0 for a free one [8700].")
@click.option("--public-url", help="How clients reach the platform, if it is behind a proxy.")
@click.option("--tls-cert", type=click.Path(path_type=Path), help="Certificate chain (PEM).")
@click.option("--tls-key", type=click.Path(path_type=Path), help="Its private key (PEM).")
@click.option("--allow-plain-http", is_flag=True, default=None, help="Listen beyond loopback without TLS.")
@click.option("--workers", type=int, help="Worker processes [1].")
@click.option("--single-process", is_flag=True, help="API and worker in one process.")
@click.option("--bootstrap", metavar="EMAIL:WORKSPACE", help="Unattended first start: this owner and workspace.")
@click.option(
    "--bootstrap-token-file", type=click.Path(path_type=Path), help="Where to write the owner's token (0600)."
)
def command(single_process: bool, bootstrap: str | None, bootstrap_token_file: Path | None, **flags: object) -> int:
    """Start the platform: API, Git host, objects, pages and workers.

    The first start makes the data directory, the database and the master key, and prints a link to set up the first
    account. Nothing else is needed: no account elsewhere, no Docker, no other service.
    """
    if (bootstrap is None) != (bootstrap_token_file is None):
        raise click.UsageError("--bootstrap and --bootstrap-token-file belong together.")
    settings = read_settings(**flags)
    from osmosis_platform.ops.first_start import Bootstrap, prepare
    from osmosis_platform.ops.instance import Instance, write_url
    from osmosis_platform.ops.listening import bind
    from osmosis_platform.ops.logs import configure_logs

    unattended = (
        None if bootstrap is None or bootstrap_token_file is None else Bootstrap.parse(bootstrap, bootstrap_token_file)
    )
    configure_logs(settings)
    instance = Instance(settings)
    instance.acquire()
    try:
        sock, settings = bind(settings)
        welcome = prepare(settings, unattended)
        write_url(settings)
        from osmosis_platform.ops.supervisor import Supervisor

        def ready() -> None:
            click.echo(welcome.banner(settings), file=sys.stdout)
            sys.stdout.flush()

        return Supervisor(settings, sock, single_process=single_process).run(ready)
    finally:
        instance.release()
