"""Joins a PyTorch process group within a time-out.

PyTorch's own time-out is not enough: PyTorch waits for twice this time, and forever if another program holds
the port. So this module adds its own bound. It also tries a plain connection first. The error for a missing
master, the most common failure, is then one line instead of the page of text that PyTorch prints.
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
"""Extra seconds for PyTorch to report its own time-out."""


def meet(meeting: Meeting, rank: int, size: int, backend: str) -> None:
    """Join the default process group of `size` processes as `rank`.

    Raises GroupError if the group is not complete within the meeting's time-out. A signal interrupts the
    wait.
    """
    _stay_on_loopback(meeting)
    started = time.monotonic()
    # The master opens the port itself, so it cannot connect yet.
    await_master(meeting, connect=rank > 0)

    def join() -> None:
        # Let PyTorch read the address from the environment: if the process was started by torchrun, torchrun
        # listens there, and PyTorch connects to it instead of listening itself.
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


def _stay_on_loopback(meeting: Meeting) -> None:
    """Make gloo listen on loopback if the group meets there.

    By default, gloo listens at the address of the machine's host name. On a laptop, that address often
    belongs to a VPN or does not exist.
    """
    loopback = [name for _, name in socket.if_nameindex() if name.startswith("lo")]
    if loopback and meeting.on_loopback:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback[0])
