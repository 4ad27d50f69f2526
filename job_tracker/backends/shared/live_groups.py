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
    """A group between launch and stop."""

    ref: GroupRef
    instances: int
    gone: set[int] = field(default_factory=set)
    """Ranks whose pod or container existed and is gone."""
    launching: bool = False
    held: bool = False
    """True while a stop waits for the end of the group. Afterwards, the stop itself drops the group."""
    timer: asyncio.TimerHandle | None = None
    """The timer of the group's next observation.

    It is set if the observation may change just because time passes.
    """
    last: Observation | None = None

    @property
    def is_kept(self) -> bool:
        """Return whether the group was stopped and its remains are only kept for inspection."""
        return False

    @abstractmethod
    def restarts_of(self, rank: int) -> int:
        """Return the number of restarts of the rank."""


AGroup = TypeVar("AGroup", bound=LiveGroup)


class LiveGroups(ABC, Generic[AGroup]):
    """All live groups. New observations are published to `feed`, and changes of instances to `touched`."""

    def __init__(self, make: Callable[[GroupRef, int], AGroup]) -> None:
        """`make` creates a group from its number of instances. No instance is known yet."""
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
        """Observe the group now. Publish the observation if it is new."""

    def begin(self, ref: GroupRef, instances: int) -> AGroup:
        """Mark the group as being launched. It is created if it is unknown."""
        group = self._known_or_new(ref, instances)
        group.launching = True
        return group

    def drop(self, ref: GroupRef) -> None:
        """Remove a group that is gone."""
        group = self._groups.pop(ref, None)
        if group is not None and group.timer is not None:
            group.timer.cancel()

    async def wait(self, group: AGroup, condition: Callable[[AGroup], bool], within: float | None) -> bool:
        """Wait until the condition holds. Return False if it does not within `within` seconds.

        The condition must depend on the group's instances only.
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
        """Cancel the scheduled observation. Schedule the next one in `after` seconds; None: schedule none."""
        if group.timer is not None:
            group.timer.cancel()
            group.timer = None
        if after is not None:
            group.timer = asyncio.get_running_loop().call_later(after, look, group)
