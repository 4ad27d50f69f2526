"""Ports for servers that tests start."""

from job_tracker.backends.process.ports import free_ports

# Below the ports of outgoing connections, which may take one between its being seen free and its use, and
# apart from those that the service gives to masters.
_FIRST, _LAST = 13_000, 19_999


def free_port() -> int:
    """A port of this machine on which nothing listens."""
    [port] = free_ports(1, _FIRST, _LAST, ())
    return port
