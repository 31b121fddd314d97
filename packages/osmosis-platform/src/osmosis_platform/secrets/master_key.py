"""The master key: 32 bytes from a variable, a file, or made on the first start; it never enters the database."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from osmosis_platform.errors import ServiceError
from osmosis_platform.settings import Settings

KEY_BYTES = 32
DEFAULT_FILE = "master.key"


class MasterKeyError(ServiceError):
    """The master key cannot be read, has the wrong form, or is not the one that this database was made with."""

    status = 503
    code = "MASTER_KEY"


@dataclass(frozen=True, slots=True)
class MasterKey:
    """The key that wraps all others.

    Attributes:
        key: 32 bytes.
        source: Where it came from, to name it to people.
    """

    key: bytes = field(repr=False)
    source: str

    @property
    def id(self) -> str:
        """A fingerprint that tells keys apart and says nothing about them."""
        return hashlib.sha256(b"osmosis master key id\0" + self.key).hexdigest()[:32]


def encode(key: bytes) -> str:
    """A key as variables and files hold it."""
    return base64.b64encode(key).decode()


def decode(text: str, source: str) -> MasterKey:
    """A key from its text.

    Raises:
        MasterKeyError: It is not the base64 of 32 bytes.
    """
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise MasterKeyError(
            f"{source} does not hold the base64 of {KEY_BYTES} bytes. Make one: openssl rand -base64 32"
        )
    return MasterKey(key, source)


def load_master_key(settings: Settings) -> MasterKey:
    """The master key of the settings; the default file is made on the first start, mode 600.

    Raises:
        MasterKeyError: The key or its file is missing, unreadable or malformed.
    """
    if settings.master_key is not None:
        return decode(settings.master_key.get_secret_value(), "OSMOSIS_MASTER_KEY")
    if settings.master_key_file is not None:
        return _read(settings.master_key_file)
    path = key_place(settings)
    if not path.exists():
        # SQLite alone can be new and empty; a shared database may already hold values under a key we lack
        with contextlib.suppress(FileExistsError):
            write_key(path, secrets.token_bytes(KEY_BYTES))
    return _read(path)


def key_place(settings: Settings) -> Path:
    """The file of the master key, unless it comes from a variable."""
    return settings.master_key_file or settings.data_dir / DEFAULT_FILE


def waiting_place(settings: Settings) -> Path:
    """Where a rotation keeps the new key until every row is under it; there is a file only then."""
    place = key_place(settings)
    return place.with_name(place.name + ".next")


def successors(settings: Settings) -> Iterator[MasterKey]:
    """The keys that may have taken the place of one that was just read: by a rotation that was killed, or has ended."""
    if settings.master_key is None:
        for path in (waiting_place(settings), key_place(settings)):
            with contextlib.suppress(MasterKeyError):
                yield _read(path)


def write_key(path: Path, key: bytes) -> None:
    """Writes a key file that did not exist, mode 600, on the disk before it counts.

    Raises:
        FileExistsError: There is one.
    """
    # a random name: in a container every start has the same process id, and a killed one may have left its file
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as stream:
            stream.write(encode(key) + "\n")
            stream.flush()
            os.fsync(descriptor)
        os.link(temporary, path)  # unlike a rename, never replaces the key of another process
    finally:
        temporary.unlink()
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _read(path: Path) -> MasterKey:
    try:
        return decode(path.read_text(encoding="ascii"), str(path))
    except FileNotFoundError:
        raise MasterKeyError(f"The master key file {path} does not exist. Restore it from your backup.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise MasterKeyError(f"The master key file {path} cannot be read: {error}.") from error
