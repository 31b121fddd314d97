"""Which addresses are this machine, and the variables that keep proxies away from them."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")


def is_loopback(url: str) -> bool:
    """Whether the URL's host is this machine by name or address (`localhost`, 127.0.0.0/8, ::1)."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def loopback_no_proxy(environ: Mapping[str, str]) -> dict[str, str]:
    """`NO_PROXY` and `no_proxy` for a child process: what the environment says, plus the loopback names.

    Both spellings get the union of both, because libraries differ in which one they read.
    """
    entries: dict[str, None] = {}
    for name in ("NO_PROXY", "no_proxy"):
        for entry in environ.get(name, "").split(","):
            if entry.strip():
                entries[entry.strip()] = None
    entries.update(dict.fromkeys(LOOPBACK_HOSTS))
    value = ",".join(entries)
    return {"NO_PROXY": value, "no_proxy": value}
