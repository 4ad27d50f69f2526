"""Exchange of values between the processes of a group, separate from the training's own exchanges."""

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
    """Lets all processes of a group agree. Every process must make the same calls in the same order.

    It uses a separate process group on the CPU, so it does not wait for a GPU or interfere with exchanges of
    other threads. With a group of one, it sends nothing.
    """

    def __init__(self, group: Group, patience: timedelta) -> None:
        """Create it in every process of the group. `patience` bounds each call."""
        self._size = group.size
        self.is_first = group.is_master
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
        values: list[T] = [value] * self._size
        dist.all_gather_object(values, value, self.process_group)
        return values

    def agreed(self, action: Callable[[], T]) -> list[T]:
        """Run `action` in every process and return the results by rank.

        A TrainingError in one process is raised in all.
        """
        return [outcome.value() for outcome in self.all(_Outcome.of(action))]

    def by_first(self, action: Callable[[], T]) -> T:
        """Run `action` in rank 0 only, and return its result or raise its error in every process."""
        return self.all(_Outcome.of(action) if self.is_first else None)[0].value()  # type: ignore[union-attr]


@dataclass(frozen=True)
class _Outcome(Generic[T]):
    """The result or TrainingError of an action.

    Other exceptions are not passed on, since not all can be sent to a process.
    """

    result: T | None = None
    error: TrainingError | None = None

    @classmethod
    def of(cls, action: Callable[[], T]) -> "_Outcome[T]":
        try:
            return cls(result=action())
        except TrainingError as error:
            return cls(error=error)

    def value(self) -> T:
        if self.error is not None:
            raise self.error
        return cast(T, self.result)
