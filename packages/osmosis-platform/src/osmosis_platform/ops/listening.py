"""The socket that the platform listens on, bound before anything is promised to anybody."""

from __future__ import annotations

import ipaddress
import socket

from osmosis_platform.errors import InvalidRequestError, TakenError
from osmosis_platform.settings import Settings


def is_loopback(host: str) -> bool:
    """Whether an address or name is this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def bind(settings: Settings) -> tuple[socket.socket, Settings]:
    """Binds the socket.

    Returns:
        The listening socket, and the settings with the port that it got.

    Raises:
        InvalidRequestError: The address is beyond loopback and there is no TLS, or it is not of this machine.
        TakenError: Something else listens there.
    """
    if not is_loopback(settings.host) and settings.tls_cert is None and not settings.allow_plain_http:
        raise InvalidRequestError(
            f"Listening on {settings.host} without TLS would send tokens in the clear, and the client refuses it. "
            "Give --tls-cert and --tls-key, or --allow-plain-http behind a proxy that speaks https.",
            code="TLS_REQUIRED",
        )
    host = settings.host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle off only where the protocol is named; without it each answer of two parts takes 40 ms more.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, settings.port))
        sock.listen(2048)
    except OSError as error:
        sock.close()
        if error.errno == 98:
            message = (
                f"Something already listens on {settings.host}:{settings.port}. Choose another --port (0: a free one)."
            )
            raise TakenError(message, code="PORT_IN_USE") from error
        message = f"Cannot listen on {settings.host}:{settings.port}: {error.strerror or error}."
        raise InvalidRequestError(message, code="ADDRESS") from error
    return sock, settings.model_copy(update={"port": sock.getsockname()[1]})
