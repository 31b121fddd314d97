"""One run of the program: root options, the lazily loaded tree, and the one place where failures become output.

Owns: parsing, the root step, the exit status. What a command does is its module's; how it looks is the output's.
"""

from __future__ import annotations

import codecs
import os
import re
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, TextIO

import click

from osmosis_ai.cli.output import Cancelled, Format, Output, make_output
from osmosis_ai.cli.tree import HINTS, TREE, Entry
from osmosis_ai.consts import PACKAGE_VERSION, package_name
from osmosis_ai.errors import OsmosisError, UsageError, ValidationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from osmosis_ai.cli.results import Result

_ROOT_VALUE_OPTIONS = ("--env-file", "--platform", "--workspace")
_ROOT_OPTIONS = (*_ROOT_VALUE_OPTIONS, "-h", "--help", "-V", "--version")
_MISSING_EXTRA = re.compile(r'pip install "osmosis-ai\[([\w-]+)\]"')
_COMPLETION_VARIABLE = "_OSMOSIS_COMPLETE"
_ASCII = {"→": "->", "✓": "ok", "✗": "x", "⚠": "!", "·": "-", "±": "+/-", "–": "-", "…": "...", "≥": ">=", "Δ": "d"}


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


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit status; never raises for anything the user did."""
    _prepare_streams()
    name = sys.argv[0].rpartition("/")[2]
    program = name if name in ("osmosis-ai", "osmosis_ai") else "osmosis"
    if instruction := os.environ.get(_COMPLETION_VARIABLE):
        from osmosis_ai.cli.completion import answer

        return answer(make_root(), program, _COMPLETION_VARIABLE, instruction)
    formats, rest = split_formats(arguments)
    interactive = not formats and sys.stdin is not None and sys.stdin.isatty()
    output = make_output(formats[0] if formats else "rich", interactive=interactive)
    try:
        return _run(program, rest, Invocation(output, formats))
    except BrokenPipeError:
        _abandon_stdout()
        return 1
    except KeyboardInterrupt:
        output.interrupted()
        return 130
    except Exception as error:
        return _fail(error, output, command_words(rest), program)


def _run(program: str, arguments: list[str], invocation: Invocation) -> int:
    try:
        with make_root().make_context(program, list(arguments), obj=invocation) as context:
            result: Result | None = context.command.invoke(context)
        status = 0
        if result is not None:
            from osmosis_ai.cli.results import exit_status

            invocation.output.show(result)
            status = exit_status(result)
        sys.stdout.flush()
        return status
    except click.exceptions.Exit as stop:
        sys.stdout.flush()
        return stop.exit_code
    except Cancelled:
        invocation.output.cancelled()
        return 0
    except (click.Abort, EOFError):
        raise KeyboardInterrupt from None


def _fail(error: Exception, output: Output, command: str, program: str) -> int:
    """The one place where an exception becomes what the user reads and the exit status."""
    hint = ""
    match error:
        case OsmosisError():
            known = error
        case click.UsageError():
            known = UsageError(error.format_message())
            hint = f"Try '{error.ctx.command_path if error.ctx else program} --help'."
        case click.ClickException():
            known = UsageError(error.format_message())
        case ModuleNotFoundError() if extra := _MISSING_EXTRA.search(str(error)):
            known = ValidationError(str(error), details={"missing_module": error.name, "extra": extra[1]})
        case OSError() if error.errno is not None:
            known = ValidationError(_file_problem(error), details={"errno": error.errno})
        case _:
            known = _internal(error, output)
    try:
        output.error(known, command, hint)
        if known.error_code == "INTERNAL" and os.environ.get("OSMOSIS_DEBUG") == "1":
            _print_traceback(error)
    except BrokenPipeError:
        pass
    if isinstance(error, OSError):
        _abandon_stdout(only_if_broken=True)
    return known.exit_status


def _file_problem(error: OSError) -> str:
    """What a file or the system refused, with the place where it is known."""
    if error.filename is not None:
        return f"{error.filename}: {error.strerror or error}"
    try:
        os.getcwd()  # noqa: PTH109 - pathlib costs half a start-up
    except FileNotFoundError:
        return "The current directory no longer exists; change to another one."
    return error.strerror or str(error)


def _internal(error: Exception, output: Output) -> OsmosisError:
    message = "An unexpected internal error occurred."
    if output.format != "json":
        message += f" ({_name(error)}; set OSMOSIS_DEBUG=1 to see where)"
    return OsmosisError(message, details={"exception_type": _name(error)})


def _name(error: BaseException) -> str:
    return type(error).__name__


def _print_traceback(error: Exception) -> None:
    import traceback

    sys.stderr.write(f"{_name(error)}: {error}\n")
    traceback.print_exception(error)


def split_formats(arguments: Sequence[str]) -> tuple[tuple[Format, ...], list[str]]:
    """Take `--json` and `--plain` out of the line, wherever they stand before a literal `--`."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    names: dict[str, Format] = {"--json": "json", "--plain": "plain"}
    formats = tuple(names[word] for word in arguments[:end] if word in names)
    return formats, [*(word for word in arguments[:end] if word not in names), *arguments[end:]]


def command_words(arguments: Sequence[str]) -> str:
    """The words of the command as far as the tree knows them, a mistyped last one included; `<root>` for none."""
    words: list[str] = []
    entries: Mapping[str, Entry] = TREE
    skip = False
    for argument in arguments:
        if skip:
            skip = False
        elif argument == "--":
            break
        elif argument.startswith("-"):
            if not words and argument.partition("=")[0] not in _ROOT_OPTIONS:
                break
            skip = not words and argument in _ROOT_VALUE_OPTIONS
        else:
            words.append(argument)
            entry = entries.get(argument)
            if entry is None or not entry.entries:
                break
            entries = entry.entries
    return " ".join(words) or "<root>"


def _prepare_streams() -> None:
    """Make every stream writable text: closed ones lead nowhere, odd locales get near spellings instead of errors."""

    def near_spelling(error: UnicodeError) -> tuple[str, int]:
        if not isinstance(error, UnicodeEncodeError):
            raise error
        bad = error.object[error.start : error.end]
        return "".join(_ASCII.get(character, "?") for character in bad), error.end

    codecs.register_error("osmosis", near_spelling)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, _nowhere())
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="osmosis")


def _abandon_stdout(*, only_if_broken: bool = False) -> None:
    """Point stdout at nothing, so that the interpreter's last flush cannot fail."""
    try:
        sys.stdout.flush()
        if only_if_broken:
            return
    except (OSError, ValueError):
        pass
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        sys.stdout = _nowhere()


def _nowhere() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123 - pathlib costs half a start-up
