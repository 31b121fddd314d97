"""The console script `osmosis-platform`: a lazily loaded tree, settings from flags, errors with their code and remedy."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from osmosis_platform.services import Services
    from osmosis_platform.settings import Settings

# name: (module under cli.commands, attribute, one line of help)
COMMANDS: dict[str, tuple[str, str, str]] = {
    "up": ("up", "command", "Start the platform: API, Git host, objects, pages and workers."),
    "client-env": ("client_env", "command", "Print the variables that a client needs for this platform."),
    "doctor": ("doctor", "command", "Check what is active, what is weak and why."),
    "user": ("users", "user", "Add, list and change people."),
    "workspace": ("workspaces", "workspace", "Add, list and change workspaces and their members."),
    "settings": ("settings", "settings", "Show and set what an administrator can set."),
    "quota": ("quotas", "quota", "Limit what workspaces may use."),
    "price": ("quotas", "price", "Set what a unit of use costs, for the accounts."),
    "usage": ("usage", "command", "Show what workspaces used and what it cost."),
    "token": ("tokens", "token", "Create, list and revoke access tokens."),
    "keys": ("keys", "keys", "Rotate the key that encrypts secrets."),
    "audit": ("audit", "audit", "Verify the log of who did what."),
    "backup": ("backup", "command", "Write everything into one file, while the platform runs."),
    "restore": ("backup", "restore_command", "Bring a backup back into an empty data directory."),
    "migrate": ("migrate", "command", "Bring the database to this version's schema."),
}


class CommandGroup(click.Group):
    """Tells the whole first line of each command: click would cut it off where a terminal of 80 columns ends."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with what they do."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        lines = [(name, (one.help or "").strip().partition("\n")[0]) for name, one in found if one is not None]
        with formatter.section("Commands"):
            formatter.write_dl(lines)


class LazyGroup(click.Group):
    """Imports a command's module only to run or explain that command."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load one command."""
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _help = COMMANDS[cmd_name]
        return getattr(import_module(f"osmosis_platform.cli.commands.{module}"), attribute)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which name comes nearest."""
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, n=1, cutoff=0.5)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            raise click.UsageError(f"No such command '{args[0]}'.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_text) for name, (_module, _attribute, help_text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="osmosis-platform", prog_name="osmosis-platform")
def root() -> None:
    """Osmosis, self-hosted: build, evaluate and train agents on your own machines."""


DATA_DIR = click.option(
    "--data-dir", type=click.Path(path_type=Path), help="Where the platform keeps everything [~/.osmosis-platform]."
)


@contextmanager
def opened(data_dir: Path | None) -> Generator[Services]:
    """The services of a platform on this machine, running or not, for a command of an administrator.

    Raises:
        MissingError: There is no platform in the data directory.
    """
    from osmosis_platform.db import schema
    from osmosis_platform.errors import UnavailableError
    from osmosis_platform.ops.logs import configure_logs
    from osmosis_platform.services import open_services

    settings = read_settings(data_dir=data_dir, log_level="error", log_format="text")
    platform_there(settings)
    configure_logs(settings)
    services = open_services(settings)
    try:
        if schema.current(services.database) != schema.newest():
            message = "The database is not at this version's schema; run `osmosis-platform migrate`."
            raise UnavailableError(message, code="SCHEMA")
        services.vault.check(services.database)
        yield services
    finally:
        services.close()


def platform_there(settings: Settings) -> None:
    """Keeps a command from making a platform where there is none.

    Raises:
        MissingError: There is no such directory.
    """
    from osmosis_platform.errors import MissingError

    if not settings.data_dir.is_dir():
        message = (
            f"There is no platform in {settings.data_dir}. Start one with `osmosis-platform up`, or give --data-dir."
        )
        raise MissingError(message)


def read_settings(**flags: Any) -> Settings:
    """The settings from flags that were given, variables and the file of the data directory.

    Raises:
        click.UsageError: A value is wrong; every finding is named with where it came from.
    """
    from tomllib import TOMLDecodeError

    from pydantic import ValidationError

    from osmosis_platform.settings import SETTINGS_FILE, Settings

    try:
        given: dict[str, Any] = {name: value for name, value in flags.items() if value is not None}
        return Settings(**given)
    except ValidationError as error:
        findings = []
        for finding in error.errors(include_input=False, include_url=False):
            name = ".".join(str(part) for part in finding["loc"]) or "settings"
            findings.append(f"{name}: {str(finding['msg']).removeprefix('Value error, ')}")
        text = "\n  ".join(findings)
        raise click.UsageError(
            f"The settings are wrong (flags, OSMOSIS_PLATFORM_* variables or {SETTINGS_FILE}):\n  {text}"
        ) from None
    except (TOMLDecodeError, UnicodeDecodeError) as error:
        message = (
            f"{SETTINGS_FILE} in the data directory is no TOML: {error}. Mend that line: name = value, texts in quotes."
        )
        raise click.UsageError(message) from None


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line.

    Returns:
        0, 1 (failed), 2 (usage) or 130 (interrupted).
    """
    from osmosis_ai.errors import OsmosisError

    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        result = root.main(args=arguments, prog_name="osmosis-platform", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.exceptions.Abort:
        click.echo("Interrupted.", err=True)
        return 130
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except OsmosisError as error:
        click.echo(f"error: {error.message} [{error.error_code}]", err=True)
        return error.exit_status
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


if __name__ == "__main__":
    raise SystemExit(main())
