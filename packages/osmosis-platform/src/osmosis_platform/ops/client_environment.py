"""The variables under which a client on any machine works with this platform (evidence-platform.md 4.1)."""

from __future__ import annotations

import shlex
from pathlib import Path

from osmosis_platform.ops.instance import read_url
from osmosis_platform.settings import Settings

# Git asks a helper for `get` and for nothing else; the token comes from a file or a variable, so neither an address, a
# command line nor .git/config ever holds it.
_FROM_FILE = '!f() {{ test "$1" = get && echo username=token && echo "password=$(cat {path})"; }}; f'
_FROM_VARIABLE = '!f() { test "$1" = get && echo username=token && echo "password=$OSMOSIS_TOKEN"; }; f'


def client_environment(
    settings: Settings, *, url: str | None = None, token_file: Path | None = None, rewrite_github: bool = False
) -> dict[str, str]:
    """Environment variables for `osmosis` (ours and the published 0.3.8) and for Git.

    Args:
        settings: Of the platform; used to find its URL.
        url: How clients reach it, if another way.
        token_file: Read whenever Git asks, and named for the login.
        rewrite_github: Let addresses of github.com lead here. The stored origin stays github.com's, which the published
            client wants to see; only commands under these variables come here.
    """
    base = (url or read_url(settings) or settings.base_url).rstrip("/")
    values = {"OSMOSIS_PLATFORM_URL": base, "OSMOSIS_TOKEN_PLATFORM_URL": base}
    if token_file is not None:
        values["OSMOSIS_TOKEN"] = token_file.read_text(encoding="ascii").strip()
        helper = _FROM_FILE.format(path=shlex.quote(str(token_file.absolute())))
    else:
        helper = _FROM_VARIABLE
    pairs = [(f"credential.{base}.helper", ""), (f"credential.{base}.helper", helper)]
    if rewrite_github:
        pairs += [(f"url.{base}/git/.insteadOf", f"{scheme}github.com{end}") for scheme, end in _GITHUB]
    values["GIT_CONFIG_COUNT"] = str(len(pairs))
    for index, (key, value) in enumerate(pairs):
        values[f"GIT_CONFIG_KEY_{index}"], values[f"GIT_CONFIG_VALUE_{index}"] = key, value
    return values


_GITHUB = (("https://", "/"), ("git@", ":"), ("ssh://git@", "/"))
