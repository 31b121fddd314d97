"""The process environment of one command: the dotenv file and the platform's address.

Owns: finding and merging `.env`, the rule that an auth profile comes from one source, the refusal of plain http off
this machine. Runs once, in the root step, before any command. The form of a platform's URL is the client room's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from osmosis_ai.errors import ConflictError, UsageError, ValidationError

PLATFORM_URL_VARIABLE = "OSMOSIS_PLATFORM_URL"
_TOKEN_VARIABLE, _BINDING_VARIABLE = "OSMOSIS_TOKEN", "OSMOSIS_TOKEN_PLATFORM_URL"
_AUTH_VARIABLES = (_TOKEN_VARIABLE, PLATFORM_URL_VARIABLE, _BINDING_VARIABLE)
# What Git, the loader, OpenSSL, keyrings, the desktop and installers of packages take programs, certificates and
# settings from.
_STEERING_PREFIXES = (
    *("GIT_", "LD_", "DYLD_", "SSH_ASKPASS", "OPENSSL_", "SSL_CERT_"),
    *("KEYRING_", "DBUS_", "XDG_CONFIG_", "XDG_DATA_", "PIP_"),
)
_STEERING = frozenset(
    "PATH HOME BROWSER GCONV_PATH PYTHONHOME PYTHON_KEYRING_BACKEND XDG_RUNTIME_DIR"
    " SSLKEYLOGFILE REQUESTS_CA_BUNDLE CURL_CA_BUNDLE"
    " UV_CONFIG_FILE UV_DEFAULT_INDEX UV_EXTRA_INDEX_URL UV_FIND_LINKS UV_INDEX UV_INDEX_URL".split()
)


def prepare_environment(env_file: str | None, platform: str | None, warn: Callable[[str, str], None]) -> None:
    """Bring the dotenv file and `--platform` into the process environment.

    Args:
        env_file: Value of `--env-file`, or None.
        platform: Value of `--platform`; it beats the process and the file.
        warn: Gets a message and its code.

    Raises:
        UsageError: The named dotenv file is no readable file.
        ConflictError: The file and the process hold different auth profiles.
        ValidationError: The platform's URL is malformed, or plain http to another machine.
    """
    found = _named_file(env_file) if env_file is not None else None
    if found is None and (variable := os.environ.get("OSMOSIS_ENV_FILE")):
        found = _named_file(variable, option="OSMOSIS_ENV_FILE")
    chosen = found is not None
    if found is None:
        found = _nearest_file()
    if platform is not None and not platform.strip():
        raise ValidationError("--platform requires the URL of a platform.")
    if found is not None:
        values = _read(found, warn)
        if not chosen:
            values = _harmless(values, found, warn)
        _merge(values, found, warn, without_url=platform is not None)
    if platform is not None:
        os.environ[PLATFORM_URL_VARIABLE] = platform
    if url := os.environ.get(PLATFORM_URL_VARIABLE):
        from osmosis_ai.client.address import normalise_platform_url

        _refuse_insecure(normalise_platform_url(url), warn)


def _named_file(given: str, option: str = "--env-file") -> Path:
    path = Path(given)
    if path.is_dir():
        raise UsageError(f"Invalid value for {option}: '{given}' is a directory; it must be a dotenv file.")
    if not path.exists():
        raise UsageError(f"Invalid value for {option}: file '{given}' does not exist.")
    if not os.access(path, os.R_OK):
        raise UsageError(f"Invalid value for {option}: file '{given}' cannot be read.")
    return path


def _nearest_file() -> Path | None:
    try:
        here = Path.cwd()
    except FileNotFoundError:
        return None
    return next((file for folder in (here, *here.parents) if (file := folder / ".env").is_file()), None)


def _read(path: Path, warn: Callable[[str, str], None]) -> dict[str, str]:
    import io
    import logging

    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValidationError(
            f"{path} is not UTF-8 text; save it as UTF-8 or name another file with --env-file."
        ) from None
    except OSError as error:
        raise ValidationError(f"Cannot read {path}: {error.strerror}") from None
    from dotenv import dotenv_values

    unread: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            unread.append(record.getMessage())

    complaints, collector = logging.getLogger("dotenv.main"), Collector()
    complaints.addHandler(collector)
    complaints.propagate = False
    values = dotenv_values(stream=io.StringIO(text))
    complaints.removeHandler(collector)
    for message in unread:
        warn(f"{path}: {message}", "DOTENV_LINE_SKIPPED")
    return {name: value for name, value in values.items() if value is not None}


def _harmless(values: Mapping[str, str], source: Path, warn: Callable[[str, str], None]) -> dict[str, str]:
    """What may come from a file that only lies here: nothing that runs other programs or leads logins elsewhere.

    A repository from anywhere can hold a `.env`. Looking at its state must not run its code, and no file of it says
    whom a token may be sent to that it does not hold itself.
    """
    refused = {name: "can make other programs run or lead logins elsewhere" for name in values if _steers(name)}
    unbound = os.environ.get(_TOKEN_VARIABLE) and not os.environ.get(_BINDING_VARIABLE)
    if unbound and values.get(_BINDING_VARIABLE) and not values.get(_TOKEN_VARIABLE):
        refused[_BINDING_VARIABLE] = f"says where the {_TOKEN_VARIABLE} of the environment may be sent"
    for name, why in refused.items():
        warn(
            f"{source}: {name} {why}, so it is not taken from a file found by itself. Name the file with --env-file, or"
            " export the variable.",
            "DOTENV_LINE_SKIPPED",
        )
    return {name: value for name, value in values.items() if name not in refused}


def _steers(name: str) -> bool:
    return name.upper() in _STEERING or name.upper().startswith(_STEERING_PREFIXES)


def _merge(values: Mapping[str, str], source: Path, warn: Callable[[str, str], None], *, without_url: bool) -> None:
    """Set what the process lacks; its own non-empty values win."""
    compared = [name for name in _AUTH_VARIABLES if not (without_url and name == PLATFORM_URL_VARIABLE)]
    in_process = {name: os.environ[name] for name in compared if os.environ.get(name)}
    in_file = {name: values[name] for name in compared if values.get(name)}
    if in_process and in_file:
        from osmosis_ai.client.address import normalise_platform_url

        for name in in_process.keys() & in_file.keys():
            same = in_process[name] == in_file[name]
            if not same and name.endswith("_URL"):
                same = normalise_platform_url(in_process[name]) == normalise_platform_url(in_file[name])
            if not same:
                raise ConflictError(
                    f"The process already has an Osmosis auth profile, and {source} holds a different one ({name}"
                    " differs). Unset the variable, or keep the whole profile in one source."
                )
    for name, value in values.items():
        try:
            if not os.environ.get(name):
                os.environ[name] = value
        except ValueError:  # NUL or "=" in it, or characters that the locale does not have
            warn(f"{source}: the system takes no variable {name!r} with this value.", "DOTENV_LINE_SKIPPED")


def _refuse_insecure(url: str, warn: Callable[[str, str], None]) -> None:
    from osmosis_ai.client.address import ALLOW_INSECURE_VARIABLE, is_private_in_transit

    if is_private_in_transit(url):
        return
    warn(
        f"{PLATFORM_URL_VARIABLE} is not HTTPS ({url}). Tokens will be transmitted in plaintext.",
        "INSECURE_PLATFORM_URL",
    )
    if os.environ.get(ALLOW_INSECURE_VARIABLE) != "1":
        raise ValidationError(f"Refusing non-HTTPS platform URL {url}. Set {ALLOW_INSECURE_VARIABLE}=1 to override.")
