"""`platform.toml` of a data directory: which setting comes from where, and changing one line without touching the others."""

from __future__ import annotations

import json
import os
import re
import secrets
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import SecretStr, ValidationError

from osmosis_platform.errors import InvalidRequestError, UnavailableError
from osmosis_platform.settings import SETTINGS_FILE, Settings

# where the file lies, and the key that must not lie beside what it protects
_ELSEWHERE = {
    "data_dir": "--data-dir",
    "master_key": "OSMOSIS_MASTER_KEY",
    "master_key_file": "OSMOSIS_MASTER_KEY_FILE",
}


@dataclass(frozen=True, slots=True)
class Shown:
    """One setting as it holds now.

    Attributes:
        value: None for none; secrets are only said to be set.
        source: A variable's name, the file's name, or `default`.
    """

    name: str
    value: str | int | float | bool | None
    source: str
    about: str


def names() -> list[str]:
    """Every setting."""
    return list(Settings.model_fields)


def variable_of(name: str) -> str:
    """The variable of a setting."""
    return str(Settings.model_fields[name].validation_alias or f"OSMOSIS_PLATFORM_{name.upper()}")


def is_secret(name: str) -> bool:
    """Whether a setting must not be shown or given on a command line."""
    return "SecretStr" in str(Settings.model_fields[name].annotation)


def shown(settings: Settings) -> list[Shown]:
    """Every setting with its value and where that comes from."""
    filed = read(settings.data_dir / SETTINGS_FILE)
    found = []
    for name, field in Settings.model_fields.items():
        value = getattr(settings, name)
        source = "default"
        if name in filed:
            source = SETTINGS_FILE
        if variable_of(name) in os.environ:
            source = variable_of(name)
        if isinstance(value, SecretStr):
            value = "(set, not shown)"
        found.append(Shown(name, str(value) if isinstance(value, Path) else value, source, field.description or ""))
    return found


def unknown(settings: Settings) -> list[str]:
    """Lines of the file and variables that are no setting: most likely misspelt, and without effect."""
    known = {variable_of(name) for name in names()} | {
        "OSMOSIS_PLATFORM_URL"
    }  # a client's variable, often set here too
    lines = [f"{name} in {SETTINGS_FILE}" for name in read(settings.data_dir / SETTINGS_FILE) if name not in names()]
    return lines + sorted(name for name in os.environ if name.startswith("OSMOSIS_PLATFORM_") and name not in known)


def change(directory: Path, changes: Mapping[str, str | None]) -> dict[str, Any]:
    """Sets lines of a data directory's file, or with None removes them, together; all else in it stays as it is.

    Returns:
        The values as they were understood, by name.

    Raises:
        InvalidRequestError: There is no such setting, it does not belong into the file, a value is wrong, or the file
            cannot be changed by this program.
        UnavailableError: The file cannot be written.
    """
    for name in changes:
        _check_name(name)
    path = directory / SETTINGS_FILE
    after = {key: value for key, value in read(path).items() if key not in changes}
    texts = {name: text for name, text in changes.items() if text is not None}
    understood = _understood(after, texts)
    after |= understood
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    lines = [line for line in lines if not any(re.match(rf"\s*{name}\s*=", line) for name in changes)]
    top = next((index for index, line in enumerate(lines) if line.lstrip().startswith("[")), len(lines))
    lines[top:top] = [f"{name} = {_literal(value)}" for name, value in understood.items()]
    written = "\n".join(lines) + "\n" if lines else ""
    try:
        says = tomllib.loads(written)
    except tomllib.TOMLDecodeError:
        says = None
    if says != after:
        message = f"{path} is written in a way that this command cannot change safely; edit it yourself."
        raise InvalidRequestError(message, code="SETTING")
    _write(path, written)
    return understood


def _check_name(name: str) -> None:
    if name not in names():
        from difflib import get_close_matches

        near = get_close_matches(name, names(), n=1)
        hint = f" Did you mean {near[0]}?" if near else " See `osmosis-platform settings show`."
        raise InvalidRequestError(f"There is no setting {name[:60]!r}.{hint}", field="name", code="SETTING")
    if name in _ELSEWHERE:
        message = f"{name} does not go into {SETTINGS_FILE}; give it as {_ELSEWHERE[name]}."
        raise InvalidRequestError(message, field="name", code="SETTING")


def read(path: Path) -> dict[str, Any]:
    """What the file says; nothing when there is none.

    Raises:
        InvalidRequestError: It is no TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        message = f"{path} is no TOML: {error}. Mend that line: name = value, with texts in quotes."
        raise InvalidRequestError(message, code="SETTING") from None
    except OSError as error:
        raise UnavailableError(f"{path} cannot be read: {error.strerror}.", code="SETTING") from error


def _understood(others: Mapping[str, Any], texts: Mapping[str, str]) -> dict[str, Any]:
    # a directory without a file: what is being taken out must not come in again
    given: dict[str, Any] = {name: value for name, value in others.items() if name in names()}
    given |= {"data_dir": Path("/nonexistent"), **texts}
    try:
        made = Settings(**given)
    except ValidationError as error:
        finding = error.errors(include_input=False, include_url=False)[0]
        what = ".".join(str(part) for part in finding["loc"]) or ", ".join(texts) or "What is left"
        said = str(finding["msg"]).removeprefix("Value error, ")
        message = f"{what} cannot be that: {said}. Nothing was changed."
        raise InvalidRequestError(message, field="value", code="SETTING") from None
    values: dict[str, Any] = {}
    for name in texts:
        value = getattr(made, name)
        if value is None:
            message = f"{name} cannot be empty; `osmosis-platform settings unset {name}` gives it its default."
            raise InvalidRequestError(message, field="value", code="SETTING")
        secret = value.get_secret_value() if isinstance(value, SecretStr) else value
        values[name] = str(secret) if isinstance(secret, Path) else secret
    return values


def _literal(value: str | int | float | bool) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return ("true" if value else "false") if isinstance(value, bool) else repr(value)


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(descriptor)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UnavailableError(f"{path} cannot be written: {error.strerror}.", code="SETTING") from error
