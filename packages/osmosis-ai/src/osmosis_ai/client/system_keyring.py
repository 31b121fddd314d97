"""The operating system's keyring: one token an account. The one module that loads the keyring library."""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING, Any

from osmosis_ai.errors import KeyringCleanupError, KeyringUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterable

SERVICE = "osmosis-cli"
_DIGITS = 24


def account_name(platform_url: str, token_id: str | None) -> str:
    """The account under which a login of a platform is kept: readable by nobody, the same for the same token id."""
    of_token = hashlib.sha256(token_id.encode()).hexdigest() if token_id else secrets.token_hex(32)
    return f"platform:{hashlib.sha256(platform_url.encode()).hexdigest()[:_DIGITS]}:{of_token[:_DIGITS]}"


def legacy_accounts() -> list[str]:
    """Accounts that older clients used for the production platform, beside the user's e-mail address."""
    return ["default"]


def is_usable() -> bool:
    """Whether there is a keyring that keeps what it is given."""
    try:
        backend = _keyring().get_keyring()
    except Exception:  # a backend's start can fail in its own ways
        return False
    name = f"{type(backend).__module__}.{type(backend).__name__}"
    if name.startswith("keyring.backends.chainer."):
        return bool(list(getattr(backend, "backends", ())))
    return not name.startswith(("keyring.backends.fail.", "keyring.backends.null."))


def read(accounts: Iterable[str]) -> str | None:
    """The token of the first account that has one.

    Raises:
        KeyringUnavailableError: The keyring does not answer.
    """
    for account in accounts:
        try:
            token = _keyring().get_password(SERVICE, account)
        except Exception as error:
            raise _unavailable("the saved login cannot be read", error) from None
        if token:
            return token
    return None


def write(account: str, token: str) -> bool:
    """Keep a token; False when there is no keyring that does."""
    if not is_usable():
        return False
    try:
        _keyring().set_password(SERVICE, account, token)
        kept = _keyring().get_password(SERVICE, account)
    except Exception:  # backends raise their own classes
        return False
    return kept == token


def remove(account: str) -> bool:
    """Forget a token; False when it was not there.

    Raises:
        KeyringCleanupError: The keyring refuses.
        KeyringUnavailableError: There is none.
    """
    if not is_usable():
        raise _unavailable("saved credentials could not be removed", None)
    try:
        if _keyring().get_password(SERVICE, account) is None:
            return False
        _keyring().delete_password(SERVICE, account)
    except Exception as error:
        raise KeyringCleanupError(
            f"The system keyring refuses to remove the entry {account} of {SERVICE} ({type(error).__name__}). Unlock"
            " the keyring and try again, or remove the entry by hand.",
            details={"service": SERVICE, "account": account},
        ) from None
    return True


def missing_keyring(consequence: str = "the login cannot be saved") -> KeyringUnavailableError:
    """The error where a keyring is needed and there is none."""
    return _unavailable(consequence, None)


def _unavailable(consequence: str, error: Exception | None) -> KeyringUnavailableError:
    reason = f" ({type(error).__name__})" if error else ""
    return KeyringUnavailableError(
        f"No system keyring is available{reason}, so {consequence}. Unlock or set one up, use OSMOSIS_TOKEN_STORE=file,"
        " or set OSMOSIS_TOKEN where nobody logs in.",
    )


def _keyring() -> Any:
    import keyring

    return keyring
