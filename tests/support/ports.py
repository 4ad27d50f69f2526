"""Ports for servers that tests start."""

import fcntl
import os
import tempfile

from job_tracker.backends.process.ports import free_ports

# This range is below the ports of outgoing connections, which could take a port between the check and its
# use. The service does not choose ports in it for masters.
_FIRST, _LAST = 13_000, 19_999

_claims = os.open(
    f"{tempfile.gettempdir()}/training-service-test-ports-{os.getuid()}", os.O_RDWR | os.O_CREAT
)
"""A file in which a lock on the byte of a port reserves it until this process ends."""

_claimed: set[int] = set()


def free_port() -> int:
    """Return an unused port that no other call returns, in this or another test process."""
    while True:
        [port] = free_ports(1, _FIRST, _LAST, _claimed)
        _claimed.add(port)
        if port % 2:
            continue  # The dashboard of a service takes the port after the service's, without a lock.
        try:
            fcntl.lockf(_claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        except OSError:
            continue
        return port
