"""Addresses of callers, as gRPC writes them."""

import ipaddress
from urllib.parse import unquote


def peer_host(peer: str) -> str:
    """Return the host of a gRPC peer without its port, such as ipv4:192.0.2.1 or ipv6:2001:db8::1.

    For a peer without an IP address, return its scheme, such as unix.
    """
    address = unquote(peer).removeprefix("ipv4:").removeprefix("ipv6:")
    if address.startswith("["):
        host = address[1:].partition("]")[0]
    else:
        host = address.partition(":")[0] if address.count(":") == 1 else address
    try:
        parsed = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return peer.partition(":")[0]  # a Unix socket
    if isinstance(parsed, ipaddress.IPv4Address):
        return f"ipv4:{parsed}"
    return f"ipv4:{parsed.ipv4_mapped}" if parsed.ipv4_mapped else f"ipv6:{parsed}"
