"""Exchange between the processes of a PyTorch group."""

from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist

from trainer_kit.checkpoints.exchange import Exchange
from trainer_kit.group import Group

T = TypeVar("T")


class GroupExchange(Exchange):
    """Uses a separate process group on the CPU.

    So the exchange does not wait for a GPU, and does not interfere with exchanges of other threads. With a
    group of one, it sends nothing.
    """

    def __init__(self, group: Group, patience: timedelta) -> None:
        """Create the process group; every process of the group must call this.

        `patience` is the time-out of each exchange.
        """
        super().__init__(group.rank, group.size)
        self.process_group = dist.new_group(backend="gloo", timeout=patience) if group.size > 1 else None

    def highest(self, *values: float) -> list[float]:
        """Return the maximum of each value over the processes."""
        if self.process_group is None:
            return list(values)
        highest = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(highest, dist.ReduceOp.MAX, self.process_group)
        return highest.tolist()

    def all(self, value: T) -> list[T]:
        """Return the values of all processes by rank."""
        if self.process_group is None:
            return [value]
        values: list[T] = [value] * self.size
        dist.all_gather_object(values, value, self.process_group)
        return values
