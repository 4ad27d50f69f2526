"""Free ports for the instances of groups."""

import random
import socket
from collections.abc import Collection
from itertools import chain, islice

from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.errors import LaunchFailed


def free_ports(count: int, first: int, last: int, taken: Collection[int]) -> list[int]:
    """Return `count` ports from `first` to `last` that are not in `taken` and have no listener.

    Raises LaunchFailed if too few are free.

    The range should lie outside the range of outgoing connections (net.ipv4.ip_local_port_range): an outgoing
    connection may take a port right after the check.

    A master begins to listen seconds after the check. If another service on this machine picked the same
    port, its workers would join the wrong master. To make this unlikely, the search starts at a random port.
    """
    start = random.randint(first, last)  # noqa: S311
    everywhere = chain(range(start, last + 1), range(first, start))
    free = (port for port in everywhere if port not in taken and _is_free(port))
    ports = list(islice(free, count))
    if len(ports) == count:
        return ports
    raise LaunchFailed(
        Diagnosis(
            category=Category.NO_FREE_PORT,
            summary=f"The group needs {count} free ports from {first} to {last}, but fewer are free.",
            resolution="Wait until other jobs have ended, or widen the range process.first_port to "
            "process.last_port.",
            retryable=True,
        )
    )


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # The socket has the options of a master, so that ports in TIME_WAIT count as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True
