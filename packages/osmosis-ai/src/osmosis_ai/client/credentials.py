"""Which token a command sends: the environment's, or the stored login of the active platform.

Owns: the look-up order and the binding of an environment token to one platform. Where logins are stored is `logins`.
"""

# ruff: noqa: S105 - names of variables and stores, not passwords
from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from osmosis_ai.client.address import PRODUCTION_URL, active_platform_url, normalise_platform_url
from osmosis_ai.errors import (
    AuthRequiredError,
    ForeignTokenError,
    TokenNotFoundError,
    UnboundTokenError,
    ValidationError,
)

if TYPE_CHECKING:
    from osmosis_ai.client.session import Warn

TOKEN_VARIABLE = "OSMOSIS_TOKEN"
TOKEN_PLATFORM_VARIABLE = "OSMOSIS_TOKEN_PLATFORM_URL"

type EffectiveSource = Literal["environment", "keyring", "file"]


@dataclass(frozen=True, slots=True)
class Credential:
    """A token and where it came from.

    Attributes:
        token: Sent as the bearer; never shown.
        platform_url: The normalised platform it is for.
        effective_source: Where it was found.
        token_id: The platform's id of a stored login, when known.
    """

    token: str
    platform_url: str
    effective_source: EffectiveSource
    token_id: str | None = None

    def __repr__(self) -> str:
        return f"Credential({self.platform_url!r}, {self.effective_source!r})"

    @property
    def source(self) -> Literal["environment", "credentials"]:
        """The published word for where it came from."""
        return "environment" if self.effective_source == "environment" else "credentials"


def resolve_credential(environ: Mapping[str, str] | None = None, warn: Warn | None = None) -> Credential:
    """The token for the active platform.

    Args:
        environ: The environment; the process's by default.
        warn: Gets a warning, `TOKEN_NOT_FOUND`, where a login is stored but its token is not.

    Raises:
        AuthRequiredError: No login, or an expired one.
        OsmosisError: The environment token is bound to no or to another platform; the stored login cannot be read.
    """
    environ = os.environ if environ is None else environ
    platform_url = active_platform_url(environ)
    if token := environment_token(environ):
        _require_binding(environ, platform_url)
        return Credential(require_sendable(token, TOKEN_VARIABLE), platform_url, "environment")
    from osmosis_ai.client.logins import load_login

    login = load_login(platform_url)
    if login is None:
        raise AuthRequiredError("Not logged in. Run 'osmosis auth login' first.")
    if login.is_expired():
        raise AuthRequiredError("Your session has expired. Please run 'osmosis auth login' to re-authenticate.")
    try:
        token = login.read_token()
    except TokenNotFoundError as error:
        if warn is not None:
            warn(error.message, error.error_code)
        raise AuthRequiredError("Not logged in. Run 'osmosis auth login' first.") from None
    return Credential(token, platform_url, login.token_store, login.token_id)


def environment_token(environ: Mapping[str, str]) -> str | None:
    """The token of `OSMOSIS_TOKEN`; an empty one counts as unset."""
    return environ.get(TOKEN_VARIABLE, "").strip() or None


def require_sendable(token: str, named: str) -> str:
    """Check that a token can stand in a header.

    Raises:
        ValidationError: It is empty or has characters that no header can carry; the token itself is not repeated.
    """
    if not token or any(not "!" <= letter <= "~" for letter in token):
        raise ValidationError(f"{named} is not a token: it is empty, or holds white space or other odd characters.")
    return token


def _require_binding(environ: Mapping[str, str], platform_url: str) -> None:
    """Refuse to send an environment token to a platform that it is not meant for."""
    given = environ.get(TOKEN_PLATFORM_VARIABLE, "").strip()
    if not given:
        if platform_url != PRODUCTION_URL:
            raise UnboundTokenError(
                f"{TOKEN_VARIABLE} must be bound to this non-production platform."
                f" Set {TOKEN_PLATFORM_VARIABLE}={platform_url}.",
                details={"platform_url": platform_url},
            )
        return
    bound = normalise_platform_url(given)
    if bound != platform_url:
        raise ForeignTokenError(
            f"{TOKEN_VARIABLE} is bound to {bound}, but the active platform is {platform_url}."
            " Refusing to send the token to a different platform.",
            details={"platform_url": platform_url, "token_platform_url": bound},
        )
