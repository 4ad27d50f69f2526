"""Addresses of callers, which identify callers without a name."""

import ipaddress
from urllib.parse import unquote

_IPV6_NETWORK = 64  # the bits of the network; users choose the other bits freely


def peer_host(peer: str) -> str:
    """Return the host of a gRPC peer without its port, such as ipv4:192.0.2.1.

    For IPv6, return the /64 network of the host. For a Unix socket, return only the scheme.
    """
    scheme, _, address = peer.partition(":")
    host = unquote(address).rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        parsed = ipaddress.ip_address(host)
    except ValueError:
        return scheme  # a Unix socket
    if isinstance(parsed, ipaddress.IPv4Address):
        return f"ipv4:{parsed}"
    if parsed.ipv4_mapped:
        return f"ipv4:{parsed.ipv4_mapped}"
    return f"ipv6:{ipaddress.ip_network((parsed, _IPV6_NETWORK), strict=False)}"
