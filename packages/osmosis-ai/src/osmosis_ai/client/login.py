"""Logging in and out: the device flow, a personal token, and what becomes of the login that was there before.

Owns: the order in which tokens are stored and taken back, so that none is lost on the way. How a person is told the
code, and asked, is the caller's.
"""

# ruff: noqa: S105 - names of stores, not passwords
from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from osmosis_ai.client import logins
from osmosis_ai.client.account import Account, base_headers, object_of, read_account, revoke, verify
from osmosis_ai.client.credentials import Credential, require_sendable
from osmosis_ai.client.http import httpx_module, make_client, unreachable
from osmosis_ai.client.refusals import refusal, upgrade_required
from osmosis_ai.client.session import API_PREFIX, warn_of_version
from osmosis_ai.client.wire import Record
from osmosis_ai.errors import (
    AuthRequiredError,
    CredentialsDamagedError,
    CredentialsVersionError,
    KeyringUnavailableError,
    OsmosisError,
    PlatformError,
    TokenNotFoundError,
)

if TYPE_CHECKING:
    import httpx

    from osmosis_ai.client.logins import Login
    from osmosis_ai.client.session import Warn

_LONGEST_WAIT_S = 900.0
_SLOW_DOWN_S = 5.0
_SLOWEST_INTERVAL_S = 30.0
_POLL_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """What a person needs to allow this machine.

    Attributes:
        user_code: Typed or compared in the browser.
        uri: The page.
        complete_uri: The page with the code in it, where the platform has one.
    """

    user_code: str
    uri: str
    complete_uri: str | None


@dataclass(frozen=True, slots=True)
class LoggedOut:
    """What logging out did.

    Attributes:
        revoked: Whether the platform took the token back.
    """

    revoked: bool


def login_with_token(
    platform_url: str, token: str, *, warn: Warn, environ: Mapping[str, str] | None = None
) -> tuple[Account, Login]:
    """Verify a personal token and store it.

    Raises:
        OsmosisError: The token is not accepted, or cannot be stored; the login before stays.
    """
    mode = _ready(os.environ if environ is None else environ)
    require_sendable(token, "The value of --token")
    try:
        account = verify(Credential(token, platform_url, "file"), warn=warn)
    except AuthRequiredError as error:
        error.message = (
            f"{platform_url} does not accept the token of --token: it is mistyped, expired, revoked or of another"
            " platform. Nothing was saved. Make a new token on that platform, or log in without --token."
        )
        raise
    return account, _store(account, platform_url, token, mode, warn)


