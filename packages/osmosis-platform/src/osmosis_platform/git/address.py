"""Which addresses the platform connects to on a user's word: public ones, resolved once and pinned (SSRF, DNS rebinding)."""

from __future__ import annotations

import ipaddress
import socket

from osmosis_platform.errors import InvalidRequestError, UnavailableError

type Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_METADATA = frozenset({ipaddress.ip_address("169.254.169.254"), ipaddress.ip_address("fd00:ec2::254")})
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
# Of the network's own translators, and forms of old: no machine of the internet has such an address.
_TRANSLATED = tuple(ipaddress.ip_network(text) for text in ("64:ff9b:1::/48", "::ffff:0:0:0/96", "::/96"))
_GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")


class AddressRefusedError(InvalidRequestError):
    """A host is, or resolves to, an address that the platform must not connect to."""

    code = "ADDRESS_REFUSED"


def pin(host: str, port: int, *, allow_private: bool) -> str:
    """The one address to connect to for a host name, checked.

    Args:
        host: A name or a literal address, without brackets.
        port: For the resolver.
        allow_private: Whether loopback and private networks will do (settings.allow_private_remotes). Link-local and
            metadata addresses never do.

    Raises:
        AddressRefusedError: Any of the host's addresses must not be connected to: all must be good, so that an answer
            of mixed addresses gains nothing.
        UnavailableError: The name does not resolve (`REMOTE_UNREACHABLE`).
    """
    try:
        answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    except (OSError, UnicodeError):
        message = f"The host {host} does not resolve; check the URL, or the name servers of the platform's machine."
        raise UnavailableError(message, code="REMOTE_UNREACHABLE") from None
    texts = list(dict.fromkeys(str(answer[4][0]).partition("%")[0] for answer in answers))
    for text in texts:
        if reason := objection(ipaddress.ip_address(text), allow_private=allow_private):
            remedy = "" if allow_private else "; an administrator can allow private networks (allow_private_remotes)"
            raise AddressRefusedError(f"The host {host} is {reason}, where the platform does not connect to{remedy}.")
    return texts[0]


def objection(address: Address, *, allow_private: bool) -> str | None:
    """Why an address must not be connected to; None if it may."""
    for inner in _embedded(address):
        if inner in _METADATA or inner.is_link_local:
            return "a link-local or metadata address"
        if inner.is_multicast or inner.is_unspecified:
            return "no address of one host"
        if not allow_private and not _is_of_the_internet(inner):
            return "in a private or reserved network"
    return None


def _is_of_the_internet(address: Address) -> bool:
    """Whether an address is given out to somebody; `is_global` knows those that are reserved, not those of nobody yet."""
    return address.is_global and (address.version == 4 or address in _GLOBAL_UNICAST)


def _embedded(address: Address) -> list[Address]:
    """The address, or the IPv4 addresses that an IPv6 address stands for."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    found: list[Address] = [address]
    if address.sixtofour is not None:
        found.append(address.sixtofour)
    if address.teredo is not None:
        found += address.teredo
    if any(address in network for network in _TRANSLATED):
        found.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    if address in _NAT64:
        found = [ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)]
    return found
