"""Envelope encryption: values under a data key of their workspace, data keys under the master key (AES-256-GCM).

The associated data of a value names its place (workspace, scope, owner, name, version), so a ciphertext that is moved to
another row does not open. Keys for signatures are derived from the master key (HKDF-SHA256, RFC 5869).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from osmosis_platform.db.database import Database, UnitOfWork
from osmosis_platform.db.repositories.data_keys import (
    DataKeyRepository,
    MasterKeyCheck,
    MasterKeyRepository,
    WrappedKey,
    new_data_key_id,
)
from osmosis_platform.secrets.key_parcel import pack
from osmosis_platform.secrets.master_key import KEY_BYTES, MasterKey, MasterKeyError, load_master_key

__all__ = ["MasterKey", "MasterKeyError", "Sealed", "Vault", "load_master_key"]

PLATFORM = "platform"
_NONCE_BYTES = 12
_CHECK = b"osmosis platform master key check"


@dataclass(frozen=True, slots=True)
class Sealed:
    """An encrypted value and what opens it.

    Attributes:
        data_key_id: The key of its workspace that it is under.
        nonce: 12 random bytes.
        ciphertext: With its 16-byte tag.
    """

    data_key_id: str
    nonce: bytes
    ciphertext: bytes


class Vault:
    """Encrypts and decrypts with the keys of the database.

    Args:
        master_key: The key that wraps all others.
        others: The keys that may have taken its place, asked for when this database refuses it: a rotation that was
            killed leaves the new key beside the old one, and one that ends meanwhile replaces it.
    """

    def __init__(self, master_key: MasterKey, others: Callable[[], Iterable[MasterKey]] = tuple) -> None:
        self._master = master_key
        self._others = others
        self._keys: dict[str, bytes] = {}
        self._guard = threading.Lock()  # requests and jobs share the unwrapped keys

    @property
    def master_key_id(self) -> str:
        """The fingerprint of the master key in use."""
        return self._master.id

    def parcel(self, passphrase: bytes | None) -> dict[str, Any]:
        """The master key in use for a backup, encrypted under a passphrase if there is one."""
        return pack(self._master, passphrase)

    @property
    def master_key_source(self) -> str:
        """Where the master key in use came from: a file, or the name of a variable."""
        return self._master.source

    def derive(self, purpose: str) -> bytes:
        """A key of 32 bytes for signatures. It changes with the master key: signed URLs of before stop counting then."""
        extracted = hmac.digest(b"osmosis platform", self._master.key, hashlib.sha256)
        return hmac.digest(extracted, purpose.encode() + b"\x01", hashlib.sha256)

    def check(self, database: Database) -> None:
        """Refuses to work with a key that this database was not made with; notes it when it is the first.

        Raises:
            MasterKeyError: It is another key.
        """
        with database.read() as work:
            known = MasterKeyRepository(work).current()
        if known is not None:
            self._recognise(known)
            return
        with database.write() as work:
            self._agree(work)

    def seal(self, work: UnitOfWork, workspace_id: str, plaintext: bytes, aad: Mapping[str, str]) -> Sealed:
        """Encrypts a value under the workspace's newest data key, which is made when there is none.

        Args:
            work: A unit of work that may write.
            workspace_id: Whose key; `platform` for the platform's own.
            plaintext: The value.
            aad: Where it belongs; the same names and values are needed to open it.

        Raises:
            MasterKeyError: The workspace's data key was changed, moved, or is under another master key.
        """
        wrapped = DataKeyRepository(work).current(workspace_id)
        if wrapped is None:
            wrapped = self._new_data_key(work, workspace_id)
        nonce = secrets.token_bytes(_NONCE_BYTES)
        ciphertext = _cipher(self._open_key(wrapped)).encrypt(nonce, plaintext, _associated(workspace_id, aad))
        return Sealed(wrapped.id, nonce, ciphertext)

    def unseal(self, work: UnitOfWork, workspace_id: str, sealed: Sealed, aad: Mapping[str, str]) -> bytes:
        """Decrypts a value.

        Raises:
            MasterKeyError: The key is missing, or the ciphertext was changed or moved.
        """
        wrapped = DataKeyRepository(work).find(workspace_id, sealed.data_key_id)
        if wrapped is None:
            raise MasterKeyError(f"The data key {sealed.data_key_id} of this value does not exist.", code="DATA_KEY")
        return _decrypt(self._open_key(wrapped), sealed.nonce, sealed.ciphertext, _associated(workspace_id, aad))

    def rotate(self, work: UnitOfWork, new: MasterKey) -> int:
        """Wraps every data key by a new master key, in one transaction. Values are not touched.

        Returns:
            How many data keys were wrapped anew.
        """
        keys = MasterKeyRepository(work)
        keys.add(_check_value(new))
        count = 0
        for wrapped in keys.wrapped_by_others(new.id):
            nonce, ciphertext = _wrap(new, wrapped.workspace_id, wrapped.id, self._open_key(wrapped))
            keys.rewrap(wrapped.id, new.id, nonce, ciphertext)
            count += 1
        return count

    def _new_data_key(self, work: UnitOfWork, workspace_id: str) -> WrappedKey:
        self._agree(work)  # whoever seals first may come before any start-up check
        key, key_id = secrets.token_bytes(KEY_BYTES), new_data_key_id()
        nonce, wrapped = _wrap(self._master, workspace_id, key_id, key)
        DataKeyRepository(work).add(workspace_id, self._master.id, key_id, nonce, wrapped)
        return WrappedKey(key_id, workspace_id, self._master.id, nonce, wrapped)

    def _agree(self, work: UnitOfWork) -> None:
        """Notes this master key as the database's first, or refuses it when the database has another."""
        keys = MasterKeyRepository(work)
        keys.lock()
        known = keys.current()
        if known is None:
            keys.add(_check_value(self._master))
        else:
            self._recognise(known)

    def _recognise(self, known: MasterKeyCheck) -> None:
        """Goes on with the key that this database is under, or refuses."""
        key = next((key for key in chain((self._master,), self._others()) if _opens(key, known)), None)
        if key is None:
            raise MasterKeyError(
                f"The master key of {self._master.source} is not the one that this database was made with. "
                "Nothing can be decrypted with it; restore the right key from your backup."
            )
        self._master = key

    def _open_key(self, wrapped: WrappedKey) -> bytes:
        with self._guard:
            key = self._keys.get(wrapped.id)
            if key is None:
                aad = _associated(wrapped.workspace_id, {"data_key": wrapped.id})
                key = self._keys[wrapped.id] = _decrypt(self._master.key, wrapped.nonce, wrapped.wrapped, aad)
            return key


