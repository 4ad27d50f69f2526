"""Coming together as a group, within a bound.

PyTorch bounds most of this itself, but it tries twice as long as it is told, and waits for ever for
an answer from a port that another program holds. So the whole is bounded here once more, and the
commonest failure, a master that is not there, is found by a plain connection first: its error is one
line, where PyTorch's is a page.
"""

import os
import socket
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Self

import torch.distributed as dist

from trainer_kit import background, environment
from trainer_kit.errors import GroupError

FIRST_PAUSE, LONGEST_PAUSE = 0.02, 1.0
MARGIN = 5.0
"""Seconds more than its own bound that PyTorch gets to say what it was waiting for."""


@dataclass(frozen=True)
class Meeting:
    """Where a group comes together, and for how long its processes wait for each other."""

    host: str
    port: int
    timeout: int
    """Seconds; bounds the joining, and every exchange after it."""

    @classmethod
    def from_environment(cls) -> Self:
        """Reads MASTER_ADDR, MASTER_PORT and GROUP_TIMEOUT (seconds)."""
        return cls(
            host=environment.text("MASTER_ADDR"),
            port=environment.integer("MASTER_PORT", default=12356, at_least=1, at_most=65_535),
            timeout=patience(),
        )

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def patience() -> int:
    """Seconds that processes wait for each other, when they join and in every exchange: GROUP_TIMEOUT."""
    return environment.integer("GROUP_TIMEOUT", default=600, at_least=1, at_most=86_400)


def meet(meeting: Meeting, rank: int, size: int, backend: str) -> None:
    """Makes this process number `rank` of the default process group of `size` processes.

    Raises GroupError when the group is not complete within the meeting's timeout. The wait can be
    interrupted by a signal.
    """
    _stay_on_loopback_with(meeting.host)
    started = time.monotonic()
    # The master opens the port itself, so for it there is nothing to connect to yet.
    _await_master(meeting, connect=rank > 0)

    def join() -> None:
        # The address goes through the environment: under torchrun the launcher keeps the meeting point.
        os.environ["MASTER_PORT"] = str(meeting.port)
        timeout = timedelta(seconds=meeting.timeout)
        dist.init_process_group(backend, rank=rank, world_size=size, timeout=timeout)

    try:
        background.start(join).result(meeting.timeout + MARGIN)
    except (RuntimeError, OSError) as error:  # a TimeoutError is an OSError
        waited = time.monotonic() - started
        reason = str(error).partition("\n")[0] or "no answer"
        raise GroupError(
            f"process {rank} of {size} could not join its group at {meeting} "
            f"and gave up after {waited:.1f} s: {reason}"
        ) from error


def _await_master(meeting: Meeting, *, connect: bool) -> None:
    """Waits until the master's name resolves and, to `connect`, its port accepts."""
    deadline = time.monotonic() + meeting.timeout
    pause = FIRST_PAUSE
    while True:
        try:
            if connect:
                patience = max(deadline - time.monotonic(), FIRST_PAUSE)
                socket.create_connection((meeting.host, meeting.port), timeout=patience).close()
            else:
                socket.getaddrinfo(meeting.host, meeting.port)
        except OSError as error:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise GroupError(
                    f"could not reach the master at {meeting} within {meeting.timeout} s: {error}"
                ) from error
            time.sleep(min(pause, remaining))
            pause = min(2 * pause, LONGEST_PAUSE)
        else:
            return


def _stay_on_loopback_with(host: str) -> None:
    """Keeps a group that meets on loopback there.

    Gloo would listen at the address of the machine's host name, which on a laptop is often a VPN's
    or none at all.
    """
    loopback = [name for _, name in socket.if_nameindex() if name.startswith("lo")]
    if loopback and host in {"localhost", "127.0.0.1", "::1"}:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback[0])
