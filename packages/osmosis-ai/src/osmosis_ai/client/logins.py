"""Stored logins: one entry a platform in an owner-only file, the token in the system's keyring or in the entry itself.

Owns: the file's format, its lock and atomic replacement, legacy entries, and the copy kept of a file nobody can read.
Which token a command uses is decided by `credentials`.
"""

# ruff: noqa: S105, S106 - names of variables and stores, not passwords
from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from osmosis_ai.client.address import PRODUCTION_URL, normalise_platform_url
from osmosis_ai.errors import (
    CredentialsDamagedError,
    CredentialsUnavailableError,
    CredentialsVersionError,
    OsmosisError,
    TokenNotFoundError,
    ValidationError,
)

VERSION = 2
STORE_VARIABLE = "OSMOSIS_TOKEN_STORE"
_REMEDY = "Make it a file of yours that can be read and written, or set OSMOSIS_TOKEN, which needs none."

type TokenStore = Literal["keyring", "file"]
type StoreMode = Literal["auto", "keyring", "file"]


@dataclass(frozen=True, slots=True)
class User:
    """Whose login it is."""

    id: str
    email: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Login:
    """A stored login.

    Attributes:
        platform_url: The normalised platform.
        user: Whose it is.
        expires_at: When it ends; with a zone.
        token_store: Where its token is.
        token_id: The platform's id of the token, needed to revoke it.
        created_at: When it was stored.
        keyring_account: Its account in the keyring.
        access_token: The token itself when the file holds it.
    """

    platform_url: str
    user: User
    expires_at: datetime
    token_store: TokenStore
    token_id: str | None = None
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    keyring_account: str | None = None
    access_token: str | None = field(default=None, repr=False)

    def is_expired(self) -> bool:
        """Whether its time is over."""
        return self.expires_at <= datetime.now(UTC)

    def keyring_accounts(self) -> list[str]:
        """Where its token may be in the keyring, the likeliest first."""
        from osmosis_ai.client.system_keyring import account_name, legacy_accounts

        accounts = [self.keyring_account] if self.keyring_account else []
        if not accounts and self.token_id:
            accounts = [account_name(self.platform_url, self.token_id)]
        if self.platform_url == PRODUCTION_URL and not self.keyring_account:
            accounts += [*legacy_accounts(), self.user.email]
        return accounts

    def read_token(self) -> str:
        """The token.

        Raises:
            KeyringUnavailableError: The keyring does not answer.
            TokenNotFoundError: It has none.
        """
        if self.token_store == "file" and self.access_token:
            return self.access_token
        from osmosis_ai.client import system_keyring

        if not system_keyring.is_usable():
            raise system_keyring.missing_keyring("the saved login cannot be read")
        token = system_keyring.read(self.keyring_accounts())
        if token is None:
            raise TokenNotFoundError(
                f"The system keyring has no token for the saved login of {self.user.email}. Run 'osmosis auth login'.",
            )
        return token


def config_directory() -> Path:
    """Where logins and other small things of the user are kept."""
    return Path.home() / ".config" / "osmosis"


def credentials_path() -> Path:
    """The file of all logins."""
    return config_directory() / "credentials.json"


def store_mode(environ: Mapping[str, str]) -> StoreMode:
    """Where the user wants new logins.

    Raises:
        ValidationError: The variable holds another word.
    """
    mode = environ.get(STORE_VARIABLE, "").strip().lower() or "auto"
    match mode:
        case "auto" | "keyring" | "file":
            return mode
    raise ValidationError(
        f"Invalid {STORE_VARIABLE}={mode!r}. Use one of: auto, keyring, file.", details={"token_store": mode}
    )


def load_login(platform_url: str) -> Login | None:
    """The stored login of a platform; reading changes nothing.

    Raises:
        OsmosisError: One of the three `Credentials...Error`s.
    """
    platforms = _platforms(_read_file())
    return _login(platform_url, platforms[platform_url]) if platform_url in platforms else None


def check_file() -> None:
    """Make sure that a login can be added to the file as it is.

    Raises:
        OsmosisError: One of the three `Credentials...Error`s.
    """
    _platforms(_read_file())


def save_login(login: Login, token: str, mode: StoreMode) -> Login:
    """Store a login, in the keyring where the mode and the system allow, and return it as stored.

    Args:
        login: Its `token_store`, account and token are chosen here.
        token: The token.
        mode: `auto` falls back to the file; the caller tells the user.

    Raises:
        KeyringUnavailableError: The mode demands a keyring.
        CredentialsUnavailableError: The file cannot be read or written.
    """
    from dataclasses import replace

    from osmosis_ai.client import system_keyring

    account = system_keyring.account_name(login.platform_url, login.token_id)
    if mode != "file" and system_keyring.write(account, token):
        stored = replace(login, token_store="keyring", keyring_account=account, access_token=None)
    elif mode == "keyring":
        raise system_keyring.missing_keyring()
    else:
        stored = replace(login, token_store="file", keyring_account=None, access_token=token)
    try:
        with _locked():
            platforms = _platforms(_read_file())
            platforms[login.platform_url] = _entry(stored)
            _write_file(platforms)
    except BaseException:
        if stored.token_store == "keyring":
            with contextlib.suppress(OsmosisError):
                system_keyring.remove(account)
        raise
    return stored


def remove_login(platform_url: str) -> None:
    """Forget the entry of a platform; its keyring entry is the caller's. The old global config goes with it.

    Raises:
        OsmosisError: The file cannot be read or written.
    """
    with _locked():
        platforms = _platforms(_read_file())
        if platforms.pop(platform_url, None) is not None:
            if platforms:
                _write_file(platforms)
            else:
                credentials_path().unlink(missing_ok=True)
    (config_directory() / "config.json").unlink(missing_ok=True)


