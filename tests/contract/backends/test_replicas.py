"""The contract of Backend: several services share a world."""

import asyncio
from datetime import timedelta

from job_tracker.backends.base import Backend
from job_tracker.domain.group import GroupRef, Phase
from tests.support.backends import World, groups_of, printed, seen, started, text_of
from tests.support.jobs import job
from tests.support.patience import PATIENCE

GRACE = timedelta(seconds=5)
FOREVER = {"PRINT": "hello", "RUN_SECONDS": "forever"}


async def found(backend: Backend, *groups: GroupRef) -> None:
    """Wait until exactly these groups are observed."""
    async with asyncio.timeout(PATIENCE):
        while set(await groups_of(backend)) != set(groups):
            await asyncio.sleep(0.02)


async def test_a_service_sees_launches_and_stops_of_another(world: World) -> None:
    one, other = world.open(), world.open()
    await found(other)
    await started(one, job(FOREVER))
    await found(other, job().group)
    await one.stop(job().group, GRACE)
    await found(other)


async def test_a_service_adopts_a_group_that_another_has_launched(world: World) -> None:
    one, other = world.open(), world.open()
    await found(other)
    await started(one, job(FOREVER))
    await other.launch(job(FOREVER))
    await printed(other, job().group)
    await one.stop(job().group, GRACE)
    await found(one)
    await found(other)
    assert await text_of(other.logs(job().group, 0)) == "hello\n", "it ran twice"


async def test_a_service_stops_a_group_that_another_has_launched(world: World) -> None:
    one, other = world.open(), world.open()
    await found(other)
    await started(one, job(FOREVER, instances=2))
    await printed(one, job().group)
    ended = await other.stop(job().group, GRACE)
    assert ended is not None
    assert [rank.phase for rank in ended.statuses] == [Phase.STOPPED] * 2
    await found(other)
    await found(one)


async def test_a_service_sees_the_end_of_a_group_that_another_launched(world: World) -> None:
    one, other = world.open(), world.open()
    await started(one, job({"RUN_SECONDS": "1"}))
    end = await seen(other, job().group, lambda observation: observation.has_ended)
    assert [rank.phase for rank in end.statuses] == [Phase.SUCCEEDED]


async def test_a_reader_follows_a_log_to_the_end_of_its_rank(world: World) -> None:
    one, reader = world.open(), world.open()
    await started(one, job({"PRINT": "hello", "RUN_SECONDS": "1"}, instances=2))
    await printed(one, job().group, 1)
    assert await text_of(reader.logs(job().group, 1, follow=True)) == "hello\n"


async def test_a_reader_follows_a_log_until_another_service_stops_the_group(world: World) -> None:
    one, reader = world.open(), world.open()
    await started(one, job(FOREVER))
    await printed(one, job().group)
    following = asyncio.create_task(text_of(reader.logs(job().group, 0, follow=True)))
    assert await printed(reader, job().group) == "hello\n"
    assert not following.done()
    await one.stop(job().group, GRACE)
    assert await following == "hello\n"
    assert await text_of(reader.logs(job().group, 0)) == "hello\n"