def _cipher(key: bytes):  # noqa: ANN202 - the library is imported when something is first sealed
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)


def _decrypt(key: bytes, nonce: bytes, ciphertext: bytes, aad: bytes) -> bytes:
    from cryptography.exceptions import InvalidTag

    try:
        return _cipher(key).decrypt(nonce, ciphertext, aad)
    except (InvalidTag, ValueError):  # the latter for a nonce or ciphertext that was cut short
        message = "An encrypted value was changed, moved, or is under another master key; it cannot be opened."
        raise MasterKeyError(message, code="UNSEAL_FAILED") from None


def _associated(workspace_id: str, aad: Mapping[str, str]) -> bytes:
    return json.dumps({**aad, "workspace": workspace_id}, sort_keys=True, separators=(",", ":")).encode()


def _wrap(master: MasterKey, workspace_id: str, key_id: str, key: bytes) -> tuple[bytes, bytes]:
    nonce = secrets.token_bytes(_NONCE_BYTES)
    return nonce, _cipher(master.key).encrypt(nonce, key, _associated(workspace_id, {"data_key": key_id}))


def _check_value(master: MasterKey) -> MasterKeyCheck:
    nonce = secrets.token_bytes(_NONCE_BYTES)
    return MasterKeyCheck(master.id, nonce, _cipher(master.key).encrypt(nonce, _CHECK, master.id.encode()))


def _opens(master: MasterKey, check: MasterKeyCheck) -> bool:
    try:
        return _decrypt(master.key, check.nonce, check.ciphertext, check.id.encode()) == _CHECK
    except MasterKeyError:
        return False
