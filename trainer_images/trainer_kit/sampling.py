"""The order of the examples, divided among a group, and the position of the training in this order."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import Sampler

from trainer_kit.errors import DataError
from trainer_kit.group import Group


def steps_of_epoch(count: int, what: str, batch_size: int, group: Group) -> int:
    """Return the number of full steps in an epoch of `count` examples.

    Each process takes `batch_size` examples in a step. Raises DataError if the examples do not fill one step;
    `what` names them in the error message.
    """
    of_step = group.size * batch_size
    if count < of_step:
        largest = count // group.size
        raise DataError(
            f"{count} {what} do not fill one step: {group.size} processes x BATCH_SIZE {batch_size} = "
            f"{of_step}; "
            + (f"lower BATCH_SIZE to at most {largest}" if largest else f"use at most {count} processes")
        )
    return count // of_step


class EpochSampler(Sampler[int]):
    """This process's share of the examples that remain in this epoch.

    The order of each epoch depends only on the seed and the epoch. The ranks take the examples in turn, so a
    group of another size continues at the same position. The last examples are dropped if they are fewer than
    the ranks.

    A loader requests examples long before the training uses them. So the training code, not the sampler,
    moves the position (`take`).
    """

    def __init__(self, length: int, group: Group, seed: int) -> None:
        self._length = length
        self._group = group
        self._seed = seed
        self.epoch = 1
        self.taken = 0
        """The number of examples of the epoch that the group has trained on."""

    def __len__(self) -> int:
        return (self._length - self.taken) // self._group.size

    def __iter__(self) -> Iterator[int]:
        chance = torch.Generator().manual_seed(self._seed + self.epoch)
        order = torch.randperm(self._length, generator=chance).tolist()
        own = order[self.taken + self._group.rank :: self._group.size]
        return iter(own[: len(self)])

    def take(self, each: int) -> None:
        """Move the position: every process has trained on `each` more examples."""
        self.taken += each * self._group.size

    def next_epoch(self) -> None:
        """Start the next epoch."""
        self.epoch, self.taken = self.epoch + 1, 0

    def state_dict(self) -> dict[str, Any]:
        """Return the position, for a checkpoint."""
        return {"epoch": self.epoch, "taken": self.taken}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a position from `state_dict`."""
        self.epoch, self.taken = state["epoch"], state["taken"]
