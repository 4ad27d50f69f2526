"""Detects addresses that only this machine can reach."""

import ipaddress
import socket


def host_of(address: str) -> str:
    """The host of HOST:PORT, without the brackets of IPv6."""
    return address.rpartition(":")[0].strip("[]")


def is_loopback(address: str) -> bool:
    """Return whether only this machine can reach HOST:PORT.

    The only possible name is `localhost`, if it resolves to loopback addresses. Other names may change.
    """
    host = host_of(address)
    if host.lower() == "localhost":
        hosts = _resolved(host)
        return bool(hosts) and all(map(_is_loopback, hosts))
    return _is_loopback(host)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _resolved(host: str) -> set[str]:
    try:
        return {str(place[4][0]) for place in socket.getaddrinfo(host, None)}
    except OSError:
        return set()
