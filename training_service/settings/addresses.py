"""Addresses to listen at, and which of them only this machine can reach."""

import ipaddress
import re
import socket
from typing import Annotated

from pydantic import AfterValidator

_LAST_PORT = 65535
_LOOPBACK = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "[::1]"))
_FORM = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:\s]+):(\d{1,5})", re.ASCII)


def _checked(address: str) -> str:
    form = _FORM.fullmatch(address)
    if form is None:
        raise ValueError("it must be HOST:PORT, such as 127.0.0.1:51001, localhost:51001 or [::1]:51001")
    if int(form[2]) > _LAST_PORT:
        raise ValueError(f"the port must be from 0 to {_LAST_PORT}")
    return address


Address = Annotated[str, AfterValidator(_checked)]
"""HOST:PORT. The brackets of IPv6 are part of the host."""


def split(address: str) -> tuple[str, str]:
    """Return the host of HOST:PORT, with the brackets of IPv6, and the port."""
    host, _, port = address.rpartition(":")
    return host, port


def host_of(address: str) -> str:
    """Return the host of HOST:PORT, without the brackets of IPv6."""
    return address.rpartition(":")[0].strip("[]")


def is_loopback(address: str) -> bool:
    """Return whether only this machine can reach HOST:PORT.

    `localhost` is loopback if all its addresses are loopback addresses. No other host name is loopback, since
    it may resolve to other addresses later.
    """
    host = host_of(address)
    if host.lower() == "localhost":
        hosts = _resolved(host)
        return bool(hosts) and all(map(_is_loopback, hosts))
    return _is_loopback(host)


def loopback_hosts() -> list[str]:
    """Return the loopback addresses of `localhost` that this machine has. IPv6 addresses have brackets."""
    return [host for family, host in _LOOPBACK if _has(family, host.strip("[]"))]


def _has(family: int, host: str) -> bool:
    try:
        with socket.socket(family) as trial:
            trial.bind((host, 0))
    except OSError:
        return False
    return True


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
