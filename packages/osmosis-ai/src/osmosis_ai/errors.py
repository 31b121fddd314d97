"""Every error a user can cause, with its stable code. The CLI and the HTTP surfaces make their shapes from these.

    OsmosisError                  anything we raise on purpose
    ├── UsageError                the command line itself is wrong (exit 2)                      VALIDATION
    ├── ValidationError           a value, file or combination is wrong                          VALIDATION
    ├── NotFoundError             the named thing does not exist                                 NOT_FOUND
    ├── ConflictError             something is in the way: existing files, another run           CONFLICT
    ├── WorkspaceRequiredError    not inside a Git work tree                                     WORKSPACE_REQUIRED
    ├── InteractiveRequiredError  a question must be asked and nobody can answer                 INTERACTIVE_REQUIRED
    ├── AuthRequiredError         no login, or the platform refuses it                           AUTH_REQUIRED
    ├── NetworkError              a machine we need cannot be reached                            NETWORK
    ├── PlatformError             a service answered with an error we cannot mend                PLATFORM_ERROR
    │   ├── UnreachableError      the platform cannot be reached at all                      PLATFORM_ERROR
    │   └── RateLimitedError, UpgradeRequiredError, SubscriptionRequiredError, BillingRequiredError
    ├── UnboundTokenError, ForeignTokenError      OSMOSIS_TOKEN is not for this platform         ENV_TOKEN_PLATFORM_*
    ├── CredentialsUnavailableError, -DamagedError, -VersionError      the file of logins        CREDENTIALS_*
    └── KeyringUnavailableError, KeyringCleanupError, TokenNotFoundError      the keyring        KEYRING_*, TOKEN_*

How to add one: subclass the nearest error, give it `code`, say in the docstring when it is raised, and make the
message name the thing, the place and the remedy. Errors pickle (no custom constructors with required arguments).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class OsmosisError(Exception):
    """An error made on purpose: `message` for people, `code` and `details` for machines.

    Args:
        message: What is wrong, where, and what to do; one or more lines, never with a secret.
        details: JSON-compatible facts for `error.details`.
        code: A more specific stable code than the class's own.
    """

    code: ClassVar[str] = "INTERNAL"
    exit_status: ClassVar[int] = 1

    def __init__(self, message: str = "", *, details: Mapping[str, Any] | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details: dict[str, Any] = dict(details or {})
        self.error_code: str = code or self.code


class UsageError(OsmosisError):
    """The command line cannot be parsed: unknown command or option, missing or malformed argument."""

    code = "VALIDATION"
    exit_status = 2


class ValidationError(OsmosisError):
    """A value, a file or a combination of options is wrong."""

    code = "VALIDATION"


class NotFoundError(OsmosisError):
    """The named thing does not exist."""

    code = "NOT_FOUND"


class ConflictError(OsmosisError):
    """Something is in the way: existing files, a lock held by another run, different inputs."""

    code = "CONFLICT"


class WorkspaceRequiredError(OsmosisError):
    """The command works on a workspace and the current directory is not in a Git work tree."""

    code = "WORKSPACE_REQUIRED"


class InteractiveRequiredError(OsmosisError):
    """A confirmation or a value is needed and the session cannot ask."""

    code = "INTERACTIVE_REQUIRED"


class AuthRequiredError(OsmosisError):
    """No login, or the other side refuses it."""

    code = "AUTH_REQUIRED"


class NetworkError(OsmosisError):
    """A machine that is needed cannot be reached."""

    code = "NETWORK"


class PlatformError(OsmosisError):
    """A service answered with an error that nothing here can mend."""

    code = "PLATFORM_ERROR"


class UnreachableError(PlatformError):
    """The platform cannot be reached at all, so nothing was sent."""


class RateLimitedError(PlatformError):
    """The platform wants fewer requests; wait, then run the command again."""

    code = "RATE_LIMITED"


class UpgradeRequiredError(PlatformError):
    """The platform does not serve this version of the client any more; run `osmosis upgrade`."""

    code = "UPGRADE_REQUIRED"


class SubscriptionRequiredError(PlatformError):
    """The workspace needs a subscription for this."""

    code = "SUBSCRIPTION_REQUIRED"


class BillingRequiredError(PlatformError):
    """The workspace has no billing set up, which this needs."""

    code = "BILLING_REQUIRED"


class UnboundTokenError(OsmosisError):
    """`OSMOSIS_TOKEN` needs `OSMOSIS_TOKEN_PLATFORM_URL` for another platform than production; nothing was sent."""

    code = "ENV_TOKEN_PLATFORM_REQUIRED"


class ForeignTokenError(OsmosisError):
    """`OSMOSIS_TOKEN_PLATFORM_URL` names another platform than the active one; nothing was sent."""

    code = "ENV_TOKEN_PLATFORM_MISMATCH"


class CredentialsUnavailableError(OsmosisError):
    """The file of saved logins cannot be read, written or moved."""

    code = "CREDENTIALS_UNAVAILABLE"


class CredentialsDamagedError(OsmosisError):
    """The file of saved logins, or the platform's entry in it, is malformed; `osmosis auth login` replaces it."""

    code = "CREDENTIALS_PARSE_FAILED"


class CredentialsVersionError(OsmosisError):
    """The file of saved logins has another format than this client's; its version is in the details."""

    code = "CREDENTIALS_VERSION_CHANGED"


class KeyringUnavailableError(OsmosisError):
    """The system's keyring is needed and cannot be reached; as a warning: a login went into the file instead."""

    code = "KEYRING_UNAVAILABLE"


class KeyringCleanupError(OsmosisError):
    """The system's keyring refuses to remove an entry."""

    code = "KEYRING_CLEANUP_FAILED"


class TokenNotFoundError(OsmosisError):
    """A login is saved but the keyring has no token for it; a warning, after which one counts as logged out."""

    code = "TOKEN_NOT_FOUND"
