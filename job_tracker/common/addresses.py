"""Addresses of hosts, such as ipv4:192.0.2.1 and ipv6:2001:db8::1."""

import ipaddress
from functools import lru_cache
from typing import Final

_IPV6_NETWORK: Final = 64  # the bits of the network; users choose the other bits freely
_REMEMBERED: Final = 1024


@lru_cache(_REMEMBERED)
def network_of(address: str) -> str:
    """Return the part of the address that a caller cannot choose. Limits count callers by this part.

    For an IPv6 address, this part is the network, such as ipv6:2001:db8::/64. Any other address is returned
    as a whole.
    """
    scheme, _, host = address.partition(":")
    if scheme != "ipv6":
        return address
    try:
        return f"ipv6:{ipaddress.ip_network((host, _IPV6_NETWORK), strict=False)}"
    except ValueError:
        return address
