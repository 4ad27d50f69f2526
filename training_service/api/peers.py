"""Where calls come from: what tells one caller from another as long as callers have no names."""

import ipaddress
from urllib.parse import unquote

_IPV6_NETWORK = 64
"""Bits that an IPv6 network has: its users choose the others as they like."""


def peer_host(peer: str) -> str:
    """The host of a gRPC peer without its port, as in ipv4:192.0.2.1; of IPv6, the network that it is in."""
    scheme, _, address = peer.partition(":")
    host = unquote(address).rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        parsed = ipaddress.ip_address(host)
    except ValueError:
        return scheme  # a Unix socket, which has no names
    if isinstance(parsed, ipaddress.IPv4Address):
        return f"ipv4:{parsed}"
    if parsed.ipv4_mapped:
        return f"ipv4:{parsed.ipv4_mapped}"
    return f"ipv6:{ipaddress.ip_network((parsed, _IPV6_NETWORK), strict=False)}"
