"""The root of the command line: lazily loaded groups over the tree's data, and the root options.

Owns: parsing, and the root step between the options and the command. What a command does is its module's.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from osmosis_ai.cli.tree import HINTS, TREE, Entry
from osmosis_ai.consts import PACKAGE_VERSION, package_name
from osmosis_ai.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from osmosis_ai.cli.output import Format, Output

VALUE_OPTIONS = ("--env-file", "--platform", "--workspace")
FLAG_OPTIONS = ("-h", "--help", "-V", "--version")


class Invocation:
    """What the root options said; every command gets it as `click.pass_obj`.

    Attributes:
        output: Where the command speaks.
        formats: The format options in the order they stood on the line.
        workspace: Value of `--workspace`.
    """

    def __init__(self, output: Output, formats: tuple[Format, ...] = ()) -> None:
        self.output = output
        self.formats = formats
        self.workspace: str | None = None


class CommandGroup(click.Group):
    """A group made from the tree's data; it imports a command's module only to run or explain that command."""

    def __init__(self, name: str, entries: Mapping[str, Entry], **kwargs: Any) -> None:
        super().__init__(name, subcommand_metavar="COMMAND [ARGS]...", **kwargs)
        self.entries = entries

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the tree."""
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load one command."""
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        if entry.entries:
            return CommandGroup(
                cmd_name, entry.entries, help=entry.help, no_args_is_help=False, invoke_without_command=True,
                callback=_group_without_command,
            )  # fmt: skip
        command: click.Command = import_module(f"osmosis_ai.cli.commands.{entry.module}").command
        command.short_help = entry.help
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which name comes nearest."""
        name = args[0]
        command = self.get_command(ctx, name)
        if command is None and not ctx.resilient_parsing:
            if name.startswith("-"):
                self.parse_args(ctx, args)
            raise click.UsageError(self._unknown(ctx, name), ctx)
        return (name if command else None), command, args[1:]

    def _unknown(self, ctx: click.Context, name: str) -> str:
        message = f"No such command '{name}'."
        if ctx.parent is None and (hint := HINTS.get(name)):
            return f"{message} {hint}"
        from difflib import get_close_matches

        near = get_close_matches(name, self.entries, n=1, cutoff=0.5)
        return f"{message} Did you mean '{near[0]}'?" if near else message

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands under their panels, from the tree alone."""
        width = max(len(name) for name in self.entries)
        for panel in dict.fromkeys(entry.panel for entry in self.entries.values()):
            rows = [(name.ljust(width), entry.help) for name, entry in self.entries.items() if entry.panel == panel]
            with formatter.section(panel):
                formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Complete names from the tree alone."""
        from click.shell_completion import CompletionItem

        names = [
            CompletionItem(name, help=entry.help) for name, entry in self.entries.items() if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]


@click.pass_context
def _group_without_command(ctx: click.Context) -> None:
    if ctx.invoked_subcommand is None:
        _help_instead_of_command(ctx)


def _help_instead_of_command(ctx: click.Context) -> None:
    if ctx.obj.output.format == "json":
        raise click.UsageError("Missing command.", ctx)
    click.echo(ctx.get_help())


@click.pass_context
def _root_step(
    ctx: click.Context, /, env_file: str | None, platform: str | None, workspace: str | None, **flags: bool
) -> None:
    """Everything between parsing the root options and the command, in the contract's order."""
    invocation: Invocation = ctx.obj
    if len(set(invocation.formats)) > 1:
        listed = " and ".join(f"--{name}" for name in dict.fromkeys(invocation.formats))
        raise ValidationError(f"Conflicting output formats: {listed}. Choose at most one of --json or --plain.")
    if workspace is not None:
        if not workspace.strip():
            raise ValidationError("--workspace requires a non-empty name.")
        invocation.workspace = workspace
    if ctx.invoked_subcommand is None:
        _help_instead_of_command(ctx)
        return
    from osmosis_ai.cli.environment import prepare_environment

    prepare_environment(env_file, platform, invocation.output.warn)


def make_root() -> CommandGroup:
    """The root of the tree with its options."""
    return CommandGroup(
        "osmosis",
        TREE,
        callback=_root_step,
        invoke_without_command=True,
        no_args_is_help=False,
        help="Build, evaluate and train LLM agents.",
        epilog="Start here: osmosis rollout init my-agent, then osmosis eval run configs/eval/my-agent.toml.",
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        params=[
            click.Option(["-V", "--version"], is_flag=True, is_eager=True, expose_value=False, callback=_show_version,
                         help="Show the version and exit."),
            click.Option(["--json"], is_flag=True, help="Give one JSON object for programs."),
            click.Option(["--plain"], is_flag=True, help="Give plain text for pipes and logs."),
            click.Option(["--env-file"], metavar="FILE",
                         help="Read variables from this dotenv file instead of the nearest .env."),
            click.Option(["--platform"], metavar="URL", help="Use this platform for one command."),
            click.Option(["--workspace"], metavar="NAME", help="Use this workspace instead of the repository's."),
        ],
    )  # fmt: skip


def _show_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(f"{package_name} {PACKAGE_VERSION}")
        ctx.exit()
