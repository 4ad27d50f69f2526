"""The live groups that a backend knows from watching its engine."""

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
    """A group from its launch until its stop; or, if `is_kept`, a stopped group whose objects are kept."""

    ref: GroupRef
    instances: int
    gone: set[int] = field(default_factory=set)
    """The ranks whose pod or container existed and is gone."""
    launching: bool = False
    held: bool = False
    """Whether a stop waits for the end of the group. If so, the stop itself drops the group afterwards."""
    timer: asyncio.TimerHandle | None = None
    """The timer of the group's next observation.

    It is set if the observation may change just because time passes.
    """
    last: Observation | None = None

    @property
    def is_kept(self) -> bool:
        """Whether the group was stopped, and its objects are kept only for inspection."""
        return False

    @abstractmethod
    def restarts_of(self, rank: int) -> int:
        """Return how often the rank was restarted."""


AGroup = TypeVar("AGroup", bound=LiveGroup)


class LiveGroups(ABC, Generic[AGroup]):
    """All live groups. New observations are published to `feed`, and changes of instances to `touched`."""

    def __init__(self, make: Callable[[GroupRef, int], AGroup]) -> None:
        """`make` creates a group, without known instances, from its GroupRef and its number of instances."""
        self.feed: Broadcast[GroupRef, Observation] = Broadcast()
        self.touched: Broadcast[GroupRef, None] = Broadcast()
        self._make = make
        self._groups: dict[GroupRef, AGroup] = {}

    def __iter__(self) -> Iterator[AGroup]:
        return iter(list(self._groups.values()))

    def get(self, ref: GroupRef) -> AGroup | None:
        """Return the group, or None if it is unknown."""
        return self._groups.get(ref)

    @abstractmethod
    def observe(self, group: AGroup) -> Observation:
        """Observe the group, and return the observation. Publish it if it is new."""

    def begin(self, ref: GroupRef, instances: int) -> AGroup:
        """Return the group, marked as being launched. It is created if it is unknown."""
        group = self._known_or_new(ref, instances)
        group.launching = True
        return group

    def drop(self, ref: GroupRef) -> None:
        """Remove a group that is gone."""
        group = self._groups.pop(ref, None)
        if group is None:
            return
        if group.timer is not None:
            group.timer.cancel()
        self.touched.publish(ref, None)  # wakes the calls of `wait`: perhaps no other change comes

    async def wait(self, group: AGroup, condition: Callable[[AGroup], bool], within: float | None) -> bool:
        """Wait until the condition holds, and return True; return False if it does not hold after `within`
        seconds.

        The condition must depend on the group's instances only. If `within` is None, there is no limit.
        """
        try:
            async with asyncio.timeout(within):
                with self.touched.subscribe(group.ref) as changes:
                    while not condition(group):
                        await anext(changes)
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        """Drop all groups. They continue to run."""
        for group in self:
            self.drop(group.ref)

    def _known_or_new(self, ref: GroupRef, instances: int) -> AGroup:
        group = self._groups.get(ref)
        if group is None:
            group = self._groups[ref] = self._make(ref, instances)
        return group

    def _publish(self, group: AGroup, seen: Observation) -> None:
        """Publish the observation of the group if it is new."""
        if seen != group.last:
            group.last = seen
            self.feed.publish(group.ref, seen)

    def _look_again(self, group: AGroup, look: Callable[[AGroup], object], after: float | None) -> None:
        """Cancel the scheduled observation. Schedule `look` in `after` seconds, unless `after` is None."""
        if group.timer is not None:
            group.timer.cancel()
            group.timer = None
        if after is not None:
            group.timer = asyncio.get_running_loop().call_later(after, look, group)
