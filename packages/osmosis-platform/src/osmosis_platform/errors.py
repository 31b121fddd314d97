"""Every error the platform answers on purpose, with its HTTP status and stable code; api.errors makes the envelope.

    ServiceError                                                                          status  code
    ├── InvalidRequestError        a field, header, name or combination is wrong             400  VALIDATION
    ├── UnauthorizedError          no credential, or one that does not count any more        401  TOKEN_INVALID, ...
    ├── ForbiddenError             the role or the token's scopes do not allow it            403  FORBIDDEN
    ├── MissingError               no such thing in this workspace                           404  NOT_FOUND
    ├── TakenError                 a name, a state or a newer write is in the way            409  CONFLICT
    ├── TooLargeError              a body, file or repository is over its limit              413  TOO_LARGE
    ├── TooManyRequestsError       slower, please                                            429  RATE_LIMITED
    ├── QuotaError                 an administrator's limit is reached                       403  QUOTA_EXCEEDED
    ├── BillingRequiredError       an administrator requires billing for this workspace      403  BILLING_REQUIRED
    ├── StorageFullError           the disk or the object store takes no more                507  STORAGE_FULL
    └── UnavailableError           the database, store or a peer does not answer now         503  UNAVAILABLE

How to add one: subclass the nearest, give it `status` and `code`, say in the docstring when it is raised, and make the
message name the thing, the place and the remedy; never a secret. A field name goes into `field`, further facts into
`details`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from osmosis_ai.errors import OsmosisError


class ServiceError(OsmosisError):
    """An answer other than success.

    Args:
        message: What is wrong, where, and what to do.
        code: A more specific stable code than the class's own.
        field: The request field it is about.
        issues: One entry per finding: a text, or `{key, message, key_correction}`.
        details: Further JSON facts, merged into the top level of the envelope.
        headers: Response headers, for example `Retry-After`.
    """

    status: ClassVar[int] = 500
    code: ClassVar[str] = "INTERNAL"

    def __init__(
        self,
        message: str = "",
        *,
        code: str | None = None,
        field: str | None = None,
        issues: Sequence[str | Mapping[str, Any]] = (),
        details: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message, details=details, code=code)
        self.field = field
        self.issues = list(issues)
        self.headers = dict(headers or {})


class InvalidRequestError(ServiceError):
    """A field, header, name or combination of the request is wrong."""

    status = 400
    code = "VALIDATION"


class UnauthorizedError(ServiceError):
    """No credential, or one that is unknown, expired or revoked; `code` says which."""

    status = 401
    code = "TOKEN_INVALID"


class ForbiddenError(ServiceError):
    """The caller is known, and its role or the token's scopes do not allow this."""

    status = 403
    code = "FORBIDDEN"


class QuotaError(ForbiddenError):
    """A limit that an administrator set is reached."""

    code = "QUOTA_EXCEEDED"


class BillingRequiredError(ForbiddenError):
    """An administrator requires billing for this workspace and it is not ready."""

    code = "BILLING_REQUIRED"


class MissingError(ServiceError):
    """No such thing here; also the answer for things of other workspaces, so that their existence stays unknown."""

    status = 404
    code = "NOT_FOUND"


class TakenError(ServiceError):
    """A name, a state or a newer write is in the way."""

    status = 409
    code = "CONFLICT"


class TooLargeError(ServiceError):
    """A body, file or repository is over its limit."""

    status = 413
    code = "TOO_LARGE"


class TooManyRequestsError(ServiceError):
    """The caller must slow down; `Retry-After` says for how long."""

    status = 429
    code = "RATE_LIMITED"


class UnavailableError(ServiceError):
    """The database, the object store or a peer does not answer now; nothing was changed, and a retry may succeed."""

    status = 503
    code = "UNAVAILABLE"


class StorageFullError(ServiceError):
    """The disk or the object store takes no more; nothing acknowledged is lost."""

    status = 507
    code = "STORAGE_FULL"
