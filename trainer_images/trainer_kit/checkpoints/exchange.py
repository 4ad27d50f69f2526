"""Words that the processes of a group pass to each other, apart from the training's own exchanges."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, TypeVar, cast

import torch
import torch.distributed as dist

from trainer_kit.errors import TrainingError
from trainer_kit.group import Group

T = TypeVar("T")


class Exchange:
    """A way for all processes of a group to agree; every process must make the same calls in order.

    It is a process group of its own, on the CPU, so that it never waits for a GPU or mixes with what
    another thread exchanges. With a group of one, nothing is sent.
    """

    def __init__(self, group: Group, patience: timedelta) -> None:
        """Every process of the group must do this; `patience` bounds each call."""
        self._size = group.size
        self.is_first = group.is_master
        self.process_group = dist.new_group(backend="gloo", timeout=patience) if group.size > 1 else None

    def highest(self, *values: float) -> list[float]:
        """The highest of each value over the processes."""
        if self.process_group is None:
            return list(values)
        highest = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(highest, dist.ReduceOp.MAX, self.process_group)
        return highest.tolist()

    def all(self, value: T) -> list[T]:
        """What each process says, by rank."""
        if self.process_group is None:
            return [value]
        said: list[T] = [value] * self._size
        dist.all_gather_object(said, value, self.process_group)
        return said

    def agreed(self, action: Callable[[], T]) -> list[T]:
        """Does `action` in every process, and returns what it gave in each, by rank.

        A TrainingError that it raised in one process is raised in all.
        """
        return [outcome.value() for outcome in self.all(_Outcome.of(action))]

    def by_first(self, action: Callable[[], T]) -> T:
        """Does `action` in rank 0 alone, and returns or raises in every process what it did there."""
        return self.all(_Outcome.of(action) if self.is_first else None)[0].value()  # type: ignore[union-attr]


@dataclass(frozen=True)
class _Outcome(Generic[T]):
    """What an action gave. Our own errors only: not every exception can be sent to another process."""

    given: T | None = None
    error: TrainingError | None = None

    @classmethod
    def of(cls, action: Callable[[], T]) -> "_Outcome[T]":
        try:
            return cls(given=action())
        except TrainingError as error:
            return cls(error=error)

    def value(self) -> T:
        if self.error is not None:
            raise self.error
        return cast(T, self.given)
