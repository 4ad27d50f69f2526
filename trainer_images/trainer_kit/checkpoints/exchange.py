"""Exchange of values between the processes of a group, separate from the training's own exchanges."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from trainer_kit.errors import TrainingError

T = TypeVar("T")


class Exchange(ABC):
    """Lets all processes of a group agree. Every process must make the same calls in the same order."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size

    @property
    def is_first(self) -> bool:
        """Whether this process decides for the group."""
        return self.rank == 0

    @abstractmethod
    def all(self, value: T) -> list[T]:
        """Return the values of all processes by rank."""

    def highest(self, *values: float) -> list[float]:
        """Return the maximum of each value over the processes."""
        return [max(of_all) for of_all in zip(*self.all(values), strict=True)]

    def agreed(self, action: Callable[[], T]) -> list[T]:
        """Run `action` in every process and return the results by rank.

        A TrainingError in one process is raised in all.
        """
        return [outcome.value() for outcome in self.all(_Outcome.of(action))]

    def by_first(self, action: Callable[[], T]) -> T:
        """Run `action` in rank 0 only, and return its result or raise its TrainingError in every process."""
        return self.all(_Outcome.of(action) if self.is_first else None)[0].value()  # type: ignore[union-attr]


class Alone(Exchange):
    """The exchange of a process that is alone. It sends nothing."""

    def __init__(self) -> None:
        super().__init__(0, 1)

    def all(self, value: T) -> list[T]:
        """Return a list that has only this value."""
        return [value]


@dataclass(frozen=True)
class _Outcome(Generic[T]):
    """The result or TrainingError of an action.

    Other exceptions are not passed on, because some of them cannot be sent to another process.
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
