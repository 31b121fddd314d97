"""What the platform's error replies mean: one error of ours for each, with what the body said in its details.

Owns: the mapping from HTTP status and platform code to our codes and the fixed texts. Secrets are cut out by the caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from osmosis_ai.client.credentials import TOKEN_VARIABLE
from osmosis_ai.errors import (
    AuthRequiredError,
    BillingRequiredError,
    ConflictError,
    NotFoundError,
    OsmosisError,
    PlatformError,
    RateLimitedError,
    SubscriptionRequiredError,
    UpgradeRequiredError,
    ValidationError,
)

RENAMED_REPOSITORY_CODES = frozenset({"GIT_REPOSITORY_NOT_CONNECTED", "GIT_SCOPE_HEADER_ACCESS_DENIED"})
"""Refusals that a renamed repository may explain."""

_UNRESOLVED_REPOSITORY = (
    "The platform knows no workspace for this repository. Clone the repository that the platform created, or connect"
    " this one there."
)
_INVALID_IDENTITY = "The platform refuses this repository's identity. Check `git remote -v`, or use --workspace NAME."
_SCOPE_TEXTS = {
    "GIT_SCOPE_REQUIRED": "The platform needs to know the workspace. Run the command in a workspace's clone, or use"
    " --workspace NAME.",
    "GIT_SCOPE_INVALID": _INVALID_IDENTITY,
    "GIT_SCOPE_HEADER_INVALID": _INVALID_IDENTITY,
    "GIT_REPOSITORY_NOT_CONNECTED": _UNRESOLVED_REPOSITORY,
    "GIT_REPOSITORY_ACCESS_DENIED": "This account is no member of the repository's workspace. Log in with another"
    " account (osmosis auth login), or ask a member to invite it.",
    "GIT_SCOPE_HEADER_ACCESS_DENIED": "The platform knows no workspace for this repository, or this account is no"
    " member of it. Clone the repository that the platform created, or log in with another account (osmosis auth"
    " login).",
    "WORKSPACE_SCOPE_HEADER_CONFLICT": "The request named a repository and a workspace at once; this is a fault of the"
    " client. Please report it.",
    "WORKSPACE_SCOPE_HEADER_ACCESS_DENIED": "There is no workspace of this name, or this account is no member of it."
    " Check --workspace (`osmosis workspace list` shows the names) and the account (`osmosis auth whoami`).",
}
_SCOPE_TEXTS["GIT_SCOPE_HEADER_REQUIRED"] = _SCOPE_TEXTS["GIT_SCOPE_REQUIRED"]
SCOPE_CODES = frozenset(_SCOPE_TEXTS)
"""Refusals of the workspace that a request names."""

_DEPLOYMENT_CONFLICT = (
    "The platform is being deployed and blocks this request for a short time. Run the command again in a minute; if it"
    " goes on, contact the platform's operators."
)
_UPGRADE = "This version of the client is too old for the platform. Run 'osmosis upgrade'."
_QUOTED = 200


def refusal(status: int, body: Mapping[str, Any], text: str, *, environment_token: bool) -> OsmosisError:
    """The error of a reply that is no success.

    Args:
        status: The HTTP status.
        body: The reply's object, empty when it was none.
        text: The reply as text, quoted when there is no object.
        environment_token: Whether the request's token came from the environment.
    """
    platform_code = _text(body.get("code"))
    if status == 401:
        return AuthRequiredError(_auth_text(platform_code, environment_token))
    if status == 426:
        return upgrade_required(body, platform_code="UPGRADE_REQUIRED")
    message = _message(status, body, text)
    if fixed := _SCOPE_TEXTS.get(platform_code):
        message = fixed
    if "deployment_conflict" in (platform_code, body.get("error")):
        platform_code = "deployment_conflict"
        said = _text(body.get("message"))
        if not said or said == platform_code or "reload" in said.lower():
            message = _DEPLOYMENT_CONFLICT
    details = details_of(status, body, platform_code)
    match status:
        case 400:
            return ValidationError(message, details=details)
        case 403 if platform_code == "BILLING_REQUIRED":
            return BillingRequiredError(message, details=details)
        case 403 if platform_code == "SUBSCRIPTION_REQUIRED" or "subscription" in _text(body.get("error")).lower():
            return SubscriptionRequiredError(message, details=details)
        case 404:
            return NotFoundError(message, details=details)
        case 409:
            return ConflictError(message, details=details)
        case 429:
            return RateLimitedError(message, details=details)
    return PlatformError(message, details=details)


def looked_for(error: NotFoundError) -> bool:
    """Whether the platform looked for the thing at all: it knows the workspace, and serves things of this kind."""
    code = _text(error.details.get("platform_code"))
    return code != "NOT_SERVED" and code not in SCOPE_CODES


def auth_refusal(body: Mapping[str, Any], *, environment_token: bool) -> OsmosisError:
    """The error of a 401 on `verify`, which says in its details what the platform said."""
    code = _text(body.get("code"))
    return AuthRequiredError(_auth_text(code, environment_token), details=details_of(401, body, code))


def upgrade_required(body: Mapping[str, Any], platform_code: str = "") -> UpgradeRequiredError:
    """The error of a 426."""
    return UpgradeRequiredError(_text(body.get("message")) or _UPGRADE, details=details_of(426, body, platform_code))


def details_of(status: int, body: Mapping[str, Any], platform_code: str = "") -> dict[str, Any]:
    """What machines get to know of a reply."""
    code = {"platform_code": platform_code} if platform_code else {}
    return {**code, **body, "status_code": status}


def _message(status: int, body: Mapping[str, Any], text: str) -> str:
    said = _text(body.get("message")) or _text(body.get("error"))
    if not said and not body and text.strip():
        said = f"The platform answered HTTP {status}: {' '.join(text.split())[:_QUOTED]}"
    issues = body.get("issues")
    listed = [_issue(issue) for issue in issues] if isinstance(issues, list) else []
    return "\n".join([said or f"The platform answered HTTP {status} without a reason.", *filter(None, listed)])


def _issue(issue: Any) -> str:
    if isinstance(issue, str):
        return f"  - {issue}"
    if not isinstance(issue, dict):
        return ""
    key, said, correction = (_text(issue.get(name)) for name in ("key", "message", "key_correction"))
    suffix = f" (did you mean '{correction}'?)" if correction else ""
    return f"  - {': '.join(filter(None, (key, said)))}{suffix}" if key or said else ""


def _auth_text(code: str, environment_token: bool) -> str:
    if environment_token:
        state = {"TOKEN_EXPIRED": "has expired", "TOKEN_REVOKED": "has been revoked"}.get(code, "is not accepted")
        return (
            f"The token in {TOKEN_VARIABLE} {state}. Set {TOKEN_VARIABLE} to a new token, or unset it to use a saved"
            " login."
        )
    state = {"TOKEN_EXPIRED": "has expired", "TOKEN_REVOKED": "has been revoked"}.get(code, "is not accepted")
    return f"The saved login {state}. Run 'osmosis auth login' to log in again."


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""
