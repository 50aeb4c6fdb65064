"""Judge the host of a URL without resolving a name."""

from __future__ import annotations

import ipaddress
import socket
from typing import Final
from urllib.parse import unquote

_GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
"""All that the Internet uses of IPv6. Everything else is of one link or site, or has an IPv4 address within it."""

_OF_THIS_MACHINE: Final = frozenset({"localhost", "localdomain", "ip6-localhost", "ip6-loopback"})
"""Names, or ends of names, that mean this machine wherever they are resolved."""


def is_loopback(host: str) -> bool:
    """Return whether traffic to `host` cannot leave this machine: localhost, 127.0.0.0/8 or ::1."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return address.is_loopback if address.version == 4 else address == ipaddress.IPv6Address("::1")


def is_not_public(host: str) -> bool:
    """Return whether `host` is an address outside the public Internet, or a name of this machine.

    Such are loopback, private, shared (100.64.0.0/10), link-local and unspecified addresses, also within an IPv6
    address, and an IPv4 address in any form that connects: ``127.1``, ``0x7f000001``. Other names are not resolved.
    """
    name = unquote(host).partition("%")[0].rstrip(".").lower()  # without the zone of a link-local address
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        try:
            address = ipaddress.IPv4Address(socket.inet_aton(name))
        except (OSError, ValueError):  # of a null character
            return name.rpartition(".")[2] in _OF_THIS_MACHINE
    if isinstance(address, ipaddress.IPv6Address):
        within = address.ipv4_mapped or address.sixtofour
        if within is None:
            return address not in _GLOBAL_UNICAST or not address.is_global
        address = within
    return address.is_multicast or not address.is_global
