"""Groups that an engine's watch has shown, and those who wait for them."""

import asyncio
from dataclasses import dataclass

from job_tracker.backends.base import Observation
from job_tracker.backends.shared.live_groups import LiveGroup, LiveGroups
from job_tracker.domain.group import GroupRef
from tests.support.patience import PATIENCE

GROUP = GroupRef("program-1", 1, 1)


@dataclass(slots=True)
class Group(LiveGroup):
    is_stopping: bool = False

    def restarts_of(self, rank: int) -> int:
        raise NotImplementedError(rank)


class Groups(LiveGroups[Group]):
    def observe(self, group: Group) -> Observation:
        raise NotImplementedError(group)


async def test_those_who_wait_for_a_group_look_again_when_it_is_dropped() -> None:
    """A group that is stopped before its first instance exists has no later change."""
    groups = Groups(Group)
    group = groups.begin(GROUP, 1)
    waiting = asyncio.create_task(groups.wait(group, lambda group: group.is_stopping, None))
    while GROUP not in groups.touched.watched():
        await asyncio.sleep(0)
    group.is_stopping = True
    groups.drop(GROUP)
    async with asyncio.timeout(PATIENCE):
        assert await waiting
