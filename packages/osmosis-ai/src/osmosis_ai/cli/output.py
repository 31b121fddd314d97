"""The three output formats: where results, notes, warnings and errors go, and who may be asked.

Owns: the contract of streams (results on stdout; everything else on stderr), the JSON envelopes. Results are drawn by
`plain_text` and `drawing` (which alone loads rich), and only when there is one.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from osmosis_ai.consts import PACKAGE_VERSION
from osmosis_ai.errors import InteractiveRequiredError, OsmosisError

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from osmosis_ai.cli.results import Block, Result

type Format = Literal["rich", "plain", "json"]

_ANSI = {"bold red": "1;31", "yellow": "33", "dim": "2"}
_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
)  # the last two turn the reading direction


class Cancelled(Exception):
    """The user declined a confirmation or left a prompt."""


class Output:
    """What a command may say, and to whom. One object for each run of the program.

    Attributes:
        format: The chosen format.
        interactive: Whether questions may be asked.
    """

    format: ClassVar[Format]

    def __init__(self, *, interactive: bool = False) -> None:
        self.interactive = interactive

    def show(self, result: Result) -> None:
        """Draw the command's result on stdout."""
        raise NotImplementedError

    def present(self, *blocks: Block) -> None:
        """Show something before the result is known, such as a plan."""

    def lay_out(self, *blocks: Block) -> None:
        """Show what was asked about when nobody could answer: it is all that there will be to read."""
        self.present(*blocks)

    def note(self, text: str) -> None:
        """Say on one line what happens now."""

    @contextlib.contextmanager
    def working(self, text: str) -> Generator[None]:
        """Say what is waited for while it is: a line, or on a terminal a spinner that goes away."""
        self.note(text)
        yield

    def warn(self, message: str, code: str | None = None) -> None:
        """Tell the user about something that does not stop the command."""
        raise NotImplementedError

    def error(self, error: OsmosisError, command: str, hint: str = "") -> None:
        """Tell why the command failed.

        Args:
            error: What went wrong.
            command: Words of the command, `<root>` when none was reached.
            hint: One more line for people.
        """
        raise NotImplementedError

    def cancelled(self) -> None:
        """Acknowledge that the user said no."""

    def interrupted(self) -> None:
        """Acknowledge Ctrl-C."""

    def confirm(
        self,
        question: str,
        *,
        default: bool,
        summary: Mapping[str, str],
        notes: Sequence[str] = (),
        warnings: Sequence[str] = (),
    ) -> None:
        """Ask before something that costs money or destroys.

        Raises:
            Cancelled: The answer was no.
            InteractiveRequiredError: Nobody can be asked.
        """
        if not self.interactive:
            asides = [*notes, *(f"⚠ {warning}" for warning in warnings)]
            from osmosis_ai.cli.results import Fields, Lines

            self.lay_out(Lines([question]), Fields(list(summary.items())), Lines(asides))
            raise InteractiveRequiredError(
                "Use --yes to confirm in non-interactive mode.",
                details={
                    "prompt": question,
                    "summary": dict(summary),
                    **({"notes": list(notes)} if notes else {}),
                    **({"warnings": list(warnings)} if warnings else {}),
                },
            )
        from osmosis_ai.cli.prompts import confirm

        for line in (*notes, *(f"⚠ {w}" for w in warnings)):
            self.note(line)
        if not confirm(question, default=default):
            raise Cancelled

    def ask_hidden(self, label: str) -> str:
        """Ask for a value that must not be seen.

        Raises:
            Cancelled: The user left the prompt.
        """
        from osmosis_ai.cli.prompts import ask_hidden

        return ask_hidden(label)


