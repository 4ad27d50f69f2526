"""Measures the times of repeated exchanges between two ranks."""

import statistics
import time
from collections.abc import Callable, Iterable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from network_check.parameters import Parameters
from network_check.result import Timed


class Clock:
    """Measures the time of actions on a device, up to the end of their work there."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def seconds(self, action: Callable[[], object]) -> float:
        """Return the seconds that the action takes, including its work on the device."""
        self._synchronize()
        began = time.perf_counter()
        action()
        self._synchronize()
        return time.perf_counter() - began

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


class Peer:
    """The other rank of a pair. An exchange that takes longer than the time-out raises RuntimeError."""

    def __init__(self, rank: int, device: torch.device, timeout: float) -> None:
        self.rank = rank
        self._device = device
        self._timeout = timedelta(seconds=timeout)
        self._signal = torch.zeros(1, dtype=torch.uint8, device=device)

    def message(self, size: int) -> Tensor:
        """Return a message of `size` bytes."""
        return torch.zeros(size, dtype=torch.uint8, device=self._device)

    def send(self, message: Tensor) -> None:
        """Send the message to the peer."""
        self._await(dist.isend(message, self.rank))

    def receive(self, message: Tensor) -> None:
        """Receive the next message of the peer into this tensor."""
        self._await(dist.irecv(message, self.rank))

    def tell(self, number: int) -> None:
        """Send a number to the peer."""
        self.send(torch.tensor([number], device=self._device))

    def hear(self) -> int:
        """Receive a number from the peer, and return it."""
        number = torch.zeros(1, dtype=torch.int64, device=self._device)
        self.receive(number)
        return int(number.item())

    def acknowledge(self) -> None:
        """Send the shortest message, which acknowledges a message of the peer."""
        self.send(self._signal)

    def await_acknowledgement(self) -> None:
        """Wait for the peer's acknowledgement, the shortest message."""
        self.receive(self._signal)

    def _await(self, work: dist.Work | None) -> None:
        assert work is not None  # this rank is a member of the group
        work.wait(self._timeout)


def send_all(
    peer: Peer, sizes: Iterable[int], parameters: Parameters, clock: Clock
) -> tuple[list[Timed], float]:
    """Return the median one-way time of a message of each size, and the link's latency.

    The latency is half of the shortest round trip of messages of one byte: a busy processor makes round trips
    longer, and never shorter.

    The peer must call `receive_all` meanwhile, which answers each message with one byte. The time of this
    answer, half of the median round trip of messages of one byte, is subtracted from each time.

    The first size for which a message would take longer than `parameters.seconds` is left out, and so are all
    sizes after it. The time of a message is estimated from the time of the previous size.
    """

    def exchange(message: Tensor) -> None:
        peer.send(message)
        peer.await_acknowledgement()

    def timed(size: int) -> list[float]:
        message = peer.message(size)
        peer.tell(size)
        first = clock.seconds(lambda: exchange(message))  # also warms up
        repeats = repeats_for(first, parameters)
        peer.tell(repeats)
        return [clock.seconds(lambda: exchange(message)) for _ in range(repeats)]

    shortest = timed(1)
    answer = statistics.median(shortest) / 2
    found: list[Timed] = []
    for size in sizes:
        if found and is_too_long(found[-1].seconds, found[-1].bytes, size, parameters):
            break
        times = timed(size)
        seconds = statistics.median(times)
        # Take at least half of the round trip, in case the machine was busier during the one-byte messages.
        found.append(Timed(size, max(seconds - answer, seconds / 2), len(times)))
    peer.tell(0)
    return found, min(shortest) / 2


def receive_all(peer: Peer) -> None:
    """Receive and answer the messages of the peer's `send_all`."""
    while size := peer.hear():
        message = peer.message(size)
        peer.receive(message)
        peer.acknowledge()
        for _ in range(peer.hear()):
            peer.receive(message)
            peer.acknowledge()


def repeats_for(seconds: float, parameters: Parameters) -> int:
    """Return the number of repetitions, at least 1, for an exchange that takes `seconds`."""
    return max(1, min(parameters.repeats, int(parameters.seconds / max(seconds, 1e-9))))


def is_too_long(seconds: float, size: int, larger: int, parameters: Parameters) -> bool:
    """Return whether a message of `larger` bytes would take longer than `parameters.seconds`.

    A message of `size` bytes takes `seconds`. The time of small messages is mostly latency. So if `seconds`
    is at most a tenth of `parameters.seconds`, the time is not estimated, and the result is false.
    """
    return seconds > parameters.seconds / 10 and seconds * larger / size > parameters.seconds
