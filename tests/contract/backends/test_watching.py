"""The contract of Backend: a watch yields all groups, a mark, and then changes."""

import asyncio
from contextlib import aclosing
from datetime import timedelta

from job_tracker.backends.base import Mark, Watch, snapshot_of
from job_tracker.domain.group import GroupRef, Phase
from tests.support.backends import World, groups_of, started
from tests.support.jobs import job

FOREVER = {"RUN_SECONDS": "forever"}
GRACE = timedelta(seconds=5)


async def next_of(watch: Watch, group: GroupRef) -> list[Phase]:
    """Return the phases in the next change of the group."""
    async for change in watch:
        assert change is not Mark.END_OF_SNAPSHOT, "the mark came again"
        if change[0] == group:
            return [rank.phase for rank in change[1].statuses]
    raise AssertionError("the watch ended")


async def test_the_mark_comes_even_without_groups(world: World) -> None:
    async with aclosing(world.open().watch()) as watch:
        assert await anext(watch) is Mark.END_OF_SNAPSHOT


async def test_each_group_comes_once_before_the_mark_and_changes_come_after_it(world: World) -> None:
    backend = world.open()
    first, second = (job(FOREVER, attempt=attempt) for attempt in (1, 2))
    before = [await started(backend, each) for each in (first, second)]
    async with aclosing(backend.watch()) as watch:
        snapshot = [await anext(watch) for _ in range(3)]
        assert snapshot[2] is Mark.END_OF_SNAPSHOT
        assert dict(each for each in snapshot if each is not Mark.END_OF_SNAPSHOT) == {
            first.group: before[0],
            second.group: before[1],
        }
        ended = job({"EXIT_CODE": "3", "RUN_SECONDS": "0.1"}, job_id=2)
        await backend.launch(ended)
        while await next_of(watch, ended.group) != [Phase.FAILED]:
            pass


async def test_a_group_that_is_gone_is_missing_from_the_next_snapshot(world: World) -> None:
    backend = world.open()
    first, second = (job(FOREVER, attempt=attempt) for attempt in (1, 2))
    for each in (first, second):
        await started(backend, each)
    async with aclosing(backend.watch()) as watch:
        assert set(await snapshot_of(watch)) == {first.group, second.group}
        await backend.stop(first.group, GRACE)
        assert set(await groups_of(backend)) == {second.group}  # while the first watch is open
        await backend.stop(second.group, GRACE)
        assert await groups_of(backend) == {}


async def test_a_snapshot_during_launches_has_all_groups_launched_before_it(world: World) -> None:
    backend = world.open()
    jobs = [job(FOREVER, job_id=number) for number in range(1, 6)]
    launched: set[GroupRef] = set()

    async def launch() -> None:
        for each in jobs:
            await backend.launch(each)
            launched.add(each.group)

    launching = asyncio.create_task(launch())
    while not launching.done():
        before = set(launched)
        assert before <= set(await groups_of(backend)) <= {each.group for each in jobs}
        await asyncio.sleep(0)
    await launching
    assert set(await groups_of(backend)) == launched


async def test_the_first_snapshot_has_the_groups_of_an_earlier_service(world: World) -> None:
    before = world.open()
    running = await started(before, job(FOREVER, instances=2))
    await before.close()
    assert await groups_of(world.open()) == {job().group: running}