def set_aside() -> Path:
    """Move a file that cannot be understood out of the way.

    Returns:
        Where it is now.

    Raises:
        CredentialsUnavailableError: It cannot be moved.
    """
    path = credentials_path()
    with _locked():
        backup = _free_name(path)
        try:
            path.rename(backup)
        except OSError as error:
            raise CredentialsUnavailableError(
                f"Cannot move {path} to {backup.name}: {error.strerror}. Move or remove the file by hand.",
            ) from None
    return backup


def _free_name(path: Path) -> Path:
    backup, number = path.with_name(f"{path.name}.bak"), 0
    while backup.exists() or backup.is_symlink():
        number += 1
        backup = path.with_name(f"{path.name}.bak.{number}")
    return backup


def _read_file() -> dict[str, Any]:
    """The file's object, as it is; an empty current one when there is no file."""
    path = credentials_path()
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {"version": VERSION, "platforms": {}}
    except OSError as error:
        raise CredentialsUnavailableError(
            f"Cannot read the saved logins in {path}: {error.strerror}. {_REMEDY}"
        ) from None
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise _malformed(path)
    if value.get("version") != VERSION or isinstance(value.get("version"), bool):
        raise CredentialsVersionError(
            f"The saved logins in {path} have another format than this client's and were left unchanged. Use the client"
            " that wrote them, or run 'osmosis auth login': it moves the file aside.",
            details={"version": value.get("version")},
        )
    return value


def _platforms(value: dict[str, Any]) -> dict[str, Any]:
    """Entries by normalised platform URL."""
    if "platforms" not in value:
        return {PRODUCTION_URL: value}
    platforms = value["platforms"]
    if not isinstance(platforms, dict):
        raise _malformed(credentials_path())
    entries: dict[str, Any] = {}
    for key, entry in platforms.items():
        try:
            url = normalise_platform_url(key)
        except ValidationError:
            raise _malformed(credentials_path()) from None
        if url in entries:
            raise _malformed(credentials_path())
        entries[url] = entry
    return entries


def _login(platform_url: str, entry: Any) -> Login:
    """An entry as a login.

    Raises:
        CredentialsDamagedError: It is none.
    """
    try:
        user = entry["user"]
        store = entry.get("token_store") or ("file" if entry.get("access_token") else "keyring")
        login = Login(
            platform_url=platform_url,
            user=User(_text(user["id"]), _text(user["email"]), _maybe_text(user.get("name"))),
            expires_at=parse_time(entry["expires_at"]),
            token_store={"keyring": "keyring", "file": "file"}[store],  # type: ignore[arg-type]
            token_id=_maybe_text(entry.get("token_id")),
            created_at=parse_time(entry["created_at"]) if entry.get("created_at") else datetime.now(UTC),
            keyring_account=_maybe_text(entry.get("keyring_account")),
            access_token=_maybe_text(entry.get("access_token")),
        )
        recorded = entry.get("platform_url")
        good = entry.get("version", VERSION) == VERSION and (login.token_store == "keyring" or login.access_token)
        good = good and (recorded is None or normalise_platform_url(_text(recorded)) == platform_url)
    except (KeyError, TypeError, ValueError, AttributeError, ValidationError):
        good = False
    if not good:
        raise CredentialsDamagedError(
            f"The saved login of {platform_url} in {credentials_path()} is damaged and was left unchanged. Run 'osmosis"
            " auth login' to replace it.",
        )
    return login


def _entry(login: Login) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "version": VERSION,
        "token_type": "Bearer",
        "expires_at": login.expires_at.isoformat(),
        "created_at": login.created_at.isoformat(),
        "user": {"id": login.user.id, "email": login.user.email, "name": login.user.name},
        "platform_url": login.platform_url,
        "token_store": login.token_store,
    }
    if login.token_id:
        entry["token_id"] = login.token_id
    if login.token_store == "keyring":
        entry["keyring_account"] = login.keyring_account
    else:
        entry["access_token"] = login.access_token
    return entry


def parse_time(value: Any) -> datetime:
    """A time with a zone.

    Raises:
        ValueError: It is no ISO 8601 text, or has no zone.
    """
    time = datetime.fromisoformat(_text(value))
    if time.tzinfo is None:
        raise ValueError("no zone")
    return time.astimezone(UTC)


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("not a text")
    return value


def _maybe_text(value: Any) -> str | None:
    return None if value in (None, "") else _text(value)


def _malformed(path: Path) -> CredentialsDamagedError:
    return CredentialsDamagedError(
        f"The saved logins in {path} are damaged and were left unchanged. Repair the file, or run 'osmosis auth login':"
        " it moves the file aside.",
    )


@contextlib.contextmanager
def _locked() -> Generator[None]:
    """Keep other processes of ours from changing the file; the lock is on its folder, so nothing is left behind."""
    directory = config_directory()
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        directory.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(directory, os.O_RDONLY)
    except OSError as error:
        raise CredentialsUnavailableError(
            f"Cannot use {directory} for saved logins: {error.strerror}. {_REMEDY}"
        ) from None
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _write_file(platforms: Mapping[str, Any]) -> None:
    """Replace the file at once; a reader sees the old or the new one."""
    path = credentials_path()
    text = json.dumps({"version": VERSION, "platforms": platforms}, indent=2, ensure_ascii=False) + "\n"
    try:
        descriptor, name = tempfile.mkstemp(prefix=".credentials-", dir=path.parent)  # owner-only from the start
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise CredentialsUnavailableError(f"Cannot write {path}: {error.strerror}. {_REMEDY}") from None
