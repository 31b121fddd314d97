"""A master key on its way in a backup: encrypted under a passphrase (scrypt, RFC 7914; AES-256-GCM), or as it is."""

from __future__ import annotations

import base64
import hashlib
import secrets
from pathlib import Path
from typing import Any

from osmosis_platform.errors import InvalidRequestError
from osmosis_platform.secrets.master_key import MasterKey, decode, encode

MIN_PASSPHRASE = 12
_MAX_FILE = 4096
_COST = {"n": 1 << 17, "r": 8, "p": 1}  # 128 MiB and about half a second
_MEMORY = 256 << 20


def read_passphrase(path: Path) -> bytes:
    """The first line of a file.

    Raises:
        InvalidRequestError: It cannot be read, or is too short to protect a key.
    """
    try:
        with path.open("rb") as stream:
            line = stream.readline(_MAX_FILE).rstrip(b"\r\n")
    except OSError as error:
        message = f"The passphrase file {path} cannot be read: {error.strerror}."
        raise InvalidRequestError(message, code="PASSPHRASE") from None
    if len(line) < MIN_PASSPHRASE:
        message = f"The first line of {path} is the passphrase; it needs {MIN_PASSPHRASE} characters or more."
        raise InvalidRequestError(message, code="PASSPHRASE")
    return line


def pack(key: MasterKey, passphrase: bytes | None) -> dict[str, Any]:
    """A key as JSON; without a passphrase whoever reads it has the key."""
    if passphrase is None:
        return {"form": "plain", "id": key.id, "key": encode(key.key)}
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    salt, nonce = secrets.token_bytes(16), secrets.token_bytes(12)
    sealed = AESGCM(_stretched(passphrase, salt)).encrypt(nonce, key.key, key.id.encode())
    texts = {
        name: base64.b64encode(value).decode() for name, value in (("salt", salt), ("nonce", nonce), ("sealed", sealed))
    }
    return {"form": "scrypt-aes256gcm", "id": key.id, **_COST, **texts}


def unpack(parcel: Any, passphrase: bytes | None, source: str) -> MasterKey:
    """The key of a parcel.

    Args:
        parcel: JSON, perhaps of somebody who means harm.
        passphrase: Of the person who made it, if one is needed.
        source: Where it lies, to name it to people.

    Raises:
        InvalidRequestError: `PASSPHRASE`: it is needed, or is another. `BACKUP_DAMAGED`: it is no parcel.
    """
    try:
        if parcel["form"] == "plain":
            key = decode(str(parcel["key"]), source)
        elif parcel["form"] == "scrypt-aes256gcm" and all(parcel[name] == value for name, value in _COST.items()):
            if passphrase is None:
                message = f"The master key in {source} is encrypted; give its passphrase with --key-passphrase-file."
                raise InvalidRequestError(message, code="PASSPHRASE")
            salt, nonce, sealed = (
                base64.b64decode(parcel[name], validate=True) for name in ("salt", "nonce", "sealed")
            )
            key = MasterKey(_opened(passphrase, salt, nonce, sealed, str(parcel["id"]), source), source)
        else:
            raise ValueError("another form")
        if key.id != parcel["id"]:
            raise ValueError("another key")
    except (KeyError, TypeError, ValueError) as error:
        message = f"The master key in {source} is damaged, or was written by a newer version."
        raise InvalidRequestError(message, code="BACKUP_DAMAGED") from error
    return key


def _opened(passphrase: bytes, salt: bytes, nonce: bytes, sealed: bytes, key_id: str, source: str) -> bytes:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        return AESGCM(_stretched(passphrase, salt)).decrypt(nonce, sealed, key_id.encode())
    except InvalidTag:
        message = f"The passphrase does not open the master key in {source}. Nothing was changed."
        raise InvalidRequestError(message, code="PASSPHRASE") from None


def _stretched(passphrase: bytes, salt: bytes) -> bytes:
    return hashlib.scrypt(passphrase, salt=salt, **_COST, maxmem=_MEMORY, dklen=32)
