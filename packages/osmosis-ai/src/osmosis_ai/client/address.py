"""Addresses of platforms: their one comparable form, which one is active, and which may be spoken to in plain http."""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

from osmosis_ai.errors import ValidationError

PRODUCTION_URL = "https://platform.osmosis.ai"
PLATFORM_URL_VARIABLE = "OSMOSIS_PLATFORM_URL"
ALLOW_INSECURE_VARIABLE = "OSMOSIS_ALLOW_INSECURE_PLATFORM_URL"
_DEFAULT_PORTS = {"http": 80, "https": 443}


def active_platform_url(environ: Mapping[str, str] | None = None) -> str:
    """The platform that commands talk to, normalised; the production platform when none is named.

    Raises:
        ValidationError: The named URL is malformed.
    """
    environ = os.environ if environ is None else environ
    return normalise_platform_url(environ.get(PLATFORM_URL_VARIABLE) or PRODUCTION_URL)


def normalise_platform_url(url: str) -> str:
    """The comparable form of a platform's address: scheme added, host in lower case, no default port, slash or query.

    Raises:
        ValidationError: It has no host, another scheme than http(s), or a port that is no number.
    """
    stripped = url.strip()
    if "://" not in stripped:
        authority = stripped.split("/", 1)[0].rpartition("@")[2]
        host = authority[1:].split("]", 1)[0] if authority.startswith("[") else authority.rsplit(":", 1)[0]
        stripped = f"{'http' if is_loopback(host) else 'https'}://{stripped}"
    try:
        parts = urlsplit(stripped)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValidationError(f"Invalid platform URL {url!r}: check {PLATFORM_URL_VARIABLE} or --platform.") from None
    if parts.scheme not in _DEFAULT_PORTS or not host or any(letter.isspace() for letter in host):
        raise ValidationError(f"Invalid platform URL {url!r}: it must be an http(s) URL with a host.")
    shown = f"[{host}]" if ":" in host else host
    suffix = f":{port}" if port is not None and port != _DEFAULT_PORTS[parts.scheme] else ""
    return f"{parts.scheme}://{shown}{suffix}{parts.path.rstrip('/')}"


def is_loopback(host: str) -> bool:
    """Whether a host name or IP literal (without brackets) stands for this machine."""
    host = host.lower()
    if host == "localhost":
        return True
    from ipaddress import ip_address

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def is_private_in_transit(url: str) -> bool:
    """Whether nobody between here and the URL's host can read what is sent: https, or this very machine."""
    try:
        parts = urlsplit(url)
        return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
    except ValueError:
        return False
