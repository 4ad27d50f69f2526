"""Joins a Horovod group without ssh: its processes connect to a server that rank 0 runs.

Usually, Horovod's launcher, horovodrun, starts the processes by ssh and runs the server. Here, the service
starts the processes and sets the launcher's variables (HOROVOD_RANK, …).
"""

import importlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException

import psutil
from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

from trainer_kit import environment
from trainer_kit.errors import GroupError
from trainer_kit.meeting import FIRST_PAUSE, LONGEST_PAUSE, Meeting, await_master, patience

MAX_PROCESSES = 100_000
SCOPE = "arrived"
"""The scope of the server's keys in which each process registers its rank."""


@contextmanager
def joined(framework: str = "torch") -> Iterator[None]:
    """Join the group that the environment defines.

    Inside the `with` block, Horovod's module for `framework`, such as `horovod.torch`, is initialized. Raises
    GroupError if the group is not complete within GROUP_TIMEOUT seconds. If none of Horovod's variables is
    set, the process is alone.
    """
    if "HOROVOD_GLOO_RENDEZVOUS_ADDR" in os.environ:
        _meet_at(
            Meeting(
                host=environment.text("HOROVOD_GLOO_RENDEZVOUS_ADDR"),
                port=environment.integer("HOROVOD_GLOO_RENDEZVOUS_PORT", at_least=1, at_most=65_535),
                timeout=patience(),
            )
        )
    hvd = importlib.import_module(f"horovod.{framework}")
    hvd.init()
    yield
    # Call this only after success: it waits for the other processes, and after a failure some are gone.
    hvd.shutdown()


def _meet_at(meeting: Meeting) -> None:
    """Wait for all processes at rank 0's server, and set Horovod's network interface."""
    os.environ.setdefault("HOROVOD_GLOO_TIMEOUT_SECONDS", str(meeting.timeout))
    size = environment.integer("HOROVOD_SIZE", at_least=1, at_most=MAX_PROCESSES)
    rank = environment.integer("HOROVOD_RANK", at_least=0, at_most=size - 1)
    server = _serve(meeting) if rank == 0 else None
    await_master(meeting, connect=rank > 0)
    # Wait here, because Horovod ends the process with SIGABRT if another process does not connect.
    _await_all(meeting, rank, size, server)
    os.environ.setdefault("HOROVOD_GLOO_IFACE", _interface_towards(meeting))


def _serve(meeting: Meeting) -> RendezvousHTTPServer:
    """Start the server of Horovod's launcher, and return it. It runs until this process ends."""
    host = meeting.host if meeting.on_loopback else ""  # a group on loopback needs no other address
    server = RendezvousHTTPServer((host, meeting.port), RendezvousHandler, verbose=0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def _await_all(meeting: Meeting, rank: int, size: int, server: RendezvousHTTPServer | None) -> None:
    """Wait for all processes. The master has the `server`, and the others have None.

    Raises GroupError, which names the missing ranks, after the meeting's time-out. Also raises GroupError if
    the master is lost.
    """
    deadline = time.monotonic() + meeting.timeout
    pause = FIRST_PAUSE

    def ask(about: int, method: str) -> bool:
        return _look_up(server, about, method) if server else _ask(meeting, about, method, deadline)

    try:
        ask(rank, "PUT")
        missing = set(range(size))
        while missing := {other for other in missing if not ask(other, "GET")}:
            if time.monotonic() > deadline:
                raise GroupError(
                    f"{len(missing)} of {size} processes did not connect to {meeting} within "
                    f"{meeting.timeout} s: ranks {', '.join(map(str, sorted(missing)))}"
                )
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
    except (OSError, HTTPException) as error:
        raise GroupError(f"lost the master at {meeting}: {error}") from error


def _ask(meeting: Meeting, rank: int, method: str, deadline: float) -> bool:
    """Register `rank` at the server (PUT), or ask whether it is registered (GET)."""
    while True:
        try:
            with closing(HTTPConnection(meeting.host, meeting.port, timeout=meeting.timeout)) as server:
                server.request(method, f"/{SCOPE}/{rank}", body=b"" if method == "PUT" else None)
                return server.getresponse().status == HTTPStatus.OK
        except (ConnectionResetError, BrokenPipeError):
            # Horovod's server closes a connection on which it receives nothing for 3 s. So a process that was
            # paused for that long asks again. If the master is gone, the next connection is refused.
            if time.monotonic() > deadline:
                raise
            time.sleep(FIRST_PAUSE)


def _look_up(server: RendezvousHTTPServer, rank: int, method: str) -> bool:
    """Do the same as `_ask`, without the threads of the server, which may be slow on a busy machine."""
    with server.cache_lock:
        arrived: dict[str, bytes] = server.cache.setdefault(SCOPE, {})
        if method == "PUT":
            arrived[str(rank)] = b""
        return str(rank) in arrived


def _interface_towards(meeting: Meeting) -> str:
    """Return the network interface that leads to the master, which may be on this machine."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        meeting.host, meeting.port, type=socket.SOCK_DGRAM
    )[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(address)  # sends nothing
        own = probe.getsockname()[0]
    for interface, addresses in psutil.net_if_addrs().items():
        # A link-local address carries its interface: fe80::1%eth0.
        if own in {known.address.partition("%")[0] for known in addresses}:
            return interface
    raise GroupError(f"no network interface has the address {own}, which leads to {meeting}")
