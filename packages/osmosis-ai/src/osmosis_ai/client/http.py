"""The HTTP library, set up once for everything the client room sends: certificates, headers, words for failures."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from osmosis_ai.client.address import is_loopback
from osmosis_ai.consts import PACKAGE_VERSION
from osmosis_ai.errors import PlatformError, UnreachableError

if TYPE_CHECKING:
    import ssl

    import httpx

USER_AGENT = f"osmosis-cli/{PACKAGE_VERSION}"


def httpx_module() -> Any:
    """`httpx` without its command line, which would load rich and pygments: half of the import's time."""
    if "httpx" not in sys.modules:
        blocked = "httpx._main" not in sys.modules
        if blocked:
            sys.modules["httpx._main"] = None  # ty: ignore[invalid-assignment]  # httpx then does without
        try:
            import httpx  # noqa: F401
        finally:
            if blocked:
                sys.modules.pop("httpx._main", None)
    return sys.modules["httpx"]


def make_client(url: str, *, connections: int = 10) -> httpx.Client:
    """A client with reused connections for requests to `url` and where it leads.

    Args:
        url: The first address. This machine is never asked through a proxy; plain http needs no certificates, which
            take time to load, so https behind a redirect of an http address is refused.
        connections: Most connections at a time.
    """
    httpx = httpx_module()
    parts = urlsplit(url)
    return httpx.Client(
        verify=_certificates() if parts.scheme == "https" else _no_certificates(),
        trust_env=not is_loopback(parts.hostname or ""),
        headers={"User-Agent": USER_AGENT},
        limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
    )


def unreachable(platform_url: str, error: Exception) -> PlatformError:
    """What to raise when the platform gave no reply: `UnreachableError` where it cannot have got the request."""
    httpx = httpx_module()
    unsent = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.InvalidURL)
    kind = UnreachableError if isinstance(error, unsent) else PlatformError
    return kind(
        f"Cannot reach the platform at {platform_url}: {failure_text(error)}. Check the network, and the address"
        " (--platform, OSMOSIS_PLATFORM_URL, or a .env file)."
    )


def failure_text(error: Exception) -> str:
    """Why a request got no reply, in a few words and without a URL."""
    httpx = httpx_module()
    match error:
        case httpx.TimeoutException():
            return "it did not answer in time"
        case httpx.RemoteProtocolError() | httpx.ReadError() | httpx.WriteError():
            return "the connection was lost"
        case httpx.DecodingError():
            return "its answer cannot be decoded"
        case httpx.InvalidURL():
            return "it redirects to an address that is malformed"
        case httpx.TooManyRedirects():
            return "it redirects without end"
        case httpx.ConnectError() if "CERTIFICATE_VERIFY_FAILED" in str(error):
            return "its certificate is not trusted; name the authority's file in SSL_CERT_FILE"
        case httpx.ConnectError() if "Name or service" in str(error) or "nodename" in str(error):
            return "its name is not known"
        case httpx.ConnectError():
            return "no connection could be made"
    return type(error).__name__


def _certificates() -> ssl.SSLContext:
    """The authorities that the system trusts (`SSL_CERT_FILE` and `SSL_CERT_DIR` count); certifi's where it has none."""
    import ssl

    context = ssl.create_default_context()
    paths = ssl.get_default_verify_paths()
    if not context.cert_store_stats()["x509_ca"] and not (paths.capath and os.listdir(paths.capath)):  # noqa: PTH208
        import certifi

        context.load_verify_locations(certifi.where())
    return context


def _no_certificates() -> ssl.SSLContext:
    """A context that trusts nobody, made in no time."""
    import ssl

    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
