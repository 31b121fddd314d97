"""Whose token it is: the platform's `verify` call, and taking a token back.

Owns: these two requests and the reading of their replies, which logging in, logging out and `whoami` share.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from osmosis_ai.client.http import failure_text, httpx_module, make_client, unreachable
from osmosis_ai.client.logins import Login, User, parse_time
from osmosis_ai.client.redaction import redact_error
from osmosis_ai.client.refusals import auth_refusal, refusal, upgrade_required
from osmosis_ai.client.session import API_PREFIX, segment, warn_of_version
from osmosis_ai.client.wire import Record, parse_json
from osmosis_ai.consts import PACKAGE_VERSION
from osmosis_ai.errors import AuthRequiredError, OsmosisError, PlatformError, UpgradeRequiredError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx

    from osmosis_ai.client.credentials import Credential
    from osmosis_ai.client.scope import GitScope
    from osmosis_ai.client.session import Warn

TIMEOUT_S = 30.0
REVOKE_TIMEOUT_S = 5.0
_UNSTATED_LIFETIME = timedelta(days=90)


@dataclass(frozen=True, slots=True)
class Workspace:
    """The workspace a repository is connected to."""

    id: str | None
    name: str
    role: str | None

    def to_json(self) -> dict[str, Any]:
        """As `whoami` shows it."""
        return {"id": self.id, "name": self.name, "role": self.role}


@dataclass(frozen=True, slots=True)
class Account:
    """What the platform says about a token.

    Attributes:
        user: Whose it is.
        expires_at: When it ends.
        token_id: Its id, for taking it back.
        workspace: The workspace of the repository the question named.
        end_stated: Whether the platform said when it ends; else 90 days are assumed.
    """

    user: User
    expires_at: datetime
    token_id: str | None
    workspace: Workspace | None = None
    end_stated: bool = True

    def as_login(self, platform_url: str) -> Login:
        """The login to store for it."""
        return Login(platform_url, self.user, self.expires_at, "file", token_id=self.token_id)


def verify(credential: Credential, *, warn: Warn, scope: GitScope | None = None) -> Account:
    """Ask the platform whose token it is.

    With a scope, a refusal that is not about the token is no obstacle: the question is asked again without it.

    Raises:
        AuthRequiredError: The token is not accepted.
        PlatformError: No platform answers at this address, or it cannot answer now.
    """
    headers = {"Authorization": f"Bearer {credential.token}"}
    with make_client(credential.platform_url) as client:
        try:
            return _verified(client, credential, {**headers, **(scope.headers() if scope else {})}, warn)
        except (AuthRequiredError, UpgradeRequiredError):
            raise
        except OsmosisError:
            if scope is None:
                raise
        return _verified(client, credential, headers, warn)


def revoke(platform_url: str, token: str, token_id: str) -> str | None:
    """Take a token back, by its own authority.

    Returns:
        Why that failed; None when the platform does not accept the token any more.
    """
    try:
        with make_client(platform_url) as client:
            reply = client.delete(
                f"{platform_url}{API_PREFIX}/tokens/{segment(token_id)}",
                headers={**base_headers(), "Authorization": f"Bearer {token}"},
                timeout=REVOKE_TIMEOUT_S,
            )
    except httpx_module().HTTPError as error:
        return f"the platform cannot be reached: {failure_text(error)}"
    return None if reply.is_success or reply.status_code == 401 else f"it answered HTTP {reply.status_code}"


def read_account(value: Mapping[str, Any], where: str = "account") -> Account:
    """The account in a reply.

    Raises:
        PlatformError: It is malformed, or its token has ended already.
    """
    record = Record(value, where)
    user = record.record("user")
    stated = record.maybe_text("expires_at")
    now = datetime.now(UTC)
    try:
        expires_at = parse_time(stated) if stated else now + _UNSTATED_LIFETIME
    except ValueError:
        raise PlatformError(
            f"The platform sent an answer that this client cannot read: {where}.expires_at is no time with a zone.",
            details={"field": f"{where}.expires_at"},
        ) from None
    if expires_at <= now:
        raise PlatformError("The platform gave a token that has ended already; check this machine's clock.")
    found = record.maybe_record("workspace")
    workspace = None
    if found is not None and "name" in found:
        workspace = Workspace(found.maybe_text("id"), found.text("name"), found.maybe_text("role"))
    return Account(
        User(user.text("id"), user.text("email"), user.maybe_text("name")),
        expires_at,
        record.maybe_text("token_id"),
        workspace,
        end_stated=stated is not None,
    )


def base_headers() -> dict[str, str]:
    """What every request carries beside its login."""
    return {"Content-Type": "application/json", "X-Osmosis-CLI-Version": PACKAGE_VERSION}


def object_of(reply: httpx.Response) -> dict[str, Any]:
    """The reply's object; empty when it is none."""
    value = parse_json(reply.text)
    return value if isinstance(value, dict) else {}


def _verified(client: httpx.Client, credential: Credential, headers: Mapping[str, str], warn: Warn) -> Account:
    url = f"{credential.platform_url}{API_PREFIX}/verify"
    try:
        reply = client.get(url, headers={**base_headers(), **headers}, timeout=TIMEOUT_S, follow_redirects=True)
    except (httpx_module().HTTPError, httpx_module().InvalidURL) as error:
        raise unreachable(credential.platform_url, error) from None
    body = object_of(reply)
    environment_token = credential.effective_source == "environment"
    if reply.is_success:
        warn_of_version(reply.headers, warn)
        return read_account(body)
    match reply.status_code:
        case 401:
            error: OsmosisError = auth_refusal(body, environment_token=environment_token)
        case 404:
            error = PlatformError(
                f"No Osmosis platform answers at {credential.platform_url} (HTTP 404). Check OSMOSIS_PLATFORM_URL or"
                " --platform.",
                details={**body, "status_code": 404},
            )
        case 426:
            error = upgrade_required(body)
        case status:
            error = refusal(status, body, reply.text, environment_token=environment_token)
    raise redact_error(error, {credential.token})
