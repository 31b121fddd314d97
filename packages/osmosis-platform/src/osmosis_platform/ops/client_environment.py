"""The variables under which a client on any machine works with this platform (evidence-platform.md 4.1).

The published client clones from github.com and takes no origin of another host. So Git is told that github.com, on the
platform's port, is this platform: addresses of github.com become `http://github.com:<port>/`, and that name resolves to the
platform's address. The origin that Git shows is then still one of github.com, while everything goes to us. A platform with
TLS has no certificate for that name; there the addresses are rewritten to the platform's own.
"""

from __future__ import annotations

import shlex
import socket
from pathlib import Path
from urllib.parse import urlsplit

from osmosis_platform.errors import InvalidRequestError
from osmosis_platform.ops.instance import read_url
from osmosis_platform.settings import Settings

# Git asks a helper for `get` and for nothing else; a helper that says nothing lets Git ask the person. The token comes from
# a file or a variable, so neither an address, a command line nor .git/config ever holds it.
_FROM_FILE = '!f() {{ test "$1" = get && echo username=token && echo "password=$(cat {path})"; }}; f'
_FROM_VARIABLE = (
    '!f() { test "$1" = get && test -n "$OSMOSIS_TOKEN" && echo username=token && echo "password=$OSMOSIS_TOKEN"; }; f'
)
_GITHUB = ("https://github.com/", "git@github.com:", "ssh://git@github.com/")


def client_environment(settings: Settings, *, url: str | None = None, token_file: Path | None = None) -> dict[str, str]:
    """Environment variables for `osmosis` (ours and the published 0.3.8) and for Git.

    Args:
        settings: Of the platform; used to find its URL.
        url: How clients reach it, if another way.
        token_file: Read whenever Git asks, and the login of `osmosis`.

    Raises:
        InvalidRequestError: The URL or the token file cannot be used.
    """
    base = (url or read_url(settings) or settings.base_url).rstrip("/")
    values = {"OSMOSIS_PLATFORM_URL": base, "OSMOSIS_TOKEN_PLATFORM_URL": base}
    helper = _FROM_VARIABLE
    if token_file is not None:
        try:
            values["OSMOSIS_TOKEN"] = token_file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidRequestError(f"The token file {token_file} cannot be read: {error}.") from error
        helper = _FROM_FILE.format(path=shlex.quote(str(token_file.absolute())))
    pairs = [(f"credential.{base}.helper", ""), (f"credential.{base}.helper", helper)]
    pairs += _as_github(base, helper)
    values["GIT_CONFIG_COUNT"] = str(len(pairs))
    for index, (key, value) in enumerate(pairs):
        values[f"GIT_CONFIG_KEY_{index}"], values[f"GIT_CONFIG_VALUE_{index}"] = key, value
    return values


def _as_github(base: str, helper: str) -> list[tuple[str, str]]:
    parts = urlsplit(base)
    if parts.scheme != "http":
        return [(f"url.{base}/git/.insteadOf", address) for address in _GITHUB]
    port = parts.port or 80
    try:
        address = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)[0][4][0]
    except (OSError, UnicodeError) as error:
        raise InvalidRequestError(f"The host of {base} has no address: {error}.", field="url") from error
    named = f"http://github.com:{port}"
    shown = f"[{address}]" if ":" in str(address) else address
    return [
        ("http.curloptResolve", f"github.com:{port}:{shown}"),
        (f"credential.{named}.helper", ""),
        (f"credential.{named}.helper", helper),
        *((f"url.{named}/.insteadOf", each) for each in _GITHUB),
    ]
