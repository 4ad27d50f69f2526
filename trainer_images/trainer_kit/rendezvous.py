"""Coming together as a group, within a bound.

PyTorch bounds most of this itself, but it tries twice as long as it is told, and waits for ever for
an answer from a port that another program holds. So the whole is bounded here once more, and the
commonest failure, a master that is not there, is found by a plain connection first: its error is one
line, where PyTorch's is a page.
"""

import os
import socket
import time
from datetime import timedelta

import torch.distributed as dist

from trainer_kit import background
from trainer_kit.errors import GroupError
from trainer_kit.meeting import Meeting, await_master

MARGIN = 5.0
"""Seconds more than its own bound that PyTorch gets to say what it was waiting for."""


def meet(meeting: Meeting, rank: int, size: int, backend: str) -> None:
    """Makes this process number `rank` of the default process group of `size` processes.

    Raises GroupError when the group is not complete within the meeting's timeout. The wait can be
    interrupted by a signal.
    """
    _stay_on_loopback_with(meeting)
    started = time.monotonic()
    # The master opens the port itself, so for it there is nothing to connect to yet.
    await_master(meeting, connect=rank > 0)

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


def _stay_on_loopback_with(meeting: Meeting) -> None:
    """Keeps a group that meets on loopback there.

    Gloo would listen at the address of the machine's host name, which on a laptop is often a VPN's
    or none at all.
    """
    loopback = [name for _, name in socket.if_nameindex() if name.startswith("lo")]
    if loopback and meeting.on_loopback:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback[0])
