"""Hosts that cannot leave this machine."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Return whether traffic to `host` cannot leave this machine: localhost, 127.0.0.0/8 or ::1."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return address.is_loopback if address.version == 4 else address == ipaddress.IPv6Address("::1")