class JsonOutput(Output):
    """One object a line: the result on stdout, warnings and the error on stderr."""

    format = "json"

    def show(self, result: Result) -> None:  # noqa: D102
        from osmosis_ai.cli.results import payload

        self._write(sys.stdout, payload(result))

    def warn(self, message: str, code: str | None = None) -> None:  # noqa: D102
        warning = {"code": code, "message": message}
        self._write(sys.stderr, {"schema_version": 1, "cli_version": PACKAGE_VERSION, "warning": warning})

    def error(self, error: OsmosisError, command: str, hint: str = "") -> None:  # noqa: D102
        shown = {"code": error.error_code, "message": error.message, "details": error.details}
        envelope = {"schema_version": 1, "command": command, "cli_version": PACKAGE_VERSION, "error": shown}
        self._write(sys.stderr, envelope)

    @staticmethod
    def _write(stream: Any, value: Mapping[str, Any]) -> None:
        """Write one object as UTF-8 whatever the locale; a value that is not JSON (NaN) raises before a byte is out."""
        import json

        data = (json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8", "backslashreplace")
        stream.flush()
        buffer = getattr(stream, "buffer", None)
        if buffer is None:
            stream.write(data.decode("utf-8"))
        else:
            buffer.write(data)
        stream.flush()


class TextOutput(Output):
    """What the two text formats share: errors and warnings on stderr."""

    warning_prefix: ClassVar[str]

    def warn(self, message: str, code: str | None = None) -> None:  # noqa: D102
        self._say(f"{self.warning_prefix}{clean(message)}", "yellow")

    def error(self, error: OsmosisError, command: str, hint: str = "") -> None:  # noqa: D102
        self._say(f"Error: {clean(error.message)}", "bold red")
        if hint:
            self._say(hint, "dim")

    def interrupted(self) -> None:  # noqa: D102
        self._say("Interrupted.", "bold red")

    def _say(self, text: str, style: str) -> None:
        _line(sys.stderr, text)


class PlainOutput(TextOutput):
    """Text for pipes and logs: no frames, no colours, tabs between cells."""

    format = "plain"
    warning_prefix = "warning: "

    def show(self, result: Result) -> None:  # noqa: D102
        from osmosis_ai.cli.plain_text import plain_lines

        for line in plain_lines(result):
            _line(sys.stdout, line)

    def present(self, *blocks: Block) -> None:  # noqa: D102
        from osmosis_ai.cli.plain_text import block_lines

        for line in block_lines(blocks):
            _line(sys.stderr, line)

    def note(self, text: str) -> None:  # noqa: D102
        _line(sys.stderr, clean(text))


class RichOutput(TextOutput):
    """Text for people at a terminal: frames, colours, questions."""

    format = "rich"
    warning_prefix = "⚠ "

    def show(self, result: Result) -> None:  # noqa: D102
        from osmosis_ai.cli.drawing import draw_result

        draw_result(result)

    def present(self, *blocks: Block) -> None:  # noqa: D102
        from osmosis_ai.cli.drawing import draw, make_console

        draw(make_console(stderr=True), *blocks)

    def lay_out(self, *blocks: Block) -> None:  # noqa: D102
        from osmosis_ai.cli.drawing import draw, make_console

        draw(make_console(), *blocks)

    def note(self, text: str) -> None:  # noqa: D102
        self._say(clean(text), "dim")

    @contextlib.contextmanager
    def working(self, text: str) -> Generator[None]:  # noqa: D102
        if not (self.interactive and live_allowed()):
            self.note(text)
            yield
            return
        from osmosis_ai.cli.drawing import make_console

        with make_console(stderr=True).status(clean(text), spinner="dots"):
            yield

    def cancelled(self) -> None:  # noqa: D102
        _line(sys.stdout, "Cancelled.")

    def _say(self, text: str, style: str) -> None:
        if colours_allowed() and sys.stderr.isatty():
            text = "\n".join(f"\x1b[{_ANSI[style]}m{line}\x1b[0m" for line in text.split("\n"))
        _line(sys.stderr, text)


def make_output(format: Format, *, interactive: bool) -> Output:
    """The output of a format; `interactive` counts only where the format may ask."""
    match format:
        case "json":
            return JsonOutput()
        case "plain":
            return PlainOutput()
        case "rich":
            return RichOutput(interactive=interactive)


def colours_allowed() -> bool:
    """Whether the terminal and the user want more than plain characters."""
    dumb = os.environ.get("TERM") in ("dumb", "unknown")
    return not os.environ.get("NO_COLOR") and not dumb and sys.stdout.isatty()


def live_allowed() -> bool:
    """Whether a region of the terminal may be redrawn."""
    return colours_allowed() and sys.stderr.isatty()


def clean(text: str) -> str:
    """Text that cannot steer a terminal: control characters but tab and line feed are spelled out (backslash x1b)."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text.replace("\r\n", "\n"))


def _line(stream: Any, text: str) -> None:
    stream.write(text + "\n")
    stream.flush()
