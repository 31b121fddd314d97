"""What people and workspaces may be called. Checked once, where a name enters."""

from __future__ import annotations

import re
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from osmosis_platform.errors import InvalidRequestError
from osmosis_platform.ids import looks_like_id

NAME_LIMIT = 39
_EMAIL_LIMIT = 254
_PERSON_LIMIT = 100
_JOINERS = {0x200C: None, 0x200D: None}  # not printable by themselves, and part of Persian names and of many emoji
# The owner part of a Git identity too: the client accepts [A-Za-z0-9][A-Za-z0-9-]* there.
_WORKSPACE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,37}[A-Za-z0-9])?")
_LABEL = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_EMAIL = re.compile(rf"[^\s@\"'<>(),;:\\\[\]]+@{_LABEL}(?:\.{_LABEL})*")
RESERVED = frozenset(
    "account accounts admin api app assets audit auth benchmarks billing blob callback cli configs data datasets device "
    "docs favicon git health healthz help home internal invitation invitations invite invites join jobs login logout me "
    "members metrics models new none null oauth oidc openapi platform public quickstart readyz register robots rollouts "
    "root secrets security session sessions settings setup sign-in sign-out signin signout signup static status support "
    "sync system token tokens undefined user users v1 v2 verify web webhook webhooks well-known workspace workspaces "
    "www".split()
)
"""First segments of the platform's own URLs, now or later."""


def check_workspace_name(name: str) -> str:
    """A workspace's name, which is the first segment of its URLs.

    Raises:
        InvalidRequestError: It does not fit there, or means something else already.
    """
    name = name.strip()
    if not _WORKSPACE.fullmatch(name):
        message = (
            f"A workspace's name is 1 to {NAME_LIMIT} letters, digits and hyphens (a-z, A-Z, 0-9, -), "
            "and neither begins nor ends with a hyphen, because it is part of URLs."
        )
        raise InvalidRequestError(message, field="name", code="NAME_INVALID")
    if name.lower() in RESERVED or looks_like_id(name.lower()):
        message = f"{name} is a name the platform uses itself; choose another."
        raise InvalidRequestError(message, field="name", code="NAME_RESERVED")
    return name


def check_email(email: str) -> str:
    """An e-mail address, in lower case.

    Raises:
        InvalidRequestError: It is none.
    """
    email = email.strip().lower()
    if len(email) > _EMAIL_LIMIT or not email.isprintable() or not _EMAIL.fullmatch(email):
        raise InvalidRequestError("This is no e-mail address; it looks like ada@example.com.", field="email")
    return email


def check_person_name(name: str | None) -> str | None:
    """A person's name as others see it; None when blank.

    Raises:
        InvalidRequestError: It is long or holds control characters.
    """
    name = " ".join((name or "").split())
    if len(name) > _PERSON_LIMIT or not name.translate(_JOINERS).isprintable():
        raise InvalidRequestError(f"A name has at most {_PERSON_LIMIT} printable characters.", field="name")
    return name or None


def check_timezone(name: str) -> str:
    """A time zone of the IANA database.

    Raises:
        InvalidRequestError: There is none of that name.
    """
    try:
        return ZoneInfo(name).key
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        message = f"There is no time zone {name[:60]!r}; they look like Europe/Berlin."
        raise InvalidRequestError(message, field="timezone") from error
