"""The login of a platform as Git asks for it: a credential helper's question and its answer (git help git-credential).

Owns: which questions are answered, and in which order tokens are looked for. The clone's settings are `cli.cloning`'s.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from osmosis_ai.client.address import PRODUCTION_URL, active_platform_url, normalise_platform_url
from osmosis_ai.client.credentials import (
    TOKEN_PLATFORM_VARIABLE,
    TOKEN_VARIABLE,
    environment_token,
    require_sendable,
    resolve_credential,
)
from osmosis_ai.errors import AuthRequiredError, ValidationError

if TYPE_CHECKING:
    from osmosis_ai.client.session import Warn

USERNAME = "osmosis"
"""Platforms take any; Git wants one."""


@dataclass(frozen=True, slots=True)
class Question:
    """What Git knows of the place that wants a login.

    Attributes:
        protocol: Such as `https`.
        host: With its port, if the address has one.
    """

    protocol: str
    host: str

    @classmethod
    def parse(cls, text: str) -> Question:
        """From the lines `key=value` that Git writes; other keys are passed over."""
        values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
        return cls(values.get("protocol", ""), values.get("host", ""))

    def is_about(self, url: str) -> bool:
        """Whether the place is where a URL leads, whatever path the URL has."""
        parts = urlsplit(normalise_platform_url(url))
        try:
            asked = urlsplit(normalise_platform_url(f"{self.protocol}://{self.host}"))
        except ValidationError:
            return False
        return (asked.scheme, asked.netloc) == (parts.scheme, parts.netloc)


def find_token(
    question: Question,
    environ: Mapping[str, str],
    *,
    token_file: Path | None = None,
    known_as: str | None = None,
    warn: Warn,
) -> str | None:
    """The token for Git, or None where the question is not about the active platform.

    It is that of the file, else of the environment if it is bound to this platform, else of the stored login.

    Args:
        question: Git's.
        environ: The environment; it names the platform.
        token_file: A file with a token.
        known_as: An address under which Git, and only Git, knows the platform.
        warn: Told of a token file that cannot be read.

    Raises:
        OsmosisError: There is no login, it is over, or it cannot be read.
    """
    platform_url = active_platform_url(environ)
    if not question.is_about(platform_url) and not (known_as and question.is_about(known_as)):
        return None
    if token_file is not None:
        try:
            return require_sendable(token_file.read_text(encoding="utf-8").strip(), str(token_file))
        except (OSError, UnicodeDecodeError) as error:
            warn(f"The token file {token_file} cannot be read ({error}); looking for another login.", "TOKEN_FILE")
    if environment_token(environ):
        bound = environ.get(TOKEN_PLATFORM_VARIABLE, "").strip() or PRODUCTION_URL
        if normalise_platform_url(bound) != platform_url:
            environ = {name: value for name, value in environ.items() if name != TOKEN_VARIABLE}
    try:
        return resolve_credential(environ, warn).token
    except AuthRequiredError as error:
        reason = error.message.partition(".")[0]
        remedy = f"Run 'osmosis --platform {platform_url} auth login', then try again."
        raise AuthRequiredError(f"Git needs the login of {platform_url}. {reason}. {remedy}") from None


def answer(token: str) -> str:
    """The lines that Git reads."""
    return f"username={USERNAME}\npassword={token}\n"


def helper(platform_url: str, *options: str) -> str:
    """The value of `credential.<url>.helper` that leads Git to this very program; it holds no secret.

    Args:
        platform_url: The one platform that it answers for.
        options: Of `osmosis auth git-credential`.
    """
    program = Path(sys.executable).with_name("osmosis")
    return "!" + shlex.join([str(program), "--platform", platform_url, "auth", "git-credential", *options])