def login_with_device(
    platform_url: str,
    show: Callable[[DeviceCode], None],
    *,
    warn: Warn,
    environ: Mapping[str, str] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[Account, Login]:
    """Let a person allow this machine in a browser, and store the token that comes of it.

    Args:
        platform_url: The platform.
        show: Tells the person the code.
        warn: Gets warnings.
        environ: The environment.
        sleep: Waits between questions.

    Raises:
        AuthRequiredError: It was declined, or nobody answered in time.
        OsmosisError: The platform cannot do it, or the token cannot be stored (it is taken back then).
    """
    mode = _ready(os.environ if environ is None else environ)
    with make_client(platform_url) as client:
        device = {"deviceName": platform.node() or "unnamed"}
        begun = Record(_post(client, platform_url, "/device/authorize", device, warn), "login")
        device_code = begun.text("device_code")
        show(DeviceCode(begun.text("user_code"), begun.text("verification_uri"),
                        begun.maybe_text("verification_uri_complete")))  # fmt: skip
        lifetime = min(_LONGEST_WAIT_S, begun.maybe_number("expires_in") or _LONGEST_WAIT_S)
        interval = max(0.0, float(begun.maybe_number("interval") or _SLOW_DOWN_S))
        granted = _poll(client, platform_url, device_code, lifetime, interval, warn, sleep)
    token = Record(granted, "login").text("token")
    account = None
    try:
        require_sendable(token, "The platform's token")
        account = read_account(granted, "login")
        return account, _store(account, platform_url, token, mode, warn)
    except BaseException:
        token_id = account.token_id if account else granted.get("token_id")
        if isinstance(token_id, str) and token_id and (failure := revoke(platform_url, token, token_id)):
            warn(f"The new token could not be taken back: {failure}.", "TOKEN_REVOKE_FAILED")
        raise


def logout(platform_url: str, *, warn: Warn) -> LoggedOut:
    """Take the stored login of a platform back and forget it; what cannot be read is set aside.

    Nothing of the network stops it: a token that cannot be taken back is a warning.

    Raises:
        OsmosisError: The login cannot be removed: KEYRING_CLEANUP_FAILED, KEYRING_UNAVAILABLE, CREDENTIALS_UNAVAILABLE.
    """
    if _set_damage_aside(warn):
        _forget_old_entries(warn)
        return LoggedOut(revoked=False)
    try:
        login = logins.load_login(platform_url)
    except CredentialsDamagedError:
        warn("The saved login is damaged, so its token was not taken back on the platform.", "TOKEN_NOT_FOUND")
        logins.remove_login(platform_url)
        return LoggedOut(revoked=False)
    if login is None:
        return LoggedOut(revoked=False)
    if login.token_store == "keyring":
        _require_keyring()
    revoked = _take_back(login, warn)
    _forget_in_keyring(login)
    logins.remove_login(platform_url)
    return LoggedOut(revoked)


def _ready(environ: Mapping[str, str]) -> logins.StoreMode:
    """Check, before anything is asked of anybody, that a login can be stored.

    Raises:
        OsmosisError: The store is misnamed or missing, or the file of logins cannot be read at all.
    """
    mode = logins.store_mode(environ)
    if mode == "keyring":
        from osmosis_ai.client import system_keyring

        if not system_keyring.is_usable():
            raise system_keyring.missing_keyring()
    _is_damaged()
    return mode


def _is_damaged() -> bool:
    """Whether the file of logins cannot be understood.

    Raises:
        OsmosisError: CREDENTIALS_UNAVAILABLE: it cannot be read at all.
    """
    try:
        logins.check_file()
    except (CredentialsDamagedError, CredentialsVersionError):
        return True
    return False


def _set_damage_aside(warn: Warn) -> bool:
    """Move a file that cannot be understood out of the way, and say where it is."""
    if not _is_damaged():
        return False
    backup = logins.set_aside()
    warn(f"Saved logins that cannot be read were moved to {backup}.", "CREDENTIALS_METADATA_BACKED_UP")
    return True


def _store(account: Account, platform_url: str, token: str, mode: logins.StoreMode, warn: Warn) -> Login:
    """Store the new login, then take the one before back."""
    _set_damage_aside(warn)
    before = _previous(platform_url, warn)
    stored = logins.save_login(account.as_login(platform_url), token, mode)
    if stored.token_store == "file" and mode == "auto":
        warn(
            f"No usable system keyring was found, so the token was saved in {logins.credentials_path()}, which only you"
            " can read. Set OSMOSIS_TOKEN_STORE=keyring to insist on a keyring, or =file to choose the file.",
            "KEYRING_UNAVAILABLE",
        )
    if before is not None:
        _retire(*before, stored, token, warn)
    return stored


def _previous(platform_url: str, warn: Warn) -> tuple[Login, str | None] | None:
    """The login that is about to be replaced, with its token where it can be read."""
    login = None
    try:
        login = logins.load_login(platform_url)
        return (login, login.read_token()) if login is not None else None
    except OsmosisError as error:
        warn(f"The login before was not taken back on the platform: {error.message}", "TOKEN_NOT_FOUND")
        return (login, None) if login is not None else None


def _retire(before: Login, old_token: str | None, stored: Login, token: str, warn: Warn) -> None:
    if old_token is not None and old_token != token and not before.is_expired():
        _take_back(before, warn, old_token)
    if before.token_store == "keyring":
        from osmosis_ai.client import system_keyring

        for account in before.keyring_accounts():
            if account == stored.keyring_account:
                continue
            try:
                system_keyring.remove(account)
            except OsmosisError as error:
                warn(error.message, "KEYRING_CLEANUP_FAILED")
                break


def _take_back(login: Login, warn: Warn, token: str | None = None) -> bool:
    """Ask the platform to forget a login's token; whether it did."""
    if login.is_expired():
        return False
    try:
        token = token or login.read_token()
        token_id = login.token_id
        if token_id is None:
            token_id = verify(Credential(token, login.platform_url, login.token_store), warn=warn).token_id
    except AuthRequiredError:
        return True  # the platform does not accept it any more
    except (TokenNotFoundError, KeyringUnavailableError) as error:
        warn(f"The token was not taken back on the platform: {error.message}", error.error_code)
        return False
    except OsmosisError as error:
        warn(f"The token was not taken back on the platform: {error.message}", "TOKEN_REVOKE_FAILED")
        return False
    if token_id is None:
        warn("The platform gave the token no id, so it cannot be taken back; it ends by itself.", "TOKEN_REVOKE_FAILED")
        return False
    failure = revoke(login.platform_url, token, token_id)
    if failure is not None:
        warn(f"The token was not taken back on the platform: {failure}.", "TOKEN_REVOKE_FAILED")
    return failure is None


def _require_keyring() -> None:
    """Refuse where saved credentials could not be removed."""
    from osmosis_ai.client import system_keyring

    if not system_keyring.is_usable():
        raise system_keyring.missing_keyring("saved credentials could not be removed")


def _forget_in_keyring(login: Login) -> None:
    """Remove the keyring's entries of a login.

    Raises:
        OsmosisError: The keyring refuses, or is needed and missing.
    """
    from osmosis_ai.client import system_keyring

    if login.token_store == "file":
        return
    _require_keyring()
    for account in login.keyring_accounts():
        system_keyring.remove(account)


def _forget_old_entries(warn: Warn) -> None:
    """Remove the keyring's entries that older clients made; a machine without a keyring can have none that matter.

    Raises:
        KeyringCleanupError: The keyring refuses.
    """
    from osmosis_ai.client import system_keyring

    if not system_keyring.is_usable():
        warn("No system keyring is available, so none was searched for entries of older logins.", "KEYRING_UNAVAILABLE")
        return
    for account in system_keyring.legacy_accounts():
        system_keyring.remove(account)


def _post(client: httpx.Client, platform_url: str, path: str, body: Mapping[str, Any], warn: Warn) -> dict[str, Any]:
    """One call of the device flow that must succeed."""
    try:
        reply = _send(client, platform_url, path, body, _POLL_TIMEOUT_S)
    except httpx_module().TimeoutException as error:
        raise unreachable(platform_url, error) from None
    if not reply.is_success:
        raise _refused(reply)
    warn_of_version(reply.headers, warn)
    return object_of(reply)


def _send(
    client: httpx.Client, platform_url: str, path: str, body: Mapping[str, Any], timeout: float
) -> httpx.Response:
    httpx = httpx_module()
    try:
        return client.post(
            f"{platform_url}{API_PREFIX}{path}", content=json.dumps(body).encode(), headers=base_headers(),
            timeout=timeout,
        )  # fmt: skip
    except httpx.TimeoutException:
        raise
    except httpx.HTTPError as error:
        raise unreachable(platform_url, error) from None


def _poll(
    client: httpx.Client,
    platform_url: str,
    device_code: str,
    lifetime: float,
    interval: float,
    warn: Warn,
    sleep: Callable[[float], None],
) -> dict[str, Any]:
    """Ask until the person has decided."""
    httpx = httpx_module()
    end = time.monotonic() + lifetime
    while (left := end - time.monotonic()) > 0:
        try:
            timeout = max(1.0, min(_POLL_TIMEOUT_S, left))
            reply = _send(client, platform_url, "/device/token", {"device_code": device_code}, timeout)
        except httpx.TimeoutException:
            continue
        if reply.is_success:
            warn_of_version(reply.headers, warn)
            return object_of(reply)
        match object_of(reply).get("error"):
            case "authorization_pending":
                pass
            case "slow_down":
                interval = min(_SLOWEST_INTERVAL_S, interval + _SLOW_DOWN_S)
            case "access_denied":
                raise AuthRequiredError("The login was declined in the browser.")
            case "expired_token":
                break
            case _:
                raise _refused(reply)
        sleep(min(interval, max(0.0, end - time.monotonic())))
    raise AuthRequiredError("Nobody allowed the login in time. Run 'osmosis auth login' to get a new code.")


def _refused(reply: httpx.Response) -> OsmosisError:
    body = object_of(reply)
    if reply.status_code == 426:
        return upgrade_required(body)
    if reply.status_code == 404:
        return PlatformError("No Osmosis platform answers at this address (HTTP 404). Check OSMOSIS_PLATFORM_URL.")
    return refusal(reply.status_code, body, reply.text, environment_token=False)
