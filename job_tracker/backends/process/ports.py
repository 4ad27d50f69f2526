"""Free ports for the masters of groups."""

import socket
from collections.abc import Collection

from job_tracker.diagnosis import Category, Diagnosis
from job_tracker.errors import LaunchFailed


def free_port(first: int, last: int, taken: Collection[int]) -> int:
    """A port that nobody listens on now and that is not in `taken`. LaunchFailed if there is none.

    The range should lie outside that of outgoing connections (net.ipv4.ip_local_port_range), whose
    ports may be gone the moment after they were seen free.
    """
    for port in range(first, last + 1):
        if port not in taken and _is_free(port):
            return port
    raise LaunchFailed(
        Diagnosis(
            category=Category.NO_FREE_PORT,
            summary=f"No port from {first} to {last} is free for the master.",
            resolution="Wait until other jobs have ended, or widen process.first_port … process.last_port.",
            retryable=True,
        )
    )


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As a master binds it: a port that lingers in TIME_WAIT can be had.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True
