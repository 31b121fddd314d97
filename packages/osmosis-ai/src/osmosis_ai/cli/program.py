"""One run of the program, and the one place where failures become output and an exit status.

Owns: the streams, the format options, what an exception means. Parsing is the root's, how it looks is the output's.
"""

from __future__ import annotations

import codecs
import os
import re
import sys
from typing import TYPE_CHECKING, TextIO

import click

from osmosis_ai.cli.output import Cancelled, Format, Output, make_output
from osmosis_ai.cli.root import FLAG_OPTIONS, VALUE_OPTIONS, Invocation, make_root
from osmosis_ai.cli.tree import TREE, Entry
from osmosis_ai.errors import OsmosisError, UsageError, ValidationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from osmosis_ai.cli.results import Result

_MISSING_EXTRA = re.compile(r'pip install "osmosis-ai\[([\w-]+)\]"')
_COMPLETION_VARIABLE = "_OSMOSIS_COMPLETE"
_ASCII = {"→": "->", "✓": "ok", "✗": "x", "⚠": "!", "·": "-", "±": "+/-", "–": "-", "…": "...", "≥": ">=", "Δ": "d"}


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
            if isinstance(error, click.NoSuchOption) and error.option_name in VALUE_OPTIONS:
                known.message += f" It is an option of {program} itself: {program} {error.option_name} ... {command}"
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
        elif argument == "--" and words:
            break
        elif argument == "--":
            continue
        elif argument.startswith("-"):
            if not words and argument.partition("=")[0] not in (*VALUE_OPTIONS, *FLAG_OPTIONS):
                break
            skip = not words and argument in VALUE_OPTIONS
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
        from unicodedata import east_asian_width  # a wide character keeps its two columns in a table

        marks = ("??" if east_asian_width(character) in "WF" else "?" for character in bad)
        return "".join(_ASCII.get(character, mark) for character, mark in zip(bad, marks, strict=True)), error.end

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
