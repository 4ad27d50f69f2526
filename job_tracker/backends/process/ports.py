"""Free ports for the instances of groups."""

import random
import socket
from collections.abc import Collection
from itertools import chain, islice

from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.errors import LaunchFailed


def free_ports(count: int, first: int, last: int, taken: Collection[int]) -> list[int]:
    """Ports that nobody listens on now and that are not in `taken`. LaunchFailed if there are too few.

    The range should lie outside that of outgoing connections (net.ipv4.ip_local_port_range), whose
    ports may be gone the moment after they were seen free.

    A master listens seconds after its port was seen free. So that another service on this machine does not
    choose the same one meanwhile, and its workers join the wrong master, the search begins anywhere.
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
            summary=f"The group needs {count} of the ports from {first} to {last}; fewer are free.",
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
