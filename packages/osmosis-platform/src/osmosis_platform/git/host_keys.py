"""The keys that ssh hosts are known by: what of a known_hosts text is one, and its fingerprint, as people compare it."""

from __future__ import annotations

import base64
import binascii
import hashlib

from osmosis_platform.errors import InvalidRequestError


def fingerprints(known_hosts: str | None) -> list[str]:
    """The keys of a text in OpenSSH's known_hosts format, such as `ssh-ed25519 SHA256:...` (ssh-keygen -l)."""
    found = [_fingerprint(line) for line in (known_hosts or "").splitlines()]
    return [one for one in found if one is not None]


def check_host_keys(known_hosts: str | None, host: str, port: int) -> None:
    """Refuses a text without a key.

    Raises:
        InvalidRequestError: There is none in it, so that no connection could ever be made.
    """
    if known_hosts is not None and not fingerprints(known_hosts):
        scan = f"ssh-keyscan {'' if port == 22 else f'-p {port} '}{host}"
        message = f"There is no host key in it. Give lines as `{scan}` prints them, after comparing the fingerprints."
        raise InvalidRequestError(message, field="known_hosts")


def name_of(host: str, port: int) -> str:
    """How OpenSSH, ssh-keyscan included, names a host in known_hosts."""
    return host if port == 22 else f"[{host}]:{port}"


def _fingerprint(line: str) -> str | None:
    words = line.split()
    if len(words) < 3 or words[0].startswith(("#", "@")):
        return None
    try:
        key = base64.b64decode(words[2], validate=True)
    except (binascii.Error, ValueError):
        return None
    kind = words[1].encode()
    if key[:4] != len(kind).to_bytes(4) or key[4 : 4 + len(kind)] != kind:
        return None
    digest = base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")
    return f"{words[1]} SHA256:{digest}"
