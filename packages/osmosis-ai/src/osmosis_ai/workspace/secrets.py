"""Values of the names in `[secrets].required`: file, environment, prompt, in this order.

Owns: the file's format and the order. Values are returned to the caller only; they enter no file, argument or message.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from osmosis_ai.errors import InteractiveRequiredError, ValidationError


def check_sendable(name: str, value: str) -> str:
    """Return a value that can be sent as it is.

    Raises:
        ValidationError: It is not UTF-8 text; a request body would carry another value in its place.
    """
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValidationError(f"The value of {name} is not UTF-8 text, so it cannot be sent; nothing was.") from None
    return value


def parse_secrets(text: str, source: str) -> dict[str, str]:
    """Parse `NAME=value` lines: `export ` is allowed, `#` lines are comments, one pair of outer quotes is removed.

    Raises:
        ValidationError: A line is not an assignment; it is named by number only, never by its text.
    """
    values: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        name, equals, value = stripped.removeprefix("export ").partition("=")
        name, value = name.strip(), value.strip()
        quoted = value[:1] in ("'", '"')
        unclosed = quoted and (len(value) < 2 or value[-1] != value[0])
        if not equals or unclosed or not name.isidentifier() or not name.isascii() or "\0" in value:
            raise ValidationError(
                f"Invalid line {number} in {source}: expected NAME=value."
                " Values spanning multiple lines are not supported."
            )
        values[name] = value[1:-1] if quoted else value
    return values


def read_secrets_file(given: str) -> dict[str, str]:
    """The values of a secrets file; `-` reads standard input.

    Raises:
        ValidationError: It cannot be read, is not UTF-8, or a line is malformed.
    """
    source = "standard input" if given == "-" else given
    try:
        raw = sys.stdin.buffer.read() if given == "-" else Path(given).read_bytes()
    except FileNotFoundError:
        raise ValidationError(f"Secrets file not found: {given}") from None
    except IsADirectoryError:
        raise ValidationError(f"--secrets-file {given} is a directory; give a file of NAME=value lines.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ValidationError(f"Cannot read secrets from {source}: {reason}") from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ValidationError(f"Invalid line {line} in {source}: it is not UTF-8 text.") from None
    return parse_secrets(text.replace("\r\n", "\n"), source)


def resolve_secrets(
    names: Sequence[str],
    *,
    file_values: Mapping[str, str],
    environ: Mapping[str, str],
    ask: Callable[[str], str] | None,
) -> dict[str, str]:
    """One value for each name: the file's, else the environment's, else the answer to `ask`; empty ones do not count.

    Args:
        names: The required names.
        file_values: From `read_secrets_file`.
        environ: The process environment.
        ask: Hidden prompt for one name, or None when nobody can answer.

    Raises:
        InteractiveRequiredError: Some have no value and nobody can be asked; `details` names all of them.
    """
    found = {name: value for name in names if (value := file_values.get(name) or environ.get(name))}
    missing = [name for name in names if name not in found]
    if missing and ask is None:
        raise InteractiveRequiredError(
            f"No value found for: {', '.join(missing)}. Export them or pass --secrets-file.",
            details={"missing": missing, "flags": ["--secrets-file"]},
        )
    if ask is not None:
        found.update({name: ask(name) for name in missing})
    return {name: found[name] for name in names}
