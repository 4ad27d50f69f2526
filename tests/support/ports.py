"""Ports for servers that tests start."""

import fcntl
import os
import tempfile

from job_tracker.backends.process.ports import free_ports

# Below the ports of outgoing connections, which may take one between its being seen free and its use, and
# apart from those that the service gives to masters.
_FIRST, _LAST = 13_000, 19_999

_claims = os.open(
    f"{tempfile.gettempdir()}/training-service-test-ports-{os.getuid()}", os.O_RDWR | os.O_CREAT
)
"""A lock on the byte of a port claims it for this process until the process ends."""

_claimed: set[int] = set()


def free_port() -> int:
    """A port on which nothing listens, and which no other call returns, here or in another test process."""
    while True:
        [port] = free_ports(1, _FIRST, _LAST, _claimed)
        _claimed.add(port)
        try:
            fcntl.lockf(_claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        except OSError:
            continue
        return port
