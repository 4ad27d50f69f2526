"""Live groups as a backend that watches an engine knows them: begun, told of, waited for, forgotten."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from job_tracker.backends.base import Observation
from job_tracker.common.broadcast import Broadcast
from job_tracker.domain.group import GroupRef


@dataclass(slots=True)
class LiveGroup(ABC):
    """One group between launch and stop."""

    ref: GroupRef
    instances: int
    gone: set[int] = field(default_factory=set)
    """Ranks whose pod or container was there, and is not any more."""
    launching: bool = False
    held: bool = False
    """Whether somebody here waits for its end, and will drop it."""
    timer: asyncio.TimerHandle | None = None
    """When it is looked at again, if time alone may change what is seen of it."""
    last: Observation | None = None

    @property
    def is_kept(self) -> bool:
        """Whether it was stopped, and what is left of it is only kept for people to look at."""
        return False

    @abstractmethod
    def restarts_of(self, rank: int) -> int:
        """How often the rank was started again."""


AGroup = TypeVar("AGroup", bound=LiveGroup)


class LiveGroups(ABC, Generic[AGroup]):
    """All live groups. Tells `feed` of every new observation, and `touched` of every change of a member."""

    def __init__(self, make: Callable[[GroupRef, int], AGroup]) -> None:
        """`make` gives a group of so many instances of which nothing is known yet."""
        self.feed: Broadcast[GroupRef, Observation] = Broadcast()
        self.touched: Broadcast[GroupRef, None] = Broadcast()
        self._make = make
        self._groups: dict[GroupRef, AGroup] = {}

    def __iter__(self) -> Iterator[AGroup]:
        return iter(list(self._groups.values()))

    def get(self, ref: GroupRef) -> AGroup | None:
        """The group, if it is known."""
        return self._groups.get(ref)

    @abstractmethod
    def observe(self, group: AGroup) -> Observation:
        """Look at the group now, and publish the observation if it is new."""

    def begin(self, ref: GroupRef, instances: int) -> AGroup:
        """The group that is about to be launched, or is already."""
        group = self._known_or_new(ref, instances)
        group.launching = True
        return group

    def drop(self, ref: GroupRef) -> None:
        """Forget a group that is gone."""
        group = self._groups.pop(ref, None)
        if group is not None and group.timer is not None:
            group.timer.cancel()

    async def wait(self, group: AGroup, condition: Callable[[AGroup], bool], within: float | None) -> bool:
        """Wait until the condition holds, which only a change of its members can bring, or for so long."""
        try:
            async with asyncio.timeout(within):
                with self.touched.subscribe(group.ref) as changes:
                    while not condition(group):
                        await anext(changes)
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        """Let go of all groups; they live on."""
        for group in self:
            self.drop(group.ref)

    def _known_or_new(self, ref: GroupRef, instances: int) -> AGroup:
        group = self._groups.get(ref)
        if group is None:
            group = self._groups[ref] = self._make(ref, instances)
        return group

    def _tell(self, group: AGroup, seen: Observation) -> None:
        """Tell who watches, if what is seen of the group is new."""
        if seen != group.last:
            group.last = seen
            self.feed.publish(group.ref, seen)

    def _look_again(self, group: AGroup, look: Callable[[AGroup], object], after: float | None) -> None:
        """Look at the group after so many seconds, unless something makes us look before; or do not."""
        if group.timer is not None:
            group.timer.cancel()
            group.timer = None
        if after is not None:
            group.timer = asyncio.get_running_loop().call_later(after, look, group)
