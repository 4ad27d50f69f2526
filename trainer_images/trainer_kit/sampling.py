"""The order in which examples are taken, shared out to a group, and the place in it."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import Sampler

from trainer_kit.group import Group


class EpochSampler(Sampler[int]):
    """This process's share of the examples that the group has not yet taken in this epoch.

    Each epoch has an order of its own, which depends on the seed and the epoch alone. The group takes
    the order's examples in turn, rank by rank, so a group of another size goes on at the same place.
    The last examples that do not go round are left out.

    A loader asks for examples long before they are trained on, so the place is moved by the training
    code (`take`), not by the sampler.
    """

    def __init__(self, length: int, group: Group, seed: int) -> None:
        self._length = length
        self._group = group
        self._seed = seed
        self.epoch = 1
        self.taken = 0
        """How many examples of the epoch the group has trained on."""

    def __len__(self) -> int:
        return (self._length - self.taken) // self._group.size

    def __iter__(self) -> Iterator[int]:
        chance = torch.Generator().manual_seed(self._seed + self.epoch)
        order = torch.randperm(self._length, generator=chance).tolist()
        own = order[self.taken + self._group.rank :: self._group.size]
        return iter(own[: len(self)])

    def take(self, each: int) -> None:
        """Every process has trained on `each` more examples."""
        self.taken += each * self._group.size

    def next_epoch(self) -> None:
        """Begins the next epoch."""
        self.epoch, self.taken = self.epoch + 1, 0

    def state_dict(self) -> dict[str, Any]:
        """The place."""
        return {"epoch": self.epoch, "taken": self.taken}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes to the place that `state_dict` gave."""
        self.epoch, self.taken = state["epoch"], state["taken"]
